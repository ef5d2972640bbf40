#include "quincunx/kernels/low_precision_gemm/dot_tile_portable.h"

#include <cstring>

#include "quincunx/base/dtype.h"
#include "quincunx/kernels/low_precision_gemm/weight_layout.h"

namespace qx::kernels {
namespace {

constexpr int kColumns = static_cast<int>(kWeightPanelColumns);

template <typename T>
T load_at(const uint8_t* source) {
  T value;
  std::memcpy(&value, source, sizeof(T));
  return value;
}

// sums[j] += the four k of a unit times those of column j.
void add_quads(const uint8_t (&quads)[kPanelRowBytes], const int32_t* unit, int32_t (&sums)[kColumns]) {
  int8_t a[4];
  std::memcpy(a, unit, sizeof(a));
  for (int j = 0; j < kColumns; ++j) {
    for (int k = 0; k < 4; ++k) sums[j] += quads[4 * j + k] * a[k];
  }
}

// One row of a panel that holds bytes; returns the unit after those it used.
const int32_t* add_bytes(const uint8_t* b, const int32_t* unit, int64_t rows, int32_t (&sums)[kColumns]) {
  uint8_t quads[kPanelRowBytes];
  std::memcpy(quads, b, sizeof(quads));
  add_quads(quads, unit, sums);
  return unit + rows;
}

const int32_t* add_nibbles(const uint8_t* b, const int32_t* unit, int64_t rows, int32_t (&sums)[kColumns]) {
  uint8_t quads[kPanelRowBytes];
  for (int i = 0; i < kPanelRowBytes; ++i) quads[i] = b[i] & 15;
  add_quads(quads, unit, sums);
  for (int i = 0; i < kPanelRowBytes; ++i) quads[i] = b[i] >> 4;
  add_quads(quads, unit + rows, sums);
  return unit + 2 * rows;
}

template <auto kAddRow, int kGroupRows>
void multiply_grouped(int64_t rows, const DotTile& tile) {
  for (int64_t r = 0; r < rows; ++r) {
    float totals[kColumns] = {};
    const int32_t* unit = tile.a + r;
    const uint8_t* b = tile.b;
    for (int64_t group = 0; group < tile.num_rows_of_b; ++group) {
      int32_t sums[kColumns];
      for (int32_t& sum : sums) sum = tile.a_starts[group * rows + r];
      for (int i = 0; i < kGroupRows; ++i, b += kPanelRowBytes) unit = kAddRow(b, unit, rows, sums);
      for (int j = 0; j < kColumns; ++j) {
        const float scale = float_from_float16_bits(load_at<uint16_t>(b + 2 * j));
        totals[j] += static_cast<float>(sums[j]) * scale * tile.a_scales[group * rows + r];
      }
      b += kGroupScaleBytes;
    }
    std::memcpy(tile.c + r * tile.c_row_stride, totals, sizeof(totals));
  }
}

}  // namespace

void int8_tile_portable(int64_t rows, int64_t /*panels*/, const DotTile& tile) {
  for (int64_t r = 0; r < rows; ++r) {
    int32_t sums[kColumns];
    for (int32_t& sum : sums) sum = tile.a_starts[r];
    const int32_t* unit = tile.a + r;
    for (int64_t i = 0; i < tile.num_rows_of_b; ++i) unit = add_bytes(tile.b + i * kPanelRowBytes, unit, rows, sums);
    float* c = tile.c + r * tile.c_row_stride;
    for (int j = 0; j < kColumns; ++j) {
      const int32_t sum = sums[j] - tile.zero_point * load_at<int32_t>(tile.b_sums + 4 * j);
      const float value = static_cast<float>(sum) * load_at<float>(tile.b_scales + 4 * j) * tile.a_scales[r];
      c[j] = tile.accumulate ? c[j] + value : value;
    }
  }
}

void int8_grouped_tile_portable(int64_t rows, int64_t /*panels*/, const DotTile& tile) {
  multiply_grouped<add_bytes, 8>(rows, tile);
}

void int4_grouped_tile_portable(int64_t rows, int64_t /*panels*/, const DotTile& tile) {
  multiply_grouped<add_nibbles, 4>(rows, tile);
}

}  // namespace qx::kernels
