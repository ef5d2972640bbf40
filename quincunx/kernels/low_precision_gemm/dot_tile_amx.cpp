#include "quincunx/kernels/low_precision_gemm/dot_tile_amx-inl.h"

namespace qx::kernels {
namespace dot_amx {
namespace {

// The instructions by name: g++'s intrinsics take the number of a tile as text, which no template argument is.
struct AmxUnit {
  void configure(const TileConfig& config) { asm volatile("ldtilecfg %0" : : "m"(config)); }
  void release() { asm volatile("tilerelease"); }

  template <int kTile>
  void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  template <int kTile>
  void load(const void* from, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  void store(void* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kC, int kA, int kB>
  void multiply_halves() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
  }
  template <int kC, int kA, int kB>
  void multiply_bytes() {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
  }
};

}  // namespace
}  // namespace dot_amx

void int8_tile_amx(int64_t rows, int64_t panels, const DotTile& tile) {
  TileRegisters<dot_amx::AmxUnit>::multiply<false>(rows, panels, tile);
}

void bfloat16_tile_amx(int64_t rows, int64_t panels, const DotTile& tile) {
  TileRegisters<dot_amx::AmxUnit>::multiply<true>(rows, panels, tile);
}

}  // namespace qx::kernels
