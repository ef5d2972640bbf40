#include "quincunx/kernels/attention/attention_mask.h"

#include <algorithm>
#include <limits>
#include <numbers>
#include <string>

namespace qx::kernels {
namespace {

constexpr float kHidden = -std::numeric_limits<float>::infinity();

// Calls at(offset) for the keys until one returns true.
template <typename At>
bool any_key(const MaskRows& mask, int64_t row, int64_t first, int64_t count, const At& at) {
  const int64_t start = mask.row_offset(row);
  for (int64_t i = first; i < first + count; ++i) {
    if (at(start + (mask.key_order == nullptr ? i : mask.key_order[i]) * mask.key_stride)) return true;
  }
  return false;
}

// The form that compilers vectorise: without an exit from the loop.
bool any_adjacent(const MaskRows& mask, int64_t start, int64_t count) {
  unsigned any = 0;
  if (mask.seen != nullptr) {
    const uint8_t* seen = mask.seen + start;
    for (int64_t i = 0; i < count; ++i) any |= seen[i];
  } else {
    const float* bias = mask.bias + start;
    for (int64_t i = 0; i < count; ++i) any |= bias[i] != kHidden ? 1u : 0u;
  }
  return any != 0;
}

}  // namespace

Status check_attention_mask(const TensorView& query, const TensorView& key, const TensorView& mask) {
  const std::string got = ", got " + mask.to_string();
  if (mask.dtype() != DType::kBool && mask.dtype() != DType::kFloat32) {
    return type_error("attn_mask: expected bool or float32" + got);
  }
  const int64_t expected[] = {query.size(0), query.size(1), query.size(2), key.size(2)};
  if (!std::ranges::equal(mask.shape(), expected)) {
    return invalid_argument("attn_mask: expected the batch, heads and length of query " + query.to_string() +
                            " and the length of key " + key.to_string() + got);
  }
  return ok_status();
}

MaskRows mask_rows(const TensorView& mask, int64_t batch, int64_t head, int64_t first_row) {
  if (mask.data() == nullptr) return {};  // there is no key
  const int64_t offset = batch * mask.stride(0) + head * mask.stride(1) + first_row * mask.stride(2);
  MaskRows rows;
  if (mask.dtype() == DType::kBool) {
    rows.seen = mask.data_as<uint8_t>() + offset;
  } else {
    rows.bias = mask.data_as<float>() + offset;
  }
  rows.row_stride = mask.stride(2);
  rows.key_stride = mask.stride(3);
  return rows;
}

void fill_mask_row(const MaskRows& mask, int64_t row, int64_t first, int64_t count, float* out) {
  constexpr float kLog2E = std::numbers::log2e_v<float>;
  const int64_t start = mask.row_offset(row);
  if (mask.key_order == nullptr && mask.key_stride == 1) {  // the form that compilers vectorise
    if (mask.seen != nullptr) {
      const uint8_t* seen = mask.seen + start + first;
      for (int64_t i = 0; i < count; ++i) out[i] = seen[i] != 0 ? 0.0f : kHidden;
    } else {
      const float* bias = mask.bias + start + first;
      for (int64_t i = 0; i < count; ++i) out[i] = bias[i] * kLog2E;
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t key = mask.key_order == nullptr ? first + i : mask.key_order[first + i];
    const int64_t at = start + key * mask.key_stride;
    out[i] = mask.seen == nullptr ? mask.bias[at] * kLog2E : mask.seen[at] != 0 ? 0.0f : kHidden;
  }
}

bool sees_any(const MaskRows& mask, int64_t num_rows, int64_t first, int64_t count) {
  const int64_t rows = mask.row_stride == 0 ? std::min<int64_t>(num_rows, 1) : num_rows;
  for (int64_t row = 0; row < rows; ++row) {
    if (mask.key_order == nullptr && mask.key_stride == 1) {
      if (any_adjacent(mask, mask.row_offset(row) + first, count)) return true;
      continue;
    }
    const bool seen = mask.seen != nullptr
                          ? any_key(mask, row, first, count, [&](int64_t at) { return mask.seen[at] != 0; })
                          : any_key(mask, row, first, count, [&](int64_t at) { return mask.bias[at] != kHidden; });
    if (seen) return true;
  }
  return false;
}

}  // namespace qx::kernels
