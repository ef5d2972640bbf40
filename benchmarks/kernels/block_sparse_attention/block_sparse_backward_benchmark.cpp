// The backward pass of block-sparse attention, with every block and with every fourth.
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "quincunx/kernels/block_sparse_attention/block_sparse_backward.h"

namespace {

using qx::TensorView;

constexpr int64_t kHeads = 2, kLength = 2048, kBlock = 128, kBlocks = kLength / kBlock, kHeadDim = 128;

void BM_BlockSparseBackward(benchmark::State& state) {
  const int64_t step = state.range(0), kept = kBlocks / step;
  const int64_t shape[] = {1, kHeads, kLength, kHeadDim};
  std::vector<float> memory[8], lse(kHeads * kLength);
  std::vector<TensorView> views;
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  for (auto& m : memory) {
    m.resize(kHeads * kLength * kHeadDim);
    for (float& value : m) value = normal(generator);
    views.push_back(TensorView::contiguous(m.data(), qx::DType::kFloat32, shape).value());
  }
  std::vector<int64_t> idx, num(kHeads * kBlocks, kept);
  for (int64_t list = 0; list < kHeads * kBlocks; ++list) {
    for (int64_t i = 0; i < kept; ++i) idx.push_back(i * step + list % step);
  }
  const std::vector<int64_t> starts = qx::kernels::uniform_block_starts(kLength, kBlock);
  const int64_t idx_shape[] = {1, kHeads, kBlocks, kept};
  qx::kernels::BlockSparseOptions options;
  options.attention.log_sum_exp = TensorView::contiguous(lse.data(), qx::DType::kFloat32, std::span(shape, 3)).value();
  options.query_starts = options.key_starts = starts;
  options.select_idx = TensorView::contiguous(idx.data(), qx::DType::kInt64, idx_shape).value();
  options.select_num_idx = TensorView::contiguous(num.data(), qx::DType::kInt64, std::span(idx_shape, 3)).value();
  qx::Status status = qx::kernels::block_sparse_attention(views[0], views[1], views[2], options, views[3]);
  for (auto _ : state) {
    if (!status.ok()) state.SkipWithError(status.message().c_str());
    status = qx::kernels::block_sparse_attention_backward({views[0], views[1], views[2], views[3]}, options, {views[4]},
                                                          {views[5], views[6], views[7]});
  }
}
BENCHMARK(BM_BlockSparseBackward)->Args({1})->Args({4})->ArgNames({"step"})->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
