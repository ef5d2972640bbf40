// Elementwise loops over strided tensors: operands are cut into rows of at most kRowElements, loaded as the type that
// is computed with, and stored as the result's dtype. A dtype costs a conversion, an operator costs a row function, and
// neither multiplies the other.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "quincunx/base/status.h"
#include "quincunx/parallel/parallel_for.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::lite {

inline constexpr int64_t kRowElements = 512;
inline constexpr size_t kMaxRowOperands = 4;

// The types that are computed with: float for float32, bfloat16 and float16; double for float64; int64_t for bool and
// the integers up to 64 bits (unsigned 64-bit values as their bits).
enum class ComputeType : uint8_t { kFloat, kDouble, kInteger };
ComputeType compute_type(DType dtype);
// False for complex and 8-bit floating point.
bool is_computable(DType dtype);

// `count` elements from `data` on, as C. Returns `data` itself where it can be read as it is. Floating point to integer
// drops the fraction; what no int64 holds becomes the least one.
template <typename C>
const C* load_row(DType dtype, const void* data, int64_t stride, int64_t count, C* buffer);
// The reverse; bool is "not zero", integers keep their low bits.
template <typename C>
void store_row(const C* row, int64_t count, DType dtype, void* data, int64_t stride);

// Rows that the operands have in common: the first operand's shape, the others broadcast to it.
class RowLoop {
 public:
  // Dimensions that all operands step through evenly become one. The others' shapes must broadcast to the first.
  static Result<RowLoop> create(std::span<const TensorView* const> operands);

  // body(pointers, count) for each piece of a row, in parallel; stride(i) is operand i's step in elements.
  template <typename Body>
  void run(const Body& body) const {
    const int64_t pieces = (row_length_ + kRowElements - 1) / kRowElements;
    if (row_length_ == 0 || num_rows_ == 0) return;
    parallel_for(0, num_rows_ * pieces, grain(), [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t first = task % pieces * kRowElements;
        std::array<char*, kMaxRowOperands> pointers;
        place(task / pieces, first, pointers);
        body(pointers, row_length_ - first < kRowElements ? row_length_ - first : kRowElements);
      }
    });
  }
  int64_t stride(size_t operand) const { return row_strides_[operand]; }

 private:
  static constexpr int64_t kGrainElements = 16384;

  int64_t grain() const {
    const int64_t length = row_length_ < kRowElements ? row_length_ : kRowElements;
    return kGrainElements / length > 1 ? kGrainElements / length : 1;
  }
  void place(int64_t row, int64_t first, std::array<char*, kMaxRowOperands>& pointers) const;

  size_t num_operands_ = 0;
  int num_dims_ = 0;  // without the row
  int64_t row_length_ = 1;
  int64_t num_rows_ = 1;
  std::array<char*, kMaxRowOperands> data_ = {};
  std::array<int64_t, kMaxRowOperands> element_bytes_ = {};
  std::array<int64_t, kMaxRowOperands> row_strides_ = {};
  std::array<int64_t, TensorView::kMaxDims> shape_ = {};
  std::array<std::array<int64_t, TensorView::kMaxDims>, kMaxRowOperands> strides_ = {};
};

// result = source, element by element, of equal dtype; the source may have to be broadcast. Any dtype.
Status copy_elements(const TensorView& source, const TensorView& result);
// The same with a conversion, as aten._to_copy does it.
Status convert_elements(const TensorView& source, const TensorView& result);
// Every element becomes `value`.
Status fill_elements(const TensorView& result, double value, int64_t integer_value);

}  // namespace qx::lite
