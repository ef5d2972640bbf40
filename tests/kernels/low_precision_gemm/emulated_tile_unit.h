// The tile instructions of AMX in plain loops, by the operation sections of Intel's manual: what the kernels' tile
// registers are where the CPU has none.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "quincunx/kernels/low_precision_gemm/dot_tile_amx-inl.h"

namespace qx::kernels {

// Operands that are denormal count as zero, results that are become it: DAZ and FTZ.
inline float without_denormal(float x) {
  return std::abs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
}

// One rounding, to nearest even.
inline float fused_multiply_add(float a, float b, float sum) {
  return without_denormal(std::fma(without_denormal(a), without_denormal(b), without_denormal(sum)));
}

inline float float_of_halves(uint32_t pair, int which) {
  const uint32_t bits = which == 0 ? pair << 16 : pair & 0xffff0000u;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

class EmulatedTileUnit {
 public:
  ~EmulatedTileUnit() { EXPECT_FALSE(is_configured_) << "the tile registers were not released"; }

  // What would be an exception (#GP) on the CPU fails the test.
  void configure(const TileConfig& config) {
    EXPECT_EQ(config.palette, 1);
    EXPECT_EQ(config.start_row, 0);
    for (const uint8_t byte : config.reserved) EXPECT_EQ(byte, 0);
    for (int tile = 0; tile < 16; ++tile) {
      EXPECT_LE(config.rows[tile], tile < 8 ? 16 : 0);
      EXPECT_LE(config.row_bytes[tile], tile < 8 ? 64 : 0);
      EXPECT_EQ(config.rows[tile] == 0, config.row_bytes[tile] == 0);
    }
    config_ = config;
    std::memset(tiles_, 0, sizeof(tiles_));
    is_configured_ = true;
  }
  void release() { is_configured_ = false; }

  template <int kTile>
  void zero() {
    expect_configured(kTile);
    std::memset(tiles_[kTile], 0, sizeof(tiles_[kTile]));
  }
  template <int kTile>
  void load(const void* from, int64_t stride) {
    zero<kTile>();
    for (int row = 0; row < config_.rows[kTile]; ++row) {
      std::memcpy(tiles_[kTile][row], static_cast<const char*>(from) + row * stride, config_.row_bytes[kTile]);
    }
  }
  template <int kTile>
  void store(void* to, int64_t stride) {
    expect_configured(kTile);
    for (int row = 0; row < config_.rows[kTile]; ++row) {
      std::memcpy(static_cast<char*>(to) + row * stride, tiles_[kTile][row], config_.row_bytes[kTile]);
    }
  }

  // TDPBF16PS: even and odd k are summed apart, then joined, then added to C.
  template <int kC, int kA, int kB>
  void multiply_halves() {
    expect_fitting<kC, kA, kB>();
    for (int m = 0; m < config_.rows[kC]; ++m) {
      for (int n = 0; n < config_.row_bytes[kC] / 4; ++n) {
        float sums[2] = {};
        for (int k = 0; k < config_.row_bytes[kA] / 4; ++k) {
          for (int which = 0; which < 2; ++which) {
            sums[which] = fused_multiply_add(float_of_halves(tiles_[kA][m][k], which),
                                             float_of_halves(tiles_[kB][k][n], which), sums[which]);
          }
        }
        const float sum = without_denormal(sums[0] + sums[1]);
        float c;
        std::memcpy(&c, &tiles_[kC][m][n], sizeof(c));
        c = without_denormal(without_denormal(c) + sum);
        std::memcpy(&tiles_[kC][m][n], &c, sizeof(c));
      }
    }
  }

  // TDPBSUD: 32-bit sums that wrap.
  template <int kC, int kA, int kB>
  void multiply_bytes() {
    expect_fitting<kC, kA, kB>();
    for (int m = 0; m < config_.rows[kC]; ++m) {
      for (int k = 0; k < config_.row_bytes[kA] / 4; ++k) {
        for (int n = 0; n < config_.row_bytes[kC] / 4; ++n) {
          int8_t a[4];
          uint8_t b[4];
          std::memcpy(a, &tiles_[kA][m][k], sizeof(a));
          std::memcpy(b, &tiles_[kB][k][n], sizeof(b));
          for (int i = 0; i < 4; ++i) tiles_[kC][m][n] += static_cast<uint32_t>(a[i] * b[i]);
        }
      }
    }
  }

 private:
  void expect_configured(int tile) const {
    EXPECT_TRUE(is_configured_);
    EXPECT_GT(config_.rows[tile], 0);
  }
  // Otherwise the CPU raises #UD.
  template <int kC, int kA, int kB>
  void expect_fitting() const {
    static_assert(kC != kA && kC != kB && kA != kB);
    for (const int tile : {kC, kA, kB}) expect_configured(tile);
    EXPECT_EQ(config_.rows[kC], config_.rows[kA]);
    EXPECT_EQ(config_.row_bytes[kC], config_.row_bytes[kB]);
    EXPECT_EQ(config_.row_bytes[kA], 4 * config_.rows[kB]);
  }

  TileConfig config_;
  bool is_configured_ = false;
  uint32_t tiles_[8][16][16] = {};
};

}  // namespace qx::kernels
