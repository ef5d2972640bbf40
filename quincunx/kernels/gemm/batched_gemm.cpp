#include "quincunx/kernels/gemm/batched_gemm.h"

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "quincunx/kernels/gemm/gemm_arguments.h"
#include "quincunx/kernels/gemm/matrix_product.h"
#include "quincunx/kernels/gemm/operands.h"
#include "quincunx/kernels/gemm/workspace.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

Status check_batch(std::string_view name, const TensorView& view) {
  if (view.num_dims() != 3) {
    return invalid_argument(std::string(name) + ": expected three dimensions, got " + view.to_string());
  }
  return check_f32_operand(name, view);
}

// Element `index` of the first dimension where `view` has `dims` of them; otherwise the view itself.
TensorView part(const TensorView& view, int dims, int64_t index) {
  if (view.num_dims() != dims) return view;
  // An empty view may have no memory to point into.
  float* data = view.num_elements() == 0 ? view.data_as<float>() : view.data_as<float>() + index * view.stride(0);
  return TensorView::strided(data, view.dtype(), view.shape().subspan(1), view.strides().subspan(1)).value();
}

// Rows [begin, end) of a matrix or elements of a vector.
TensorView rows_of(const TensorView& view, int64_t begin, int64_t end) {
  std::vector<int64_t> shape(view.shape().begin(), view.shape().end());
  shape[0] = end - begin;
  float* data = view.num_elements() == 0 ? view.data_as<float>() : view.data_as<float>() + begin * view.stride(0);
  return TensorView::strided(data, view.dtype(), shape, view.strides()).value();
}

// The options of one product: what is batched has a dimension more.
struct PartOptions {
  PartOptions(const GemmOptions& all, int64_t index) : options(all) {
    if (all.bias != nullptr) options.bias = &(bias = part(*all.bias, 2, index));
    if (all.row_scale != nullptr) options.row_scale = &(row_scale = part(*all.row_scale, 2, index));
    if (all.residual != nullptr) options.residual = &(residual = part(*all.residual, 3, index));
  }
  PartOptions(const PartOptions&) = delete;
  PartOptions& operator=(const PartOptions&) = delete;

  GemmOptions options;
  TensorView bias, row_scale, residual;
};

Status check_batched_operand(std::string_view name, const TensorView* view, int dims, int64_t batch,
                             const TensorView& output) {
  if (view == nullptr || view->num_dims() != dims) return ok_status();
  if (view->size(0) != batch) {
    return invalid_argument(std::string(name) + ": expected " + std::to_string(batch) + " parts, got " +
                            view->to_string());
  }
  QX_RETURN_IF_ERROR(check_f32_operand(name, *view));
  return check_output_apart(name, *view, output);
}

Status check_batches(const TensorView& a, const TensorView& b, const TensorView& output) {
  QX_RETURN_IF_ERROR(check_batch("a", a));
  QX_RETURN_IF_ERROR(check_batch("b", b));
  QX_RETURN_IF_ERROR(check_batch("output", output));
  if (b.size(0) != a.size(0) || output.size(0) != a.size(0)) {
    return invalid_argument("a, b, output: expected batches of one size, got " + a.to_string() + ", " + b.to_string() +
                            " and " + output.to_string());
  }
  QX_RETURN_IF_ERROR(check_output_writable(output));
  QX_RETURN_IF_ERROR(check_output_apart("a", a, output));
  return check_output_apart("b", b, output);
}

// Calls body(i) for each product: one a thread where there are enough, else one after another on all threads.
template <typename Body>
void for_each_product(int64_t count, const Body& body) {
  if (count >= 2 * num_threads()) {
    return parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) body(i);
    });
  }
  for (int64_t i = 0; i < count; ++i) body(i);
}

Status check_offsets(std::span<const int64_t> offsets, int64_t groups, int64_t rows) {
  if (static_cast<int64_t>(offsets.size()) != groups + 1) {
    return invalid_argument("offsets: expected " + std::to_string(groups + 1) + " numbers for " +
                            std::to_string(groups) + " groups, got " + std::to_string(offsets.size()));
  }
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    if (offsets[i + 1] < offsets[i]) {
      return invalid_argument("offsets: expected rising numbers, got " + std::to_string(offsets[i + 1]) + " after " +
                              std::to_string(offsets[i]));
    }
  }
  if (offsets.front() != 0 || offsets.back() != rows) {
    return invalid_argument("offsets: expected 0 first and " + std::to_string(rows) + ", the rows of a, last, got " +
                            std::to_string(offsets.front()) + " and " + std::to_string(offsets.back()));
  }
  return ok_status();
}

}  // namespace

Status batched_gemm(const TensorView& a, const TensorView& b, const TensorView& output, const GemmOptions& options) {
  QX_RETURN_IF_ERROR(check_batches(a, b, output));
  const int64_t batch = a.size(0);
  QX_RETURN_IF_ERROR(check_batched_operand("bias", options.bias, 2, batch, output));
  QX_RETURN_IF_ERROR(check_batched_operand("row_scale", options.row_scale, 2, batch, output));
  QX_RETURN_IF_ERROR(check_batched_operand("residual", options.residual, 3, batch, output));
  QX_ASSIGN_OR_RETURN(const int64_t packed_size, packed_matrix_size(b.size(1), b.size(2)));
  if (batch == 0) return ok_status();
  {
    const PartOptions first(options, 0);
    QX_RETURN_IF_ERROR(check_product(part(a, 3, 0), b.size(1), b.size(2), part(output, 3, 0)));
    QX_RETURN_IF_ERROR(check_options(first.options, part(output, 3, 0)));
  }
  return with_scratch_memory([&] {
    for_each_product(batch, [&](int64_t i) {
      const Workspace packed(packed_size);
      const TensorView b_part = part(b, 3, i);
      pack_panels({b_part.data_as<const float>(), b_part.stride(0), b_part.stride(1)}, b.size(1), b.size(2),
                  packed.data());
      const PartOptions of_part(options, i);
      multiply_views(part(a, 3, i), {packed.data(), b.size(1), b.size(2)}, part(output, 3, i), of_part.options);
    });
  });
}

Result<int64_t> packed_groups_size(int64_t groups, int64_t inner, int64_t columns) {
  if (groups < 0) return invalid_argument("groups: must not be negative, got " + std::to_string(groups));
  QX_ASSIGN_OR_RETURN(const int64_t each, packed_matrix_size(inner, columns));
  int64_t size = 0;
  int64_t bytes = 0;
  if (__builtin_mul_overflow(each, groups, &size) || __builtin_mul_overflow(size, int64_t{sizeof(float)}, &bytes)) {
    return invalid_argument("shape: the packed size of " + std::to_string(groups) + " matrices [" +
                            std::to_string(inner) + ", " + std::to_string(columns) + "] overflows 64 bits");
  }
  return size;
}

Result<PackedGroups> pack_groups(const TensorView& b, std::span<float> storage) {
  QX_RETURN_IF_ERROR(check_batch("b", b));
  QX_ASSIGN_OR_RETURN(const int64_t size, packed_groups_size(b.size(0), b.size(1), b.size(2)));
  if (static_cast<int64_t>(storage.size()) < size || (size > 0 && storage.data() == nullptr)) {
    return invalid_argument("storage: expected " + std::to_string(size) + " floats for " + b.to_string() + ", got " +
                            std::to_string(storage.size()));
  }
  const int64_t each = b.size(0) == 0 ? 0 : size / b.size(0);
  for (int64_t group = 0; each > 0 && group < b.size(0); ++group) {
    QX_RETURN_IF_ERROR(
        pack_b(part(b, 3, group), storage.subspan(static_cast<size_t>(group * each), static_cast<size_t>(each)))
            .status());
  }
  return PackedGroups{storage.data(), b.size(0), b.size(1), b.size(2)};
}

Status grouped_gemm(const TensorView& a, const PackedGroups& b, std::span<const int64_t> offsets,
                    const TensorView& output, const GemmOptions& options) {
  QX_RETURN_IF_ERROR(check_matrix("a", a));
  QX_RETURN_IF_ERROR(check_matrix("output", output));
  QX_ASSIGN_OR_RETURN(const int64_t packed_size, packed_groups_size(b.groups, b.inner, b.columns));
  if (b.data == nullptr && packed_size != 0) return invalid_argument("b: null data for packed matrices");
  QX_RETURN_IF_ERROR(check_product(a, b.inner, b.columns, output));
  QX_RETURN_IF_ERROR(check_offsets(offsets, b.groups, a.size(0)));
  if (options.bias != nullptr && options.bias->num_dims() != 2) {
    return invalid_argument("bias: expected [groups, columns], got " + options.bias->to_string());
  }
  QX_RETURN_IF_ERROR(check_batched_operand("bias", options.bias, 2, b.groups, output));
  QX_ASSIGN_OR_RETURN(const TensorView packed,
                      TensorView::contiguous(const_cast<float*>(b.data), DType::kFloat32, std::span(&packed_size, 1)));
  QX_RETURN_IF_ERROR(check_output_apart("b", packed, output));
  GemmOptions first = options;
  std::optional<TensorView> bias;
  if (options.bias != nullptr && b.groups > 0) first.bias = &bias.emplace(part(*options.bias, 2, 0));
  QX_RETURN_IF_ERROR(check_options(first, output));
  return with_scratch_memory([&] {
    for_each_product(b.groups, [&](int64_t group) {
      const int64_t begin = offsets[static_cast<size_t>(group)];
      const int64_t end = offsets[static_cast<size_t>(group) + 1];
      if (begin == end) return;
      GemmOptions of_group = options;
      TensorView group_bias, row_scale, residual;
      if (options.bias != nullptr) of_group.bias = &(group_bias = part(*options.bias, 2, group));
      if (options.row_scale != nullptr) of_group.row_scale = &(row_scale = rows_of(*options.row_scale, begin, end));
      if (options.residual != nullptr) of_group.residual = &(residual = rows_of(*options.residual, begin, end));
      multiply_views(rows_of(a, begin, end), {b.data + group * (packed_size / b.groups), b.inner, b.columns},
                     rows_of(output, begin, end), of_group);
    });
  });
}

}  // namespace qx::kernels
