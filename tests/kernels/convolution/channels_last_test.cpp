#include "quincunx/kernels/convolution/channels_last.h"

#include <gtest/gtest.h>

#include "kernels/convolution/random_convolution.h"
#include "kernels/dispatch_targets.h"

namespace qx::kernels {
namespace {

int64_t offset(const ImageLayout& layout, int64_t image, int64_t channel, int64_t z, int64_t y, int64_t x) {
  return image * layout.image_stride + channel * layout.channel_stride + z * layout.strides[0] + y * layout.strides[1] +
         x * layout.strides[2];
}

void expect_copied(int64_t channels, const SpatialSizes& sizes, bool from_last, bool to_last, int64_t gap) {
  const std::vector<int64_t> shape = {2, channels, sizes[0], sizes[1], sizes[2]};
  std::vector<float> source = normal_values(count_of(shape) + 2 * gap * channels * sizes[0] * sizes[1], 1);
  std::vector<float> target(source.size(), 5.0f);
  const auto layout = [&](bool channels_last) {
    return layout_of(strided_view(source.data(), DType::kFloat32, shape, strides_of(shape, channels_last)));
  };
  ImageLayout from = layout(from_last);
  if (gap > 0) {  // lines that do not touch
    from = {channels * sizes[0] * sizes[1] * (sizes[2] + gap),
            sizes[0] * sizes[1] * (sizes[2] + gap),
            {sizes[1] * (sizes[2] + gap), sizes[2] + gap, 1}};
  }
  const ImageLayout to = layout(to_last);
  copy_images(2, channels, sizes, source.data(), from, target.data(), to);
  for (int64_t i = 0; i < count_of(shape); ++i) {
    const int64_t x = i % sizes[2], y = i / sizes[2] % sizes[1], z = i / (sizes[2] * sizes[1]) % sizes[0];
    const int64_t channel = i / (sizes[0] * sizes[1] * sizes[2]) % channels;
    const int64_t image = i / (sizes[0] * sizes[1] * sizes[2] * channels);
    ASSERT_EQ(target[static_cast<size_t>(offset(to, image, channel, z, y, x))],
              source[static_cast<size_t>(offset(from, image, channel, z, y, x))])
        << channel << ", " << z << ", " << y << ", " << x;
  }
}

TEST(CopyImages, MovesEveryElementBetweenAllLayouts) {
  for_each_dispatch_target([] {
    for (const int64_t channels : {1, 3, 4, 17, 64}) {
      for (const SpatialSizes& sizes : {SpatialSizes{1, 1, 1}, SpatialSizes{1, 5, 7}, SpatialSizes{3, 4, 16}}) {
        for (const bool from_last : {false, true}) {
          for (const bool to_last : {false, true}) expect_copied(channels, sizes, from_last, to_last, 0);
        }
        expect_copied(channels, sizes, false, true, 2);
      }
    }
  });
}

// As torch's expand() gives them: step 0 along lines, planes or all of it.
TEST(CopyImages, RepeatsExpandedPixels) {
  const SpatialSizes sizes = {2, 3, 4};
  const std::vector<float> source = normal_values(2 * 5 * 24, 2);
  const std::vector<int64_t> shape = {2, 5, 2, 3, 4};
  for (const SpatialSizes& steps : {SpatialSizes{3, 1, 0}, SpatialSizes{4, 0, 1}, SpatialSizes{0, 4, 1},
                                    SpatialSizes{0, 0, 1}, SpatialSizes{0, 1, 0}, SpatialSizes{0, 0, 0}}) {
    const ImageLayout from = {120, 24, steps};
    for (const bool to_last : {false, true}) {
      std::vector<float> target(source.size());
      const TensorView view = strided_view(target.data(), DType::kFloat32, shape, strides_of(shape, to_last));
      const ImageLayout to = layout_of(view);
      copy_images(2, 5, sizes, source.data(), from, target.data(), to);
      for (int64_t i = 0; i < count_of(shape); ++i) {
        const int64_t image = i / 120, channel = i / 24 % 5, z = i / 12 % 2, y = i / 4 % 3, x = i % 4;
        ASSERT_EQ(target[static_cast<size_t>(offset(to, image, channel, z, y, x))],
                  source[static_cast<size_t>(offset(from, image, channel, z, y, x))])
            << channel << ", " << z << ", " << y << ", " << x;
      }
    }
  }
}

}  // namespace
}  // namespace qx::kernels
