// The dot tiles on tile registers (AMX), for any unit that has them: the CPU's, or the emulation of the tests. Packed
// panels are what the registers take: 16 rows of 64 bytes, each with the k of one unit for 16 columns.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "quincunx/kernels/low_precision_gemm/dot_tile.h"

namespace qx::kernels {

inline constexpr int kTileRegisterRows = 16;
inline constexpr int kTileRegisterRowBytes = 64;

// What LDTILECFG reads.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

// A TileUnit has configure(const TileConfig&), release() and, with tiles as template arguments, zero<T>(),
// load<T>(from, stride), store<T>(to, stride), multiply_halves<C, A, B>() (TDPBF16PS) and multiply_bytes<C, A, B>()
// (TDPBSUD: signed activations, unsigned weights).
template <typename TileUnit>
struct TileRegisters {
  // Rows stand in one or two registers of A, 4 and 5; panels take turns in 6 and 7; the sums are 0 to 3.
  static constexpr int kRowTiles = 4;
  static constexpr int kPanelTiles = 6;

  template <int kCount, typename Body>
  static void for_each(const Body& body) {
    if constexpr (kCount > 0) {
      for_each<kCount - 1>(body);
      body(std::integral_constant<int, kCount - 1>{});
    }
  }

  // Rows of the tile in its first register.
  template <int kParts>
  static int64_t first_part(int64_t rows) {
    return kParts == 1 ? rows : (rows + 1) / 2;
  }

  template <int kParts, int kPanels>
  static TileConfig config_for(int64_t rows) {
    static_assert(kParts <= 2 && kParts * kPanels <= 4);
    TileConfig config;
    for (int i = 0; i < 8; ++i) {
      config.row_bytes[i] = kTileRegisterRowBytes;
      config.rows[i] = kTileRegisterRows;
    }
    const int64_t first = first_part<kParts>(rows);
    for (int part = 0; part < kParts; ++part) {
      const auto part_rows = static_cast<uint8_t>(part == 0 ? first : rows - first);
      config.rows[kRowTiles + part] = part_rows;
      for (int panel = 0; panel < kPanels; ++panel) config.rows[part * kPanels + panel] = part_rows;
    }
    return config;
  }

  // The sums of one block of 16 units; panel p of B starts at b + p * stride.
  template <bool kHalves, int kParts, int kPanels>
  static void add_block(TileUnit& unit, const int32_t* a, int64_t rows, const uint8_t* b, int64_t stride) {
    for_each<kParts>([&](auto part) {
      const int64_t row = part == 0 ? 0 : first_part<kParts>(rows);
      unit.template load<kRowTiles + part>(a + row * kTileRegisterRows, kTileRegisterRowBytes);
    });
    for_each<kPanels>([&](auto panel) {
      constexpr int kPanelTile = kPanelTiles + panel % 2;
      unit.template load<kPanelTile>(b + panel * stride, kTileRegisterRowBytes);
      for_each<kParts>([&](auto part) {
        constexpr int kSum = part * kPanels + panel;
        if constexpr (kHalves) {
          unit.template multiply_halves<kSum, kRowTiles + part, kPanelTile>();
        } else {
          unit.template multiply_bytes<kSum, kRowTiles + part, kPanelTile>();
        }
      });
    });
  }

  static void finish_halves(const float* sums, int64_t rows, const DotTile& tile, float* c) {
    for (int64_t r = 0; r < rows; ++r) {
      float* to = c + r * tile.c_row_stride;
      const float* from = sums + r * 16;
      for (int j = 0; j < 16; ++j) to[j] = tile.accumulate ? to[j] + from[j] : from[j];
    }
  }

  static void finish_bytes(const int32_t* sums, int64_t row, int64_t rows, const DotTile& tile, int64_t panel,
                           float* c) {
    float scales[16];
    int32_t shifts[16];
    std::memcpy(scales, tile.b_scales + panel * tile.panel_stride, sizeof(scales));
    std::memcpy(shifts, tile.b_sums + panel * tile.panel_stride, sizeof(shifts));
    for (int32_t& shift : shifts) shift *= tile.zero_point;
    for (int64_t r = 0; r < rows; ++r) {
      float* to = c + r * tile.c_row_stride;
      for (int j = 0; j < 16; ++j) {
        const int32_t sum = sums[r * 16 + j] + tile.a_starts[row + r] - shifts[j];
        const float value = static_cast<float>(sum) * scales[j] * tile.a_scales[row + r];
        to[j] = tile.accumulate ? to[j] + value : value;
      }
    }
  }

  template <bool kHalves, int kParts, int kPanels>
  static void finish(TileUnit& unit, int64_t rows, const DotTile& tile) {
    using Sum = std::conditional_t<kHalves, float, int32_t>;
    alignas(64) Sum sums[kTileRegisterRows * 16];
    for_each<kParts>([&](auto part) {
      const int64_t row = part == 0 ? 0 : first_part<kParts>(rows);
      const int64_t part_rows = part + 1 == kParts ? rows - row : first_part<kParts>(rows);
      for_each<kPanels>([&](auto panel) {
        unit.template store<part * kPanels + panel>(sums, kTileRegisterRowBytes);
        float* c = tile.c + row * tile.c_row_stride + 16 * panel;
        if constexpr (kHalves) {
          finish_halves(sums, part_rows, tile, c);
        } else {
          finish_bytes(sums, row, part_rows, tile, panel, c);
        }
      });
    });
  }

  template <bool kHalves, int kParts, int kPanels>
  static void multiply(int64_t rows, const DotTile& tile) {
    TileUnit unit;
    unit.configure(config_for<kParts, kPanels>(rows));
    for_each<kParts * kPanels>([&](auto sum) { unit.template zero<sum>(); });
    const int64_t blocks = tile.num_rows_of_b / kTileRegisterRows;
    const int64_t block_bytes = kTileRegisterRows * kTileRegisterRowBytes;
    const int32_t* a = tile.a;
    for (int64_t i = 0; i < blocks; ++i, a += rows * kTileRegisterRows) {
      add_block<kHalves, kParts, kPanels>(unit, a, rows, tile.b + i * block_bytes, tile.panel_stride);
    }
    if (const int64_t rest = tile.num_rows_of_b % kTileRegisterRows; rest != 0) {
      // The rows behind the last one belong to others; A has zeros for them.
      alignas(64) uint8_t padded[kPanels * kTileRegisterRows * kTileRegisterRowBytes] = {};
      for (int panel = 0; panel < kPanels; ++panel) {
        std::memcpy(padded + panel * block_bytes, tile.b + blocks * block_bytes + panel * tile.panel_stride,
                    static_cast<size_t>(rest * kTileRegisterRowBytes));
      }
      add_block<kHalves, kParts, kPanels>(unit, a, rows, padded, block_bytes);
    }
    finish<kHalves, kParts, kPanels>(unit, rows, tile);
    unit.release();
  }

  // rows: 1 ... 32; panels: 1 or 2, or 4 for one row.
  template <bool kHalves>
  static void multiply(int64_t rows, int64_t panels, const DotTile& tile) {
    if (panels == 4) return multiply<kHalves, 1, 4>(rows, tile);
    if (rows <= kTileRegisterRows) {
      return panels == 2 ? multiply<kHalves, 1, 2>(rows, tile) : multiply<kHalves, 1, 1>(rows, tile);
    }
    return panels == 2 ? multiply<kHalves, 2, 2>(rows, tile) : multiply<kHalves, 2, 1>(rows, tile);
  }
};

}  // namespace qx::kernels
