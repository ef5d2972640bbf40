// Cross-entropy of 512 rows, forward and backward, for small and large vocabularies.
#include <benchmark/benchmark.h>

#include <vector>

#include "quincunx/kernels/cross_entropy/cross_entropy.h"

namespace {

using qx::DType;
using qx::TensorView;

void BM_CrossEntropy(benchmark::State& state) {
  constexpr int64_t kRows = 512;
  const int64_t classes = state.range(1);
  std::vector<float> x(static_cast<size_t>(kRows * classes)), gradient(x.size()), lse(kRows), loss(1, 1.0f);
  for (size_t i = 0; i < x.size(); ++i) x[i] = 0.01f * static_cast<float>(i % 1000);
  std::vector<int64_t> targets(kRows, 1);
  const int64_t shape[] = {kRows, classes}, rows[] = {kRows};
  const auto logits = TensorView::contiguous(x.data(), DType::kFloat32, shape).value();
  const auto output = TensorView::contiguous(gradient.data(), DType::kFloat32, shape).value();
  const auto sums = TensorView::contiguous(lse.data(), DType::kFloat32, rows).value();
  const auto picked = TensorView::contiguous(targets.data(), DType::kInt64, rows).value();
  const auto scalar = TensorView::contiguous(loss.data(), DType::kFloat32, {}).value();
  for (auto _ : state) {
    const qx::Status status = state.range(0) == 0
                                  ? qx::kernels::cross_entropy(logits, picked, {}, scalar, sums)
                                  : qx::kernels::cross_entropy_backward(logits, picked, sums, scalar, {}, output);
    if (!status.ok()) state.SkipWithError(status.message().c_str());
  }
  state.SetLabel(state.range(0) == 0 ? "forward" : "backward");
  state.SetBytesProcessed(state.iterations() * logits.size_bytes() * (state.range(0) + 1));
}
BENCHMARK(BM_CrossEntropy)->ArgsProduct({{0, 1}, {1000, 32000}})->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
