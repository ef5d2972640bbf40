// Images read at given places.
#include <algorithm>
#include <cmath>
#include <string>

#include "quincunx/lite/ops/families.h"
#include "quincunx/lite/ops/rows.h"

namespace qx::lite {
namespace {

enum class Interpolation { kBilinear, kNearest };
enum class Padding { kZeros, kBorder, kReflection };

// Folds a coordinate back into [low, high], as often as needed.
double reflected(double x, double low, double high) {
  if (low == high) return 0;
  const double span = high - low;
  const double distance = std::fabs(x - low);
  const double extra = std::fmod(distance, span);
  return std::fmod(std::floor(distance / span), 2) == 0 ? extra + low : span - extra + low;
}

// From [-1, 1] to pixels. Aligned corners put -1 on the centre of the first pixel, others on its outer edge.
double pixel_coordinate(double x, int64_t size, bool align_corners, Padding padding) {
  const auto length = static_cast<double>(size);
  double at = align_corners ? (x + 1) / 2 * (length - 1) : ((x + 1) * length - 1) / 2;
  if (padding == Padding::kReflection) {
    at = align_corners ? reflected(at, 0, length - 1) : reflected(at, -0.5, length - 0.5);
  }
  return padding == Padding::kZeros ? at : std::clamp(at, 0.0, length - 1);
}

class Sampler {
 public:
  Sampler(const TensorView& image, int64_t batch, int64_t channel, Interpolation interpolation)
      : image_(image), base_(batch * image.stride(0) + channel * image.stride(1)), interpolation_(interpolation) {}

  double sample(double x, double y) const {
    // A coordinate that no integer holds, NaN too, is outside.
    constexpr double kFar = 1e9;
    if (!(std::fabs(x) < kFar && std::fabs(y) < kFar)) return 0;
    if (interpolation_ == Interpolation::kNearest) {
      return at(static_cast<int64_t>(std::nearbyint(y)), static_cast<int64_t>(std::nearbyint(x)));
    }
    const double left = std::floor(x), top = std::floor(y);
    const auto column = static_cast<int64_t>(left), row = static_cast<int64_t>(top);
    const double right_weight = x - left, bottom_weight = y - top;
    return (at(row, column) * (1 - right_weight) + at(row, column + 1) * right_weight) * (1 - bottom_weight) +
           (at(row + 1, column) * (1 - right_weight) + at(row + 1, column + 1) * right_weight) * bottom_weight;
  }

 private:
  double at(int64_t row, int64_t column) const {
    if (row < 0 || row >= image_.size(2) || column < 0 || column >= image_.size(3)) return 0;
    const int64_t offset = base_ + row * image_.stride(2) + column * image_.stride(3);
    double value;
    return *load_row(image_.dtype(), image_.data_as<char>() + offset * dtype_size_bytes(image_.dtype()), 1, 1, &value);
  }

  const TensorView& image_;
  int64_t base_;
  Interpolation interpolation_;
};

double coordinate(const TensorView& grid, int64_t batch, int64_t row, int64_t column, int64_t axis) {
  const int64_t offset =
      batch * grid.stride(0) + row * grid.stride(1) + column * grid.stride(2) + axis * grid.stride(3);
  double value;
  return *load_row(grid.dtype(), grid.data_as<char>() + offset * dtype_size_bytes(grid.dtype()), 1, 1, &value);
}

Status check(const TensorView& image, const TensorView& grid, const TensorView& result) {
  const bool fits = image.num_dims() == 4 && grid.num_dims() == 4 && result.num_dims() == 4 &&
                    grid.size(0) == image.size(0) && grid.size(3) == 2 && result.size(0) == image.size(0) &&
                    result.size(1) == image.size(1) && result.size(2) == grid.size(1) &&
                    result.size(3) == grid.size(2) && result.is_contiguous() && is_floating_point(image.dtype()) &&
                    is_floating_point(grid.dtype()) && is_computable(image.dtype()) && is_computable(grid.dtype()) &&
                    image.size(2) > 0 && image.size(3) > 0;
  return fits ? ok_status()
              : invalid_argument("expected [N, C, H, W] and [N, Ho, Wo, 2], got " + image.to_string() + " and " +
                                 grid.to_string() + " for " + result.to_string());
}

// grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners)
Status run_grid_sampler(const Call& call) {
  const TensorView& image = call.tensor(0);
  const TensorView& grid = call.tensor(1);
  const TensorView& result = call.result();
  QX_RETURN_IF_ERROR(check(image, grid, result));
  const int64_t mode = call.integer(2), padding_mode = call.integer(3);
  if (mode < 0 || mode > 1 || padding_mode < 0 || padding_mode > 2) {
    return unimplemented("expected interpolation_mode 0 (bilinear) or 1 (nearest) and padding_mode 0 to 2, got " +
                         std::to_string(mode) + " and " + std::to_string(padding_mode));
  }
  const auto padding = static_cast<Padding>(padding_mode);
  const int64_t bytes = dtype_size_bytes(result.dtype());
  parallel_for(0, result.size(0) * result.size(1), 1, [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      const int64_t batch = plane / result.size(1);
      const Sampler sampler(image, batch, plane % result.size(1), static_cast<Interpolation>(mode));
      int64_t index = plane * result.size(2) * result.size(3);
      for (int64_t row = 0; row < result.size(2); ++row) {
        for (int64_t column = 0; column < result.size(3); ++column) {
          const double x = coordinate(grid, batch, row, column, 0), y = coordinate(grid, batch, row, column, 1);
          const double value = sampler.sample(pixel_coordinate(x, image.size(3), call.flag(4), padding),
                                              pixel_coordinate(y, image.size(2), call.flag(4), padding));
          store_row(&value, 1, result.dtype(), result.data_as<char>() + index++ * bytes, 1);
        }
      }
    }
  });
  return ok_status();
}

constexpr Operator kOperators[] = {
    {"aten.grid_sampler.default", "TTiib", run_grid_sampler},
    {"aten.grid_sampler_2d.default", "TTiib", run_grid_sampler},
};

}  // namespace

std::span<const Operator> grid_sample_operators() { return kOperators; }

}  // namespace qx::lite
