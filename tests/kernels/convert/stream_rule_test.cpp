// Results that are written past the caches have the bits of those that are not.
#include "quincunx/kernels/convert/stream_rule.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "quincunx/kernels/cross_entropy/cross_entropy.h"
#include "quincunx/kernels/elementwise/unary.h"
#include "quincunx/kernels/embedding/embedding.h"
#include "quincunx/kernels/norm/group_norm.h"
#include "quincunx/kernels/norm/norm.h"
#include "quincunx/kernels/softmax/softmax.h"

namespace qx::kernels {
namespace {

TensorView view_of(void* data, DType dtype, std::vector<int64_t> shape) {
  return TensorView::contiguous(data, dtype, shape).value();
}

// Memory that starts `offset_bytes` after a multiple of 64.
class Memory {
 public:
  explicit Memory(int64_t bytes, int64_t offset_bytes = 0) : storage_(static_cast<size_t>(bytes + 192)) {
    const auto address = reinterpret_cast<uintptr_t>(storage_.data());
    data_ = storage_.data() + (64 - address % 64) % 64 + offset_bytes;
  }
  char* data() const { return data_; }

 private:
  std::vector<char> storage_;
  char* data_;
};

void fill(char* data, DType dtype, int64_t count) {
  uint32_t state = 1;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    const float value = static_cast<float>(state >> 16) / 8192.0f - 4;
    if (dtype == DType::kFloat32) reinterpret_cast<float*>(data)[i] = value;
    if (dtype == DType::kBFloat16) reinterpret_cast<uint16_t*>(data)[i] = BFloat16(value).bits;
    if (dtype == DType::kFloat16) reinterpret_cast<uint16_t*>(data)[i] = Float16(value).bits;
  }
}

TEST(StreamRule, TakesLargeAlignedRowsThatReplaceNothing) {
  char* const aligned = reinterpret_cast<char*>(uintptr_t{1} << 30);  // never read
  const TensorView large = view_of(aligned, DType::kFloat32, {8192, 1024});
  EXPECT_TRUE(writes_past_caches(large, false));
  EXPECT_FALSE(writes_past_caches(large, true));
  EXPECT_FALSE(writes_past_caches(view_of(aligned + 4, DType::kFloat32, {8192, 1024}), false));
  EXPECT_FALSE(writes_past_caches(view_of(aligned, DType::kFloat32, {8191, 1024}), false));
  const TensorView ragged = view_of(aligned, DType::kFloat32, {8192, 1028});
  EXPECT_FALSE(writes_past_caches(ragged, false));
  EXPECT_TRUE(writes_past_caches(ragged, false, true));
}

// The kernel's result in aligned memory against that in memory which is not.
template <typename Kernel>
void expect_same_bits(DType dtype, int64_t rows, const Kernel& kernel) {
  const int64_t columns = 1024, count = rows * columns, bytes = count * dtype_size_bytes(dtype);
  const Memory input(bytes), streamed(bytes), ordinary(bytes, dtype_size_bytes(dtype));
  fill(input.data(), dtype, count);
  const TensorView x = view_of(input.data(), dtype, {rows, columns});
  const TensorView y = view_of(streamed.data(), dtype, {rows, columns});
  ASSERT_TRUE(writes_past_caches(y, false));
  const Status first = kernel(x, y), second = kernel(x, view_of(ordinary.data(), dtype, {rows, columns}));
  ASSERT_TRUE(first.ok() && second.ok()) << first << second;
  EXPECT_EQ(std::memcmp(streamed.data(), ordinary.data(), static_cast<size_t>(bytes)), 0) << dtype_name(dtype);
}

template <typename Kernel>
void for_each_dtype(const Kernel& kernel) {
  expect_same_bits(DType::kFloat32, 8192, kernel);
  expect_same_bits(DType::kBFloat16, 16384, kernel);
  expect_same_bits(DType::kFloat16, 16384, kernel);
}

TEST(StreamedResults, OfActivations) {
  for_each_dtype([](const auto& x, const auto& y) { return apply_unary(UnaryFunction::kSilu, x, y); });
}

TEST(StreamedResults, OfNorms) {
  for_each_dtype([](const auto& x, const auto& y) { return layer_norm(x, {}, y); });
}

TEST(StreamedResults, OfSumsWithAResidual) {
  const int64_t rows = 16384, columns = 1024, bytes = rows * columns * 2;
  const Memory residual(bytes), streamed(bytes), ordinary(bytes, 2);
  fill(residual.data(), DType::kBFloat16, rows * columns);
  NormOptions options;
  options.residual = view_of(residual.data(), DType::kBFloat16, {rows, columns});
  bool first = true;
  expect_same_bits(DType::kBFloat16, rows, [&](const auto& x, const auto& y) {
    options.sum = view_of(first ? streamed.data() : ordinary.data(), DType::kBFloat16, {rows, columns});
    first = false;
    return rms_norm(x, options, y);
  });
  EXPECT_EQ(std::memcmp(streamed.data(), ordinary.data(), static_cast<size_t>(bytes)), 0);
}

TEST(StreamedResults, OfSoftmaxAlongRowsAndColumns) {
  for_each_dtype([](const auto& x, const auto& y) { return softmax(x, -1, y); });
  for_each_dtype([](const auto& x, const auto& y) { return softmax(x, 0, y); });
  for_each_dtype([](const auto& x, const auto& y) { return log_softmax(x, -1, y); });
}

TEST(StreamedResults, OfGroupNormInBothLayouts) {
  for_each_dtype([](const TensorView& x, const TensorView& y) {
    const int64_t shape[] = {x.size(0) / 64, 64, 32, 32};
    return group_norm(x.reshape(shape).value(), {.num_groups = 8, .silu = true}, y.reshape(shape).value());
  });
  for_each_dtype([](const TensorView& x, const TensorView& y) {
    const int64_t shape[] = {x.size(0) / 64, 64, 1024}, strides[] = {65536, 1, 64};
    const auto last = [&](const TensorView& view) {
      return TensorView::strided(view.data(), view.dtype(), shape, strides).value();
    };
    return group_norm(last(x), {.num_groups = 8, .silu = true}, last(y));
  });
}

TEST(StreamedResults, OfGradientsAndEmbeddings) {
  for_each_dtype([](const TensorView& x, const TensorView& y) {
    std::vector<int64_t> targets(static_cast<size_t>(x.size(0)), 3);
    std::vector<float> lse(targets.size());
    float loss = 0, one = 1;
    const TensorView target = view_of(targets.data(), DType::kInt64, {x.size(0)});
    const TensorView log_sum_exp = view_of(lse.data(), DType::kFloat32, {x.size(0)});
    QX_RETURN_IF_ERROR(cross_entropy(x, target, {}, view_of(&loss, DType::kFloat32, {}), log_sum_exp));
    return cross_entropy_backward(x, target, log_sum_exp, view_of(&one, DType::kFloat32, {}), {}, y);
  });
  for_each_dtype([](const TensorView& x, const TensorView& y) {
    std::vector<int64_t> indices(static_cast<size_t>(x.size(0)));
    for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<int64_t>((i * 7919) % indices.size());
    return embedding(x, view_of(indices.data(), DType::kInt64, {x.size(0)}), y);
  });
}

}  // namespace
}  // namespace qx::kernels
