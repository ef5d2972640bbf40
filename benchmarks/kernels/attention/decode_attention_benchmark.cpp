// Decode attention over caches that fit no cache: bytes a second of keys and values.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "quincunx/kernels/attention/decode_attention.h"

namespace {

using qx::DType;
using qx::TensorView;

constexpr int64_t kKeyHeads = 8, kPage = 16;

// Sixteen million elements of keys and as many of values.
void BM_DecodeAttention(benchmark::State& state) {
  const int64_t head_dim = state.range(0), group = state.range(1), is_paged = state.range(3);
  const DType dtype = state.range(2) != 0 ? DType::kBFloat16 : DType::kFloat32;
  const int64_t length = (int64_t{1} << 24) / (kKeyHeads * head_dim), pages = length / kPage;
  std::vector<float> query(static_cast<size_t>(kKeyHeads * group * head_dim), 0.1f), output(query.size());
  std::vector<uint16_t> memory[2];
  std::mt19937 generator(1);
  for (auto& m : memory) {
    m.resize(static_cast<size_t>(kKeyHeads * length * head_dim * (dtype == DType::kFloat32 ? 2 : 1)));
    // Small numbers in either format.
    for (auto& bits : m) bits = static_cast<uint16_t>(0x3c00 | (generator() & 0x80ff));
  }
  const int64_t query_shape[] = {1, kKeyHeads * group, 1, head_dim};
  const int64_t shape[] = {1, kKeyHeads, length, head_dim}, page_shape[] = {pages, kKeyHeads, kPage, head_dim};
  const int64_t table_shape[] = {1, pages};
  std::vector<int32_t> table(static_cast<size_t>(pages));
  std::iota(table.begin(), table.end(), 0);
  std::shuffle(table.begin(), table.end(), generator);
  const TensorView q = TensorView::contiguous(query.data(), DType::kFloat32, query_shape).value();
  const TensorView out = TensorView::contiguous(output.data(), DType::kFloat32, query_shape).value();
  const auto view = [&](size_t i) {
    return TensorView::contiguous(memory[i].data(), dtype, is_paged ? page_shape : shape).value();
  };
  const qx::kernels::PagedCache cache{view(0), view(1),
                                      TensorView::contiguous(table.data(), DType::kInt32, table_shape).value()};
  qx::kernels::DecodeAttentionOptions options;
  options.key_lengths = {&length, 1};
  for (auto _ : state) {
    const qx::Status status = is_paged ? qx::kernels::paged_decode_attention(q, cache, options, out)
                                       : qx::kernels::decode_attention(q, cache.keys, cache.values, options, out);
    if (!status.ok()) state.SkipWithError(status.message().c_str());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(4 * memory[0].size()));
}
BENCHMARK(BM_DecodeAttention)
    ->ArgsProduct({{64, 128}, {1, 4}, {0, 1}, {0, 1}})
    ->ArgNames({"head_dim", "group", "bf16", "paged"})
    ->UseRealTime();

// The bound: a sum over as many bytes.
void BM_Read(benchmark::State& state) {
  std::vector<uint64_t> memory(size_t{1} << 24);
  for (auto _ : state) {
    uint64_t sum = 0;
    for (const uint64_t value : memory) sum += value;
    benchmark::DoNotOptimize(sum);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(8 * memory.size()));
}
BENCHMARK(BM_Read)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
