// The function of a register tile, by its numbers of rows and panels at run time.
#if defined(QUINCUNX_KERNELS_GEMM_TILE_CHOICE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUINCUNX_KERNELS_GEMM_TILE_CHOICE_INL_H_
#undef QUINCUNX_KERNELS_GEMM_TILE_CHOICE_INL_H_
#else
#define QUINCUNX_KERNELS_GEMM_TILE_CHOICE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {

// Tiles::Of<rows, panels>() for `rows` in 1 ... kRows and a power of two of panels up to Tiles::Panels(rows), at
// most 4.
template <class Tiles, int kRows>
typename Tiles::Function ChooseTile(int64_t rows, int64_t panels) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return ChooseTile<Tiles, kRows - 1>(rows, panels);
  }
  constexpr int64_t kWidest = Tiles::Panels(kRows);
  if constexpr (kWidest >= 4) {
    if (panels == 4) return Tiles::template Of<kRows, 4>();
  }
  if constexpr (kWidest >= 2) {
    if (panels == 2) return Tiles::template Of<kRows, 2>();
  }
  return Tiles::template Of<kRows, 1>();
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
