#include "quincunx/tensor/tensor_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <vector>

namespace qx {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Shape = std::vector<int64_t>;

class TensorViewTest : public testing::Test {
 protected:
  TensorViewTest() : values(24) { std::iota(values.begin(), values.end(), 0.0f); }
  TensorView view(const Shape& shape) { return TensorView::contiguous(values.data(), DType::kFloat32, shape).value(); }

  // In row-major order of the view.
  static std::vector<float> elements(const TensorView& view) {
    std::vector<float> found;
    for (int64_t flat = 0; flat < view.num_elements(); ++flat) {
      int64_t rest = flat;
      int64_t offset = 0;
      for (int dim = view.num_dims() - 1; dim >= 0; --dim) {
        offset += rest % view.size(dim) * view.stride(dim);
        rest /= view.size(dim);
      }
      found.push_back(view.data_as<float>()[offset]);
    }
    return found;
  }

  std::vector<float> values;
};

TEST_F(TensorViewTest, DescribesContiguousMemory) {
  const TensorView tensor = view({2, 3, 4});
  EXPECT_THAT(tensor.shape(), ElementsAre(2, 3, 4));
  EXPECT_THAT(tensor.strides(), ElementsAre(12, 4, 1));
  EXPECT_EQ(tensor.size(-1), 4);
  EXPECT_EQ(tensor.stride(-3), 12);
  EXPECT_EQ(tensor.size_bytes(), 96);
  EXPECT_TRUE(tensor.is_contiguous());
  EXPECT_EQ(tensor.to_string(), "float32[2, 3, 4]");
  EXPECT_EQ(elements(tensor), values);
}

TEST_F(TensorViewTest, SlicesWithoutOverflow) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  const auto empty = TensorView::contiguous(values.data(), DType::kFloat32, Shape{7, 0, kHuge}).value();
  EXPECT_THAT(empty.slice(0, 0, 7, 3)->shape(), ElementsAre(3, 0, kHuge));
  const auto far = TensorView::strided(values.data(), DType::kFloat32, Shape{5}, Shape{kHuge}).value();
  EXPECT_THAT(far.slice(0, 0, 5, 3).status().message(),
              HasSubstr("dim: the stride 4611686018427387904 of dimension 0"));
  EXPECT_THAT(far.select(0, 1).status().message(), HasSubstr("reaches beyond 64 bits"));
  EXPECT_TRUE(far.select(0, 0).ok());
}

TEST_F(TensorViewTest, TellsWhetherElementsShareMemory) {
  const auto distinct = [&](const Shape& shape, const Shape& strides) {
    return TensorView::strided(values.data(), DType::kFloat32, shape, strides)->has_distinct_elements();
  };
  EXPECT_TRUE(distinct({2, 3, 4}, {12, 4, 1}));
  EXPECT_TRUE(distinct({4, 3, 2}, {1, 4, 12}));
  EXPECT_TRUE(distinct({2, 3}, {-3, 1}));
  EXPECT_TRUE(distinct({1, 3}, {0, 1}));
  EXPECT_TRUE(distinct({0, 3}, {0, 0}));
  EXPECT_TRUE(distinct({}, {}));
  EXPECT_FALSE(distinct({2, 3}, {0, 1}));
  EXPECT_FALSE(distinct({2, 3}, {2, 1}));
  EXPECT_FALSE(distinct({2, 3}, {-2, 1}));
  EXPECT_FALSE(distinct({3, 3}, {int64_t{1} << 62, int64_t{1} << 61}));
  EXPECT_FALSE(distinct({3, 3}, {std::numeric_limits<int64_t>::min(), 1}));
}

TEST_F(TensorViewTest, HoldsScalarsAndEmptyTensors) {
  EXPECT_EQ(view({}).num_elements(), 1);
  EXPECT_TRUE(view({}).is_contiguous());
  const auto empty = TensorView::contiguous(nullptr, DType::kInt8, Shape{3, 0, 2});
  ASSERT_TRUE(empty.ok());
  EXPECT_EQ(empty->num_elements(), 0);
  EXPECT_TRUE(empty->is_contiguous());
}

TEST_F(TensorViewTest, HoldsEmptyTensorsOfHugeSizes) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  for (const Shape& shape : {Shape{kHuge, 4, 0}, Shape{0, kHuge, 4}, Shape{kHuge, 0, kHuge}}) {
    const auto empty = TensorView::contiguous(nullptr, DType::kFloat64, shape);
    ASSERT_TRUE(empty.ok()) << empty.status();
    EXPECT_EQ(empty->num_elements(), 0);
    EXPECT_TRUE(empty->is_contiguous());
  }
}

TEST_F(TensorViewTest, RefusesBadShapes) {
  const auto message = [&](const Shape& shape) {
    return TensorView::contiguous(values.data(), DType::kFloat32, shape).status().message();
  };
  EXPECT_THAT(message({2, -1}), HasSubstr("shape[1]: must not be negative, got -1"));
  EXPECT_THAT(message({int64_t{1} << 40, int64_t{1} << 40}), HasSubstr("overflows"));
  EXPECT_THAT(message(Shape(9, 1)), HasSubstr("at most 8"));
  EXPECT_THAT(TensorView::contiguous(nullptr, DType::kFloat32, Shape{2}).status().message(), HasSubstr("null"));
  EXPECT_THAT(TensorView::strided(values.data(), DType::kFloat32, Shape{2, 3}, Shape{1}).status().message(),
              HasSubstr("strides: expected one for each of the 2 dimensions, got 1"));
}

TEST_F(TensorViewTest, SlicesWithSteps) {
  const TensorView tensor = view({4, 6});
  EXPECT_THAT(elements(tensor.slice(1, 1, 6, 2).value().slice(0, 2, 4).value()), ElementsAre(13, 15, 17, 19, 21, 23));
  EXPECT_THAT(tensor.slice(-1, 0, 6, 4).value().shape(), ElementsAre(4, 2));
  EXPECT_EQ(tensor.slice(0, 4, 4).value().num_elements(), 0);
  EXPECT_EQ(tensor.slice(0, 0, 4, int64_t{1} << 62).value().size(0), 1);
}

TEST_F(TensorViewTest, SelectsAndTransposes) {
  const TensorView tensor = view({2, 3, 4});
  const TensorView middle = tensor.select(1, 2).value();
  EXPECT_THAT(middle.shape(), ElementsAre(2, 4));
  EXPECT_THAT(elements(middle), ElementsAre(8, 9, 10, 11, 20, 21, 22, 23));
  const TensorView turned = view({2, 3}).transpose(0, -1).value();
  EXPECT_THAT(elements(turned), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_FALSE(turned.is_contiguous());
}

TEST_F(TensorViewTest, ReshapesContiguousMemoryOnly) {
  const TensorView tensor = view({4, 6});
  EXPECT_THAT(tensor.reshape(Shape{2, 12}).value().strides(), ElementsAre(12, 1));
  EXPECT_EQ(elements(tensor.reshape(Shape{24}).value()), values);
  EXPECT_THAT(tensor.reshape(Shape{5, 5}).status().message(), HasSubstr("expected the 24 elements"));
  EXPECT_EQ(tensor.transpose(0, 1).value().reshape(Shape{24}).status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(TensorViewTest, RefusesBadDimsAndRanges) {
  const TensorView tensor = view({4, 6});
  EXPECT_THAT(tensor.slice(2, 0, 1).status().message(), HasSubstr("dim: expected -2 to 1 for float32[4, 6], got 2"));
  EXPECT_THAT(tensor.slice(0, 3, 2).status().message(), HasSubstr("got 3, 2"));
  EXPECT_THAT(tensor.slice(0, -1, 2).status().message(), HasSubstr("begin, end"));
  EXPECT_THAT(tensor.slice(0, 0, 5).status().message(), HasSubstr("<= 4"));
  EXPECT_THAT(tensor.slice(0, 0, 4, 0).status().message(), HasSubstr("step: must be positive, got 0"));
  EXPECT_THAT(tensor.select(1, 6).status().message(), HasSubstr("index: expected 0 to 5, got 6"));
  EXPECT_THAT(tensor.select(-3, 0).status().message(), HasSubstr("dim"));
  EXPECT_THAT(tensor.transpose(0, 2).status().message(), HasSubstr("second_dim"));
}

TEST_F(TensorViewTest, PassesThroughDlpack) {
  const TensorView tensor = view({2, 3, 4}).transpose(0, 2).value();
  DLTensor exported = tensor.to_dlpack();
  exported.byte_offset = 4;
  const TensorView imported = TensorView::from_dlpack(exported).value();
  EXPECT_EQ(imported.data(), values.data() + 1);
  EXPECT_THAT(imported.shape(), ElementsAre(4, 3, 2));
  EXPECT_THAT(imported.strides(), ElementsAre(1, 4, 12));
  exported.strides = nullptr;  // row-major, says DLPack
  EXPECT_THAT(TensorView::from_dlpack(exported).value().strides(), ElementsAre(6, 2, 1));
  exported.ndim = 9;
  EXPECT_THAT(TensorView::from_dlpack(exported).status().message(), HasSubstr("ndim"));
  exported.ndim = 3;
  exported.shape = nullptr;
  EXPECT_EQ(TensorView::from_dlpack(exported).status().message(), "shape: null pointer for 3 dimensions");
}

TEST_F(TensorViewTest, KeepsEveryDtypeThroughDlpackButTheEightBitFloats) {
  for (int i = 0; i <= static_cast<int>(DType::kComplex128); ++i) {
    const auto dtype = static_cast<DType>(i);
    const auto back = dtype_from_dlpack(dlpack_dtype(dtype));
    if (dtype >= DType::kFloat8E4M3FN && dtype <= DType::kFloat8E8M0FNU) {
      EXPECT_EQ(back.status().code(), StatusCode::kTypeError) << dtype_name(dtype);
    } else {
      ASSERT_TRUE(back.ok()) << dtype_name(dtype);
      EXPECT_EQ(*back, dtype);
    }
  }
  EXPECT_EQ(dtype_from_dlpack({kDLFloat, 32, 4}).status().code(), StatusCode::kTypeError);
}

}  // namespace
}  // namespace qx
