// finish_output: the epilogue as a pass of its own.
#include <gtest/gtest.h>

#include "kernels/convolution/random_convolution.h"
#include "kernels/dispatch_targets.h"
#include "quincunx/kernels/convolution/convolution_problem.h"

namespace qx::kernels {
namespace {

TEST(FinishOutput, AppliesScaleBiasActivationAndResidualToEveryChannel) {
  for_each_dispatch_target([] {
    for (const int64_t channels : {1, 4, 16, 21}) {
      const std::vector<int64_t> shape = {2, channels, 3, 5};
      std::vector<float> sums = normal_values(count_of(shape), 1), residual = normal_values(count_of(shape), 2);
      const std::vector<float> before = sums;
      const std::vector<float> scale = normal_values(channels, 3), bias = normal_values(channels, 4);
      ConvolutionProblem problem;
      problem.images = 2;
      problem.out_channels = channels;
      problem.out = {1, 3, 5};
      problem.output = sums.data();
      problem.output_layout = channels_last_layout(channels, problem.out);
      problem.epilogue.scale = scale.data();
      problem.epilogue.bias = bias.data();
      problem.epilogue.residual = residual.data();
      problem.epilogue.residual_layout = problem.output_layout;
      problem.epilogue.activation = ConvolutionActivation::kRelu;
      finish_output(problem);
      for (size_t i = 0; i < sums.size(); ++i) {
        const size_t c = i % static_cast<size_t>(channels);
        EXPECT_FLOAT_EQ(sums[i], std::max(0.0f, before[i] * scale[c] + bias[c]) + residual[i]) << i;
      }
    }
  });
}

}  // namespace
}  // namespace qx::kernels
