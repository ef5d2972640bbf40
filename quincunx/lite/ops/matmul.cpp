// Products of tensors that are both computed: batches of matrices, with broadcasting.
#include <algorithm>
#include <string>
#include <vector>

#include "quincunx/lite/ops/families.h"
#include "quincunx/lite/ops/product.h"
#include "quincunx/lite/ops/rows.h"

namespace qx::lite {
namespace {

// A view of `x` with the batch dimensions of `batch` in front of its last two; sizes of 1 are repeated.
Result<TensorView> with_batch(const TensorView& x, std::span<const int64_t> batch) {
  std::vector<int64_t> shape(batch.begin(), batch.end());
  std::vector<int64_t> strides(batch.size(), 0);
  const int own = x.num_dims() - 2;
  const int missing = static_cast<int>(batch.size()) - own;
  for (int i = 0; i < own; ++i) {
    if (missing < 0 || (x.size(i) != 1 && x.size(i) != shape[static_cast<size_t>(i + missing)])) {
      return invalid_argument("the batch of " + x.to_string() + " does not broadcast to the result's");
    }
    strides[static_cast<size_t>(i + missing)] = x.size(i) == 1 ? 0 : x.stride(i);
  }
  for (int i = own; i < x.num_dims(); ++i) {
    shape.push_back(x.size(i));
    strides.push_back(x.stride(i));
  }
  return TensorView::strided(x.data(), x.dtype(), shape, strides);
}

// Matrix `index` of the row-major batch.
Result<TensorView> matrix_of(const TensorView& x, int64_t index) {
  int64_t offset = 0;
  for (int dim = x.num_dims() - 3; dim >= 0; --dim) {
    offset += index % x.size(dim) * x.stride(dim);
    index /= x.size(dim);
  }
  const int rank = x.num_dims();
  const int64_t shape[] = {x.size(rank - 2), x.size(rank - 1)};
  const int64_t strides[] = {x.stride(rank - 2), x.stride(rank - 1)};
  return TensorView::strided(x.data_as<char>() + offset * dtype_size_bytes(x.dtype()), x.dtype(), shape, strides);
}

Status batched(const TensorView& a, const TensorView& b, const ProductOptions& options, const TensorView& output,
               const TensorView* residual = nullptr) {
  if (a.num_dims() < 2 || b.num_dims() < 2 || output.num_dims() < 2) {
    return invalid_argument("the shapes of " + a.to_string() + " times " + b.to_string() + " to " + output.to_string() +
                            " do not fit");
  }
  const std::span<const int64_t> batch = output.shape().first(output.shape().size() - 2);
  QX_ASSIGN_OR_RETURN(const TensorView left, with_batch(a, batch));
  QX_ASSIGN_OR_RETURN(const TensorView right, with_batch(b, batch));
  int64_t count = 1;
  for (const int64_t size : batch) count *= size;
  for (int64_t i = 0; i < count; ++i) {
    QX_ASSIGN_OR_RETURN(const TensorView x, matrix_of(left, i));
    QX_ASSIGN_OR_RETURN(const TensorView y, matrix_of(right, i));
    QX_ASSIGN_OR_RETURN(const TensorView to, matrix_of(output, i));
    ProductOptions one = options;
    TensorView added;
    if (residual != nullptr) {
      QX_ASSIGN_OR_RETURN(added, matrix_of(*residual, i));
      one.residual = &added;
    }
    QX_RETURN_IF_ERROR(multiply(x, y, one, to));
  }
  return ok_status();
}

Result<TensorView> with_dim(const TensorView& x, int dim) {
  if (dim < 0) return invalid_argument("result: expected at least one dimension, got " + x.to_string());
  std::vector<int64_t> shape(x.shape().begin(), x.shape().end());
  std::vector<int64_t> strides(x.strides().begin(), x.strides().end());
  shape.insert(shape.begin() + dim, 1);
  strides.insert(strides.begin() + dim, 1);
  return TensorView::strided(x.data(), x.dtype(), shape, strides);
}

std::optional<TensorView> right_matrix(const Call& call) {
  const TensorView& matrix = call.tensor(1);
  return is_packable(matrix) ? std::optional(matrix) : std::nullopt;
}

// The rules of torch.matmul: vectors become matrices, whose dimension the result does not have.
Status run_matmul(const Call& call) {
  TensorView a = call.tensor(0), b = call.tensor(1), output = call.result();
  if (a.num_dims() == 0 || b.num_dims() == 0) return invalid_argument("expected at least one dimension");
  if (b.num_dims() == 1) {
    QX_ASSIGN_OR_RETURN(b, with_dim(b, 1));
    QX_ASSIGN_OR_RETURN(output, with_dim(output, output.num_dims()));
  }
  if (a.num_dims() == 1) {
    QX_ASSIGN_OR_RETURN(a, with_dim(a, 0));
    QX_ASSIGN_OR_RETURN(output, with_dim(output, output.num_dims() - 1));
  }
  if (b.num_dims() > 2 || output.num_dims() != a.num_dims()) return batched(a, b, {}, output);
  // One matrix on the right: the batch is rows.
  std::shared_ptr<Storage> storage;
  QX_ASSIGN_OR_RETURN(const TensorView rows, as_matrix(a, storage));
  const int64_t shape[] = {rows.size(0), b.size(1)};
  if (output.num_elements() != shape[0] * shape[1]) {
    return invalid_argument("the shapes of " + a.to_string() + " times " + b.to_string() + " to " + output.to_string() +
                            " do not fit");
  }
  QX_ASSIGN_OR_RETURN(const TensorView to, output.reshape(shape));
  ProductOptions options;
  if (call.tensor(1).num_dims() == 2) options.packed = call.packed();
  return multiply(rows, b, options, to);
}

Status run_bmm(const Call& call) {
  if (call.tensor(0).num_dims() != 3 || call.tensor(1).num_dims() != 3 || call.result().num_dims() != 3) {
    return invalid_argument("expected batches of matrices, got " + call.tensor(0).to_string() + " and " +
                            call.tensor(1).to_string());
  }
  return batched(call.tensor(0), call.tensor(1), {}, call.result());
}

// baddbmm(input, batch1, batch2, beta, alpha)
Status run_baddbmm(const Call& call) {
  if (call.real(3, 1) != 1) return unimplemented("beta: expected 1, got " + std::to_string(call.real(3)));
  const TensorView& output = call.result();
  const TensorView& added = call.tensor(0);
  if (call.tensor(1).num_dims() != 3 || output.num_dims() != 3) return invalid_argument("expected batches");
  // Sizes of 1 are repeated in every dimension.
  std::vector<int64_t> strides(3, 0);
  const int missing = 3 - added.num_dims();
  for (int i = 0; i < added.num_dims(); ++i) {
    if (missing < 0 || (added.size(i) != 1 && added.size(i) != output.size(i + missing))) {
      return invalid_argument("input: " + added.to_string() + " does not broadcast to " + output.to_string());
    }
    strides[static_cast<size_t>(i + missing)] = added.size(i) == 1 ? 0 : added.stride(i);
  }
  QX_ASSIGN_OR_RETURN(const TensorView residual,
                      TensorView::strided(added.data(), added.dtype(), output.shape(), strides));
  ProductOptions options;
  options.scale = call.real(4, 1);
  return batched(call.tensor(1), call.tensor(2), options, output, &residual);
}

constexpr Operator kOperators[] = {
    {.name = "aten.matmul.default", .signature = "TT", .run = run_matmul, .matrix = right_matrix},
    {.name = "aten.mv.default", .signature = "TT", .run = run_matmul},
    {.name = "aten.dot.default", .signature = "TT", .run = run_matmul},
    {.name = "aten.bmm.default", .signature = "TT", .run = run_bmm},
    {.name = "aten.baddbmm.default", .signature = "TTTgg", .run = run_baddbmm},
};

}  // namespace

std::span<const Operator> matmul_operators() { return kOperators; }

}  // namespace qx::lite
