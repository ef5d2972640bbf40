// QX_UNROLL before a loop over the sums of a tile: such a loop must vanish, or the sums are kept in memory.
#pragma once

#if defined(__clang__)
#define QX_UNROLL _Pragma("clang loop unroll(full)")
#else
#define QX_UNROLL _Pragma("GCC unroll 16")
#endif
