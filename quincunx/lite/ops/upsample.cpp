// Images of another size: the nearest pixel, or a weighted mean of the nearest ones.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "quincunx/lite/ops/families.h"
#include "quincunx/lite/ops/rows.h"

namespace qx::lite {
namespace {

// Input pixels an output pixel: the ratio of sizes, unless a scale factor was given.
float ratio(int64_t in, int64_t out, double factor) {
  return factor > 0 ? static_cast<float>(1 / factor) : static_cast<float>(in) / static_cast<float>(out);
}

// The last dimensions of the result and the factor of each; 0 where none is given.
struct Scaling {
  size_t spatial = 0;
  std::vector<double> factors;
};

Status check(const TensorView& x, const TensorView& result, const Scaling& scaling) {
  const auto spatial = static_cast<int>(scaling.spatial);
  bool fits = x.num_dims() == result.num_dims() && x.num_dims() == spatial + 2 && x.size(0) == result.size(0) &&
              x.size(1) == result.size(1) && x.dtype() == result.dtype();
  for (int i = 2; fits && i < x.num_dims(); ++i) fits = x.size(i) > 0 || result.size(i) == 0;
  return fits ? ok_status()
              : invalid_argument("the shapes of " + x.to_string() + " and " + result.to_string() + " do not fit");
}

// Dimension by dimension: index i of the result is pixel floor((i + offset) * ratio).
Status nearest(const TensorView& x, const TensorView& result, const Scaling& scaling, float offset, size_t level) {
  if (level == scaling.spatial) return copy_elements(x, result);
  const int dim = static_cast<int>(level) + 2;
  const float step = ratio(x.size(dim), result.size(dim), scaling.factors[level]);
  for (int64_t i = 0; i < result.size(dim); ++i) {
    const auto source = static_cast<int64_t>(std::floor((static_cast<float>(i) + offset) * step));
    const int64_t from = std::min(source, x.size(dim) - 1);
    QX_ASSIGN_OR_RETURN(const TensorView part, x.slice(dim, from, from + 1));
    QX_ASSIGN_OR_RETURN(const TensorView target, result.slice(dim, i, i + 1));
    QX_RETURN_IF_ERROR(nearest(part, target, scaling, offset, level + 1));
  }
  return ok_status();
}

// upsample_nearest.vec(x, output_size, scale_factors) and upsample_nearest(x, output_size, scale, scale ...)
template <size_t kSpatial, bool kVector, bool kExact>
Status run_nearest(const Call& call) {
  Scaling scaling = {kSpatial, std::vector<double>(kSpatial, 0)};
  if (kVector && call.has(2)) scaling.factors = call.reals(2);
  for (size_t i = 0; !kVector && i < kSpatial; ++i) scaling.factors[i] = call.real(2 + i, 0);
  if (scaling.factors.size() != kSpatial) return invalid_argument("scale_factors: expected one a dimension");
  QX_RETURN_IF_ERROR(check(call.tensor(0), call.result(), scaling));
  constexpr float kHalfPixel = 0.5f;
  return nearest(call.tensor(0), call.result(), scaling, kExact ? kHalfPixel : 0.0f, 0);
}

// Where a pixel lies between two of the input's.
struct Between {
  int64_t first = 0, second = 0;
  float weight = 0;  // of the second
};

std::vector<Between> between(int64_t in, int64_t out, double factor, bool align_corners) {
  std::vector<Between> list(static_cast<size_t>(out));
  const float aligned = out > 1 ? static_cast<float>(in - 1) / static_cast<float>(out - 1) : 0;
  for (int64_t i = 0; i < out; ++i) {
    const float at = align_corners ? static_cast<float>(i) * aligned
                                   : std::max(0.0f, (static_cast<float>(i) + 0.5f) * ratio(in, out, factor) - 0.5f);
    const auto first = static_cast<int64_t>(std::min(at, static_cast<float>(in - 1)));
    list[static_cast<size_t>(i)] = {first, std::min(first + 1, in - 1), at - static_cast<float>(first)};
  }
  return list;
}

float pixel(const TensorView& x, int64_t plane, int64_t row, int64_t column) {
  const int64_t offset =
      plane / x.size(1) * x.stride(0) + plane % x.size(1) * x.stride(1) + row * x.stride(2) + column * x.stride(3);
  float value;
  return *load_row(x.dtype(), x.data_as<char>() + offset * dtype_size_bytes(x.dtype()), 1, 1, &value);
}

// upsample_bilinear2d.vec(x, output_size, align_corners, scale_factors) and (x, output_size, align_corners, h, w)
template <bool kVector>
Status run_bilinear(const Call& call) {
  const TensorView& x = call.tensor(0);
  const TensorView& result = call.result();
  Scaling scaling = {2, {0, 0}};
  if (kVector && call.has(3)) scaling.factors = call.reals(3);
  for (size_t i = 0; !kVector && i < 2; ++i) scaling.factors[i] = call.real(3 + i, 0);
  if (scaling.factors.size() != 2) return invalid_argument("scale_factors: expected two");
  QX_RETURN_IF_ERROR(check(x, result, scaling));
  if (!is_floating_point(x.dtype()) || !is_computable(x.dtype()) || !result.is_contiguous()) {
    return unimplemented("input: expected floating point, got " + x.to_string());
  }
  if (result.num_elements() == 0) return ok_status();
  const auto rows = between(x.size(2), result.size(2), scaling.factors[0], call.flag(2));
  const auto columns = between(x.size(3), result.size(3), scaling.factors[1], call.flag(2));
  const auto pixels = static_cast<int64_t>(rows.size() * columns.size());
  parallel_for(0, x.size(0) * x.size(1), 1, [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      int64_t index = plane * pixels;
      for (const Between& row : rows) {
        for (const Between& column : columns) {
          const auto mixed = [&](int64_t line) {
            return (1 - column.weight) * pixel(x, plane, line, column.first) +
                   column.weight * pixel(x, plane, line, column.second);
          };
          const float value = (1 - row.weight) * mixed(row.first) + row.weight * mixed(row.second);
          store_row(&value, 1, result.dtype(), result.data_as<char>() + index++ * dtype_size_bytes(result.dtype()), 1);
        }
      }
    }
  });
  return ok_status();
}

constexpr Operator kOperators[] = {
    {"aten.upsample_nearest1d.vec", "TJR", run_nearest<1, true, false>},
    {"aten.upsample_nearest2d.vec", "TJR", run_nearest<2, true, false>},
    {"aten.upsample_nearest3d.vec", "TJR", run_nearest<3, true, false>},
    {"aten.upsample_nearest1d.default", "TIg", run_nearest<1, false, false>},
    {"aten.upsample_nearest2d.default", "TIgg", run_nearest<2, false, false>},
    {"aten.upsample_nearest3d.default", "TIggg", run_nearest<3, false, false>},
    {"aten._upsample_nearest_exact1d.vec", "TJR", run_nearest<1, true, true>},
    {"aten._upsample_nearest_exact2d.vec", "TJR", run_nearest<2, true, true>},
    {"aten._upsample_nearest_exact3d.vec", "TJR", run_nearest<3, true, true>},
    {"aten.upsample_bilinear2d.vec", "TJbR", run_bilinear<true>},
    {"aten.upsample_bilinear2d.default", "TIbgg", run_bilinear<false>},
};

}  // namespace

std::span<const Operator> upsample_operators() { return kOperators; }

}  // namespace qx::lite
