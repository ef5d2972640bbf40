// Rows of a table, chosen by index.
#include <cstring>
#include <string>
#include <vector>

#include "quincunx/lite/ops/families.h"
#include "quincunx/lite/ops/rows.h"

namespace qx::lite {
namespace {

// embedding(weight, indices, ...)
Status run_embedding(const Call& call) {
  const TensorView& weight = call.tensor(0);
  const TensorView& indices = call.tensor(1);
  const TensorView& result = call.result();
  if (weight.num_dims() != 2 || compute_type(indices.dtype()) != ComputeType::kInteger || !result.is_contiguous() ||
      result.num_elements() != indices.num_elements() * weight.size(1) || weight.dtype() != result.dtype()) {
    return invalid_argument("expected a table [V, D] and integers, got " + weight.to_string() + " and " +
                            indices.to_string() + " for " + result.to_string());
  }
  const int64_t bytes = dtype_size_bytes(weight.dtype());
  const int64_t width = weight.size(1);
  std::vector<int64_t> rows(static_cast<size_t>(indices.num_elements()));
  QX_ASSIGN_OR_RETURN(const TensorView list, TensorView::contiguous(rows.data(), DType::kInt64, indices.shape()));
  QX_RETURN_IF_ERROR(convert_elements(indices, list));
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] < 0 || rows[i] >= weight.size(0)) {
      return invalid_argument("indices: expected 0 to " + std::to_string(weight.size(0) - 1) + ", got " +
                              std::to_string(rows[i]));
    }
    const int64_t row[] = {width};
    const int64_t step[] = {weight.stride(1)};
    char* from = weight.data_as<char>() + rows[i] * weight.stride(0) * bytes;
    char* to = result.data_as<char>() + static_cast<int64_t>(i) * width * bytes;
    if (weight.stride(1) == 1 || width == 1) {
      std::memcpy(to, from, static_cast<size_t>(width * bytes));
      continue;
    }
    QX_ASSIGN_OR_RETURN(const TensorView source, TensorView::strided(from, weight.dtype(), row, step));
    QX_ASSIGN_OR_RETURN(const TensorView target, TensorView::contiguous(to, weight.dtype(), row));
    QX_RETURN_IF_ERROR(copy_elements(source, target));
  }
  return ok_status();
}

constexpr Operator kOperators[] = {
    {"aten.embedding.default", "TTjbb", run_embedding},
};

}  // namespace

std::span<const Operator> embedding_operators() { return kOperators; }

}  // namespace qx::lite
