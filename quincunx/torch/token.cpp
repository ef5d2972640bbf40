// torch.ops.quincunx.embedding, embedding_bag, top_k, sort and sample
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "quincunx/kernels/embedding/embedding.h"
#include "quincunx/kernels/sampling/sampling.h"
#include "quincunx/kernels/top_k/top_k.h"
#include "quincunx/torch/result_memory.h"
#include "quincunx/torch/tensor_bridge.h"

namespace qx::torch_bridge {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

Tensor embedding(const Tensor& table, const Tensor& indices) {
  const TensorView rows = kernel_float_view("table", table);
  if (table.dim() != 2) throw_if_error(invalid_argument("table: expected 2 dimensions, got " + rows.to_string()));
  const auto sizes = indices.sizes();
  std::vector<int64_t> shape(sizes.begin(), sizes.end());
  shape.push_back(table.size(1));
  Tensor result = contiguous_result(table, shape);
  throw_if_error(kernels::embedding(rows, index_view("indices", indices), kernel_float_view("result", result)));
  return result;
}

Tensor embedding_bag(const Tensor& table, const Tensor& indices, const Tensor& offsets, const std::string& mode) {
  if (mode != "sum" && mode != "mean") {
    throw_if_error(invalid_argument("mode: expected sum or mean, got '" + mode + "'"));
  }
  const TensorView rows = kernel_float_view("table", table);
  if (table.dim() != 2) throw_if_error(invalid_argument("table: expected 2 dimensions, got " + rows.to_string()));
  const TensorView starts = index_view("offsets", offsets);
  if (offsets.dim() != 1) throw_if_error(invalid_argument("offsets: expected 1 dimensions, got " + starts.to_string()));
  const int64_t shape[] = {offsets.size(0), table.size(1)};
  Tensor result = contiguous_result(table, shape);
  throw_if_error(kernels::embedding_bag(rows, index_view("indices", indices), starts,
                                        mode == "sum" ? kernels::BagMode::kSum : kernels::BagMode::kMean,
                                        kernel_float_view("result", result)));
  return result;
}

int64_t checked_dim(const Tensor& x, int64_t dim) {
  if (x.dim() == 0) throw_if_error(invalid_argument("x: expected at least one dimension, got a scalar"));
  if (dim < -x.dim() || dim >= x.dim()) {
    throw_if_error(invalid_argument("dim: expected " + std::to_string(-x.dim()) + " to " + std::to_string(x.dim() - 1) +
                                    ", got " + std::to_string(dim)));
  }
  return dim < 0 ? dim + x.dim() : dim;
}

// The first k in order along `dim`.
std::tuple<Tensor, Tensor> first_along(const Tensor& x, int64_t k, int64_t dim, bool largest) {
  const TensorView input = kernel_float_view("x", x);
  const int64_t along = checked_dim(x, dim);
  if (k < 0 || k > x.size(along)) {
    throw_if_error(
        invalid_argument("k: expected 0 to " + std::to_string(x.size(along)) + ", got " + std::to_string(k)));
  }
  const auto sizes = x.sizes();
  std::vector<int64_t> shape(sizes.begin(), sizes.end());
  shape[static_cast<size_t>(along)] = k;
  Tensor values = torch::stable::new_empty(x, shape);
  Tensor indices = torch::stable::new_empty(x, shape, ScalarType::Long);
  const int at = static_cast<int>(along);
  const auto rows = [at](const TensorView& view) { return value_or_throw(view.transpose(at, -1)); };
  throw_if_error(kernels::top_k(rows(input), largest, rows(kernel_float_view("values", values)),
                                rows(index_view("indices", indices))));
  return {values, indices};
}

std::tuple<Tensor, Tensor> top_k(const Tensor& x, int64_t k, int64_t dim, bool largest) {
  return first_along(x, k, dim, largest);
}

std::tuple<Tensor, Tensor> sort(const Tensor& x, int64_t dim, bool descending) {
  return first_along(x, x.size(checked_dim(x, dim)), dim, descending);
}

Tensor sample(const Tensor& logits, double temperature, int64_t top_k, double top_p, double min_p,
              double repetition_penalty, const std::optional<Tensor>& history, int64_t seed, int64_t step) {
  kernels::SamplingOptions options{.repetition_penalty = repetition_penalty,
                                   .temperature = temperature,
                                   .top_k = top_k,
                                   .top_p = top_p,
                                   .min_p = min_p,
                                   .seed = static_cast<uint64_t>(seed),
                                   .step = static_cast<uint64_t>(step)};
  if (history.has_value()) options.history = index_view("history", *history);
  const TensorView input = kernel_float_view("logits", logits);
  if (logits.dim() != 2) throw_if_error(invalid_argument("logits: expected 2 dimensions, got " + input.to_string()));
  Tensor tokens = torch::stable::new_empty(logits, {logits.size(0)}, ScalarType::Long);
  throw_if_error(kernels::sample(input, options, index_view("tokens", tokens)));
  return tokens;
}

}  // namespace
}  // namespace qx::torch_bridge

STABLE_TORCH_LIBRARY_FRAGMENT(quincunx, library) {
  library.def("embedding(Tensor table, Tensor indices) -> Tensor");
  library.def("embedding_bag(Tensor table, Tensor indices, Tensor offsets, str mode=\"sum\") -> Tensor");
  library.def("top_k(Tensor x, int k, int dim=-1, bool largest=True) -> (Tensor values, Tensor indices)");
  library.def("sort(Tensor x, int dim=-1, bool descending=False) -> (Tensor values, Tensor indices)");
  library.def(
      "sample(Tensor logits, float temperature=1.0, int top_k=0, float top_p=1.0, float min_p=0.0, "
      "float repetition_penalty=1.0, Tensor? history=None, int seed=0, int step=0) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(quincunx, CPU, library) {
  library.impl("embedding", TORCH_BOX(&qx::torch_bridge::embedding));
  library.impl("embedding_bag", TORCH_BOX(&qx::torch_bridge::embedding_bag));
  library.impl("top_k", TORCH_BOX(&qx::torch_bridge::top_k));
  library.impl("sort", TORCH_BOX(&qx::torch_bridge::sort));
  library.impl("sample", TORCH_BOX(&qx::torch_bridge::sample));
}
