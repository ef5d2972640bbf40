#include <algorithm>
#include <cstring>
#include <string>

#include "quincunx/kernels/convolution/convolution.h"
#include "quincunx/kernels/convolution/convolution_problem.h"
#include "quincunx/kernels/convolution/geometry_checks.h"
#include "quincunx/kernels/gemm/operands.h"
#include "quincunx/kernels/winograd_convolution/winograd_convolution.h"
#include "quincunx/parallel/parallel_for.h"

namespace qx::kernels {
namespace {

// In front of the packed weight: what it is. One cache line, so that the weight stays aligned.
struct Header {
  static constexpr uint32_t kMagic = 0x51584331;
  uint32_t magic;
  uint32_t form;
  uint32_t in_channels, out_channels, groups, transposed, num_spatial_dims;
  uint32_t kernel[kMaxSpatialDims];
  uint32_t winograd_tile;
  uint32_t unused[5];
};
constexpr int64_t kHeaderFloats = sizeof(Header) / sizeof(float);
static_assert(kHeaderFloats == 16);

// Output sizes that the choice assumes where none are named: the middle layers of image networks.
constexpr int64_t kTypicalOutput = 32;

bool is_winograd_shape(const PackedConvolutionWeight& weight, const ConvolutionGeometry& geometry) {
  if (weight.transposed || weight.groups != 1 || weight.num_spatial_dims < 2) return false;
  for (int i = weight.num_spatial_dims - 2; i < weight.num_spatial_dims; ++i) {
    if (weight.kernel[i] != 3 || geometry.stride[i] != 1 || geometry.dilation[i] != 1) return false;
  }
  return true;
}

// Frames of a kernel in time that Winograd sees as further input channels.
int64_t num_frames(const PackedConvolutionWeight& weight) {
  return weight.num_spatial_dims == 3 ? weight.kernel[0] : 1;
}

void choose_form(const ConvolutionGeometry& geometry, const ConvolutionPacking& packing,
                 PackedConvolutionWeight& weight) {
  if (weight.groups == weight.in_channels && weight.groups == weight.out_channels && weight.groups > 1 &&
      !weight.transposed) {
    weight.form = ConvolutionForm::kDepthwise;
    return;
  }
  if (packing.exact || !is_winograd_shape(weight, geometry)) return;
  const int height = weight.num_spatial_dims - 2;
  const auto typical = [&](int dim) {
    return packing.typical_output[dim] > 0 ? packing.typical_output[dim] : kTypicalOutput;
  };
  const WinogradShape shape{1, weight.in_channels * num_frames(weight), weight.out_channels, typical(height),
                            typical(height + 1)};
  if (!prefers_winograd(shape)) return;
  weight.form = ConvolutionForm::kWinograd;
  weight.winograd_tile = winograd_output_tile(shape);
}

Result<PackedConvolutionWeight> describe(const TensorView& weight, const ConvolutionGeometry& geometry,
                                         const ConvolutionPacking& packing) {
  QX_RETURN_IF_ERROR(check_f32_operand("weight", weight));
  QX_RETURN_IF_ERROR(check_weight_shape(weight, geometry));
  for (int i = 0; i < weight.num_dims() - 2; ++i) {
    if (packing.typical_output[i] < 0) {
      return invalid_argument("typical_output: expected sizes, or 0 where they are not known, got " +
                              std::to_string(packing.typical_output[i]));
    }
  }
  PackedConvolutionWeight result;
  result.groups = geometry.groups;
  result.transposed = geometry.transposed;
  result.num_spatial_dims = weight.num_dims() - 2;
  const int64_t inner = weight.size(1) * geometry.groups;
  result.in_channels = geometry.transposed ? weight.size(0) : inner;
  result.out_channels = geometry.transposed ? inner : weight.size(0);
  for (int i = 0; i < result.num_spatial_dims; ++i) result.kernel[i] = weight.size(i + 2);
  choose_form(geometry, packing, result);
  return result;
}

int64_t num_taps(const PackedConvolutionWeight& weight) {
  return weight.kernel[0] * weight.kernel[1] * weight.kernel[2];
}

Result<int64_t> size_of(const PackedConvolutionWeight& weight) {
  int64_t elements = 0;
  // Twice 2^20 bytes of room for what rounding up to panels and the transform add.
  if (__builtin_mul_overflow(weight.in_channels + kChannelBlock, weight.out_channels + kChannelBlock * weight.groups,
                             &elements) ||
      __builtin_mul_overflow(elements, num_taps(weight) * 64, &elements)) {
    return invalid_argument("weight: the packed size overflows 64 bits");
  }
  switch (weight.form) {
    case ConvolutionForm::kDepthwise: return kHeaderFloats + depthwise_weight_size(weight.groups, num_taps(weight));
    case ConvolutionForm::kWinograd: {
      QX_ASSIGN_OR_RETURN(
          const int64_t size,
          winograd_weight_size(weight.winograd_tile, weight.in_channels * num_frames(weight), weight.out_channels));
      return kHeaderFloats + size;
    }
    case ConvolutionForm::kPanels: break;
  }
  return kHeaderFloats + panel_weight_size(weight.groups, weight.in_channels / weight.groups,
                                           weight.out_channels / weight.groups, num_taps(weight));
}

// Element offsets of the weight's taps, in row-major order.
std::vector<int64_t> tap_offsets(const TensorView& weight) {
  std::vector<int64_t> offsets = {0};
  for (int dim = 2; dim < weight.num_dims(); ++dim) {
    std::vector<int64_t> next;
    for (const int64_t offset : offsets) {
      for (int64_t i = 0; i < weight.size(dim); ++i) next.push_back(offset + i * weight.stride(dim));
    }
    offsets = std::move(next);
  }
  return offsets;
}

// Panel `panel` of a group: [taps][channels][16].
void pack_panel(const TensorView& weight, const PackedConvolutionWeight& packed, const std::vector<int64_t>& taps,
                int64_t group, int64_t panel, float* target) {
  const int64_t in_per_group = packed.in_channels / packed.groups;
  const int64_t out_per_group = packed.out_channels / packed.groups;
  const int64_t out_stride = weight.stride(packed.transposed ? 1 : 0);
  const int64_t in_stride = weight.stride(packed.transposed ? 0 : 1);
  const int64_t first_in = packed.transposed ? group * in_per_group : 0;
  const int64_t first_out = (packed.transposed ? 0 : group * out_per_group) + panel * kChannelBlock;
  const int64_t columns = std::min(kChannelBlock, out_per_group - panel * kChannelBlock);
  const float* source = weight.data_as<const float>() + first_in * in_stride + first_out * out_stride;
  for (const int64_t tap : taps) {
    for (int64_t c = 0; c < in_per_group; ++c) {
      const float* from = source + tap + c * in_stride;
      for (int64_t j = 0; j < columns; ++j) target[j] = from[j * out_stride];
      std::fill(target + columns, target + kChannelBlock, 0.0f);
      target += kChannelBlock;
    }
  }
}

void pack_panels_of(const TensorView& weight, const PackedConvolutionWeight& packed, float* target) {
  const std::vector<int64_t> taps = tap_offsets(weight);
  const int64_t panels = num_channel_blocks(packed.out_channels / packed.groups);
  const int64_t panel_size = num_taps(packed) * packed.in_channels / packed.groups * kChannelBlock;
  parallel_for(0, packed.groups * panels, 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      pack_panel(weight, packed, taps, i / panels, i % panels, target + i * panel_size);
    }
  });
}

// [blocks of 16 channels][taps][16]
void pack_depthwise(const TensorView& weight, const PackedConvolutionWeight& packed, float* target) {
  const std::vector<int64_t> taps = tap_offsets(weight);
  const int64_t channels = num_channel_blocks(packed.groups) * kChannelBlock;
  const auto count = static_cast<int64_t>(taps.size());
  for (int64_t c = 0; c < channels; ++c) {
    float* block = target + c / kChannelBlock * kChannelBlock * count + c % kChannelBlock;
    for (int64_t t = 0; t < count; ++t) {
      const int64_t from = c * weight.stride(0) + taps[static_cast<size_t>(t)];
      block[t * kChannelBlock] = c < packed.groups ? weight.data_as<const float>()[from] : 0.0f;
    }
  }
}

// A kernel in time becomes a plane whose channels are those of frame after frame.
Status pack_winograd(const TensorView& weight, const PackedConvolutionWeight& packed, std::span<float> target) {
  if (packed.num_spatial_dims == 2) return pack_winograd_weight(weight, packed.winograd_tile, target).status();
  const int64_t frames = num_frames(packed);
  const int64_t channels = packed.in_channels;
  std::vector<float> plane(static_cast<size_t>(weight.num_elements()));
  float* free = plane.data();
  for (int64_t k = 0; k < packed.out_channels; ++k) {
    for (int64_t f = 0; f < frames; ++f) {
      for (int64_t c = 0; c < channels; ++c) {
        const float* from =
            weight.data_as<const float>() + k * weight.stride(0) + c * weight.stride(1) + f * weight.stride(2);
        for (int64_t i = 0; i < 9; ++i) *free++ = from[i / 3 * weight.stride(3) + i % 3 * weight.stride(4)];
      }
    }
  }
  const std::array<int64_t, 4> shape{packed.out_channels, frames * channels, 3, 3};
  QX_ASSIGN_OR_RETURN(const TensorView view, TensorView::contiguous(plane.data(), DType::kFloat32, shape));
  return pack_winograd_weight(view, packed.winograd_tile, target).status();
}

// What pack_convolution_weight can have written.
bool is_plausible(const Header& header) {
  bool fits = header.magic == Header::kMagic && header.form <= static_cast<uint32_t>(ConvolutionForm::kWinograd) &&
              header.num_spatial_dims >= 1 && header.num_spatial_dims <= kMaxSpatialDims && header.groups >= 1 &&
              header.in_channels >= 1 && header.out_channels >= 1 && header.in_channels % header.groups == 0 &&
              header.out_channels % header.groups == 0;
  int64_t taps = 64;  // as size_of multiplies
  for (const uint32_t size : header.kernel) {
    fits = fits && size >= 1 && !__builtin_mul_overflow(taps, int64_t{size}, &taps);
  }
  return fits;
}

Header header_of(const PackedConvolutionWeight& weight) {
  Header header{};
  header.magic = Header::kMagic;
  header.form = static_cast<uint32_t>(weight.form);
  header.in_channels = static_cast<uint32_t>(weight.in_channels);
  header.out_channels = static_cast<uint32_t>(weight.out_channels);
  header.groups = static_cast<uint32_t>(weight.groups);
  header.transposed = weight.transposed ? 1 : 0;
  header.num_spatial_dims = static_cast<uint32_t>(weight.num_spatial_dims);
  for (int i = 0; i < kMaxSpatialDims; ++i) header.kernel[i] = static_cast<uint32_t>(weight.kernel[i]);
  header.winograd_tile = static_cast<uint32_t>(weight.winograd_tile);
  return header;
}

}  // namespace

Result<int64_t> packed_convolution_weight_size(const TensorView& weight, const ConvolutionGeometry& geometry,
                                               const ConvolutionPacking& packing) {
  QX_ASSIGN_OR_RETURN(const PackedConvolutionWeight packed, describe(weight, geometry, packing));
  return size_of(packed);
}

Result<PackedConvolutionWeight> pack_convolution_weight(const TensorView& weight, const ConvolutionGeometry& geometry,
                                                        std::span<float> storage, const ConvolutionPacking& packing) {
  QX_ASSIGN_OR_RETURN(PackedConvolutionWeight packed, describe(weight, geometry, packing));
  QX_ASSIGN_OR_RETURN(const int64_t size, size_of(packed));
  if (static_cast<int64_t>(storage.size()) < size || storage.data() == nullptr) {
    return invalid_argument("storage: expected " + std::to_string(size) + " floats for weight " + weight.to_string() +
                            ", got " + std::to_string(storage.size()));
  }
  QX_ASSIGN_OR_RETURN(const TensorView target,
                      TensorView::contiguous(storage.data(), DType::kFloat32, std::span(&size, 1)));
  if (may_overlap(weight, target)) {
    return invalid_argument("storage: overlaps weight " + weight.to_string() + " in memory; expected a buffer apart");
  }
  const Header header = header_of(packed);
  std::memcpy(storage.data(), &header, sizeof(header));
  packed.data = storage.data() + kHeaderFloats;
  float* elements = storage.data() + kHeaderFloats;
  switch (packed.form) {
    case ConvolutionForm::kPanels: pack_panels_of(weight, packed, elements); break;
    case ConvolutionForm::kDepthwise: pack_depthwise(weight, packed, elements); break;
    case ConvolutionForm::kWinograd:
      QX_RETURN_IF_ERROR(
          pack_winograd(weight, packed, storage.subspan(kHeaderFloats, static_cast<size_t>(size - kHeaderFloats))));
      break;
  }
  return packed;
}

Result<PackedConvolutionWeight> read_packed_convolution_weight(std::span<const float> storage) {
  Header header{};
  if (storage.size() >= kHeaderFloats) std::memcpy(&header, storage.data(), sizeof(header));
  if (!is_plausible(header)) {
    return invalid_argument("packed: expected what pack_convolution_weight wrote, got " +
                            std::to_string(storage.size()) + " other floats");
  }
  PackedConvolutionWeight weight;
  weight.data = storage.data() + kHeaderFloats;
  weight.form = static_cast<ConvolutionForm>(header.form);
  weight.in_channels = header.in_channels;
  weight.out_channels = header.out_channels;
  weight.groups = header.groups;
  weight.transposed = header.transposed != 0;
  weight.num_spatial_dims = static_cast<int>(header.num_spatial_dims);
  for (int i = 0; i < kMaxSpatialDims; ++i) weight.kernel[i] = header.kernel[i];
  weight.winograd_tile = header.winograd_tile;
  QX_ASSIGN_OR_RETURN(const int64_t size, size_of(weight));
  if (static_cast<int64_t>(storage.size()) < size) {
    return invalid_argument("packed: expected " + std::to_string(size) + " floats, got " +
                            std::to_string(storage.size()));
  }
  return weight;
}

}  // namespace qx::kernels
