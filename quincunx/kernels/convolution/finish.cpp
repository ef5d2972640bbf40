// The epilogue as a pass of its own, for algorithms that know only part of it.
#include <algorithm>

#include "quincunx/kernels/convolution/convolution_problem.h"
#include "quincunx/parallel/parallel_for.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quincunx/kernels/convolution/finish.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "quincunx/kernels/convolution/epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qx::kernels {
namespace HWY_NAMESPACE {

// Output line `line` of all images.
void FinishLine(const ConvolutionProblem& problem, int64_t line) {
  const int64_t y = line % problem.out[1];
  const int64_t z = line / problem.out[1] % problem.out[0];
  const int64_t image = line / (problem.out[1] * problem.out[0]);
  const auto start = [&](const ImageLayout& layout) HWY_ATTR {
    return image * layout.image_stride + z * layout.strides[0] + y * layout.strides[1];
  };
  const ConvolutionEpilogue& epilogue = problem.epilogue;
  float* row = problem.output + start(problem.output_layout);
  RowOperands operands{epilogue.scale, epilogue.bias, nullptr};
  if (epilogue.residual != nullptr) operands.residual = epilogue.residual + start(epilogue.residual_layout);
  const FinishRowFunction finish = FinishRowFor(epilogue.activation);
  for (int64_t x = 0; x < problem.out[2]; ++x) {
    finish(epilogue, operands, problem.out_channels, row);
    row += problem.output_layout.strides[2];
    if (operands.residual != nullptr) operands.residual += epilogue.residual_layout.strides[2];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qx::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qx::kernels {

HWY_EXPORT(FinishLine);

void finish_output(const ConvolutionProblem& problem) {
  const int64_t lines = problem.images * problem.out[0] * problem.out[1];
  const int64_t grain = std::max<int64_t>(1, 4096 / (problem.out[2] * problem.out_channels));
  parallel_for(0, lines, grain, [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) HWY_DYNAMIC_DISPATCH(FinishLine)(problem, line);
  });
}

}  // namespace qx::kernels
#endif  // HWY_ONCE
