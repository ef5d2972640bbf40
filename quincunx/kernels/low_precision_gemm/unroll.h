// Loops over the sums of a tile must vanish, or the sums are kept in memory.
#pragma once

#if defined(__clang__)
#define QX_UNROLL_TILE _Pragma("clang loop unroll(full)")
#else
#define QX_UNROLL_TILE _Pragma("GCC unroll 16")
#endif
