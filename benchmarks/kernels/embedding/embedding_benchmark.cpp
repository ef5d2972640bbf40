// Rows of a table of 32,000 x 512, one by one and in bags of eight.
#include <benchmark/benchmark.h>

#include <vector>

#include "quincunx/kernels/embedding/embedding.h"

namespace {

using qx::DType;
using qx::TensorView;

void BM_Embedding(benchmark::State& state) {
  constexpr int64_t kVocabulary = 32000, kWidth = 512, kBag = 8;
  const int64_t count = state.range(1);
  std::vector<float> table(kVocabulary * kWidth, 1.0f), y(static_cast<size_t>(count * kWidth));
  std::vector<int64_t> indices, offsets;
  for (int64_t i = 0; i < count; ++i) indices.push_back(i * 7919 % kVocabulary);
  for (int64_t i = 0; i < count; i += kBag) offsets.push_back(i);
  const int64_t bags = count / kBag;
  const int64_t table_shape[] = {kVocabulary, kWidth}, index_shape[] = {count}, bag_shape[] = {bags};
  const int64_t shape[] = {state.range(0) == 0 ? count : bags, kWidth};
  const auto rows = TensorView::contiguous(table.data(), DType::kFloat32, table_shape).value();
  const auto picked = TensorView::contiguous(indices.data(), DType::kInt64, index_shape).value();
  const auto starts = TensorView::contiguous(offsets.data(), DType::kInt64, bag_shape).value();
  const auto output = TensorView::contiguous(y.data(), DType::kFloat32, shape).value();
  for (auto _ : state) {
    const qx::Status status =
        state.range(0) == 0 ? qx::kernels::embedding(rows, picked, output)
                            : qx::kernels::embedding_bag(rows, picked, starts, qx::kernels::BagMode::kSum, output);
    if (!status.ok()) state.SkipWithError(status.message().c_str());
  }
  state.SetLabel(state.range(0) == 0 ? "lookup" : "bags of 8");
  state.SetBytesProcessed(state.iterations() * count * kWidth * 4);
}
BENCHMARK(BM_Embedding)->ArgsProduct({{0, 1}, {64, 16384}})->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
