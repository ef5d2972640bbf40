// Videos in chunks: previous_frames and next_frames.
#include <gtest/gtest.h>

#include "kernels/convolution/random_convolution.h"
#include "kernels/dispatch_targets.h"
#include "quincunx/kernels/convolution/convolution.h"

namespace qx::kernels {
namespace {

constexpr int64_t kFrames = 7, kHeight = 6, kWidth = 5;

ConvolutionOptions causal_options(int64_t groups) {
  ConvolutionOptions options;
  options.geometry.padding_before = {2, 1, 1};
  options.geometry.padding_after = {0, 1, 1};
  options.geometry.groups = groups;
  return options;
}

std::vector<int64_t> video(int64_t channels, int64_t frames) { return {1, channels, frames, kHeight, kWidth}; }

// Runs `chunks` of frames one after another and returns all outputs in the order of one run.
std::vector<float> run_chunks(std::vector<float>& input, const PackedConvolutionWeight& packed,
                              ConvolutionOptions options, const std::vector<int64_t>& chunks) {
  const TensorView all_in = f32_view(input, video(packed.in_channels, kFrames));
  std::vector<float> output(static_cast<size_t>(packed.out_channels * kFrames * kHeight * kWidth));
  const TensorView all_out = f32_view(output, video(packed.out_channels, kFrames));
  std::vector<float> carried(static_cast<size_t>(count_of(video(packed.in_channels, 2))), 9.0f), next = carried;
  const TensorView carried_view = f32_view(carried, video(packed.in_channels, 2));
  int64_t first = 0;
  for (const int64_t frames : chunks) {
    const TensorView x = all_in.slice(2, first, first + frames).value();
    const TensorView y = all_out.slice(2, first, first + frames).value();
    options.previous_frames = first > 0 ? &carried_view : nullptr;
    EXPECT_TRUE(convolution(x, packed, y, options).ok());
    EXPECT_TRUE(next_frames(options.previous_frames, x, f32_view(next, video(packed.in_channels, 2))).ok());
    carried = next;
    first += frames;
  }
  return output;
}

TEST(CausalConvolution, ChunksGiveTheBitsOfTheWhole) {
  struct Network {
    int64_t in, out, groups;
    bool exact;
  };
  for_each_dispatch_target([] {
    for (const Network& n :
         {Network{3, 20, 1, true}, {18, 17, 1, true}, {6, 6, 6, true}, {40, 64, 1, false}, {1024, 32, 1, true}}) {
      std::vector<float> input = normal_values(count_of(video(n.in, kFrames)), 1);
      std::vector<float> weight = normal_values(n.out * n.in / n.groups * 27, 2);
      const TensorView w = f32_view(weight, {n.out, n.in / n.groups, 3, 3, 3});
      const ConvolutionOptions options = causal_options(n.groups);
      const ConvolutionPacking packing{.exact = n.exact, .typical_output = {0, 0, 0}};
      std::vector<float> storage(
          static_cast<size_t>(packed_convolution_weight_size(w, options.geometry, packing).value()));
      const auto packed = pack_convolution_weight(w, options.geometry, storage, packing).value();
      const std::vector<float> whole = run_chunks(input, packed, options, {kFrames});
      EXPECT_EQ(run_chunks(input, packed, options, {1, 1, 4, 1}), whole) << n.in;
      EXPECT_EQ(run_chunks(input, packed, options, {3, 4}), whole) << n.in;
    }
  });
}

TEST(CausalConvolution, LooksAtNoLaterFrame) {
  std::vector<float> input = normal_values(count_of(video(4, kFrames)), 1), weight = normal_values(5 * 4 * 27, 2);
  std::vector<float> before(5 * kFrames * kHeight * kWidth), after = before;
  const TensorView w = f32_view(weight, {5, 4, 3, 3, 3});
  ASSERT_TRUE(
      convolution(f32_view(input, video(4, kFrames)), w, f32_view(before, video(5, kFrames)), causal_options(1)).ok());
  input[kFrames * kHeight * kWidth - 1] = 100;  // the last frame of the first channel
  ASSERT_TRUE(
      convolution(f32_view(input, video(4, kFrames)), w, f32_view(after, video(5, kFrames)), causal_options(1)).ok());
  for (size_t i = 0; i < before.size(); ++i) {
    const bool is_last = i / (kHeight * kWidth) % kFrames == kFrames - 1;
    if (!is_last) {
      EXPECT_EQ(before[i], after[i]);
    }
  }
  EXPECT_NE(before, after);
}

TEST(CausalConvolution, NextFramesReachBackAndStartWithZeros) {
  std::vector<float> first = {1, 2}, second = {3}, next(4, 9.0f);
  const TensorView x = f32_view(first, {1, 1, 2, 1, 1}), y = f32_view(second, {1, 1, 1, 1, 1});
  ASSERT_TRUE(next_frames(&x, y, f32_view(next, {1, 1, 4, 1, 1})).ok());
  EXPECT_EQ(next, (std::vector<float>{0, 1, 2, 3}));
  EXPECT_EQ(next_frames(&x, y, f32_view(next, {1, 2, 2, 1, 1})).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(next_frames(nullptr, x, x).code(), StatusCode::kInvalidArgument);
}

TEST(CausalConvolution, MoreFramesThanThePaddingAreRefused) {
  std::vector<float> values(1000);
  const TensorView x = f32_view(values, {1, 1, 3, 2, 2});
  std::vector<float> weight(27), output(12);
  ConvolutionOptions options = causal_options(1);
  options.previous_frames = &x;
  const Status status = convolution(x, f32_view(weight, {1, 1, 3, 3, 3}), f32_view(output, {1, 1, 3, 2, 2}), options);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("at most padding_before[0] = 2"), std::string::npos);
}

}  // namespace
}  // namespace qx::kernels
