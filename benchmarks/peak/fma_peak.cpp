// The fused multiply-adds that this machine does at this moment: `qx bench` reads it before and after each timed row to
// notice that something else runs. A library of its own, called through ctypes.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "benchmarks/peak/fma_peak.cpp"
#include <hwy/foreach_target.h>  // NOLINT(misc-header-include-cycle)
#include <hwy/highway.h>

#ifndef QX_BENCHMARKS_PEAK_ONCE
#define QX_BENCHMARKS_PEAK_ONCE
#include <chrono>
#include <cstdint>
#include <latch>
#include <thread>
#include <vector>

namespace qx::peak {
// Long enough to be timed well, short enough that one preemption shows.
constexpr int64_t kIterationsABlock = 4096;
constexpr int64_t kChains = 12;  // Two multiply-adds of a latency of four cycles start in each cycle.
constexpr int kMaxThreads = 1024;
}  // namespace qx::peak
#endif

HWY_BEFORE_NAMESPACE();
namespace qx::peak::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Returns the operations done. The sums are named and not an array, which some compilers keep in memory.
double MultiplyAddBlock(float* sink) {
  const hn::ScalableTag<float> d;
  const auto factor = hn::Set(d, 0.999f);
  const auto term = hn::Set(d, *sink);
  auto s0 = term, s1 = term, s2 = term, s3 = term, s4 = term, s5 = term;
  auto s6 = term, s7 = term, s8 = term, s9 = term, s10 = term, s11 = term;
  for (int64_t i = 0; i < kIterationsABlock; ++i) {
    s0 = hn::MulAdd(s0, factor, term);
    s1 = hn::MulAdd(s1, factor, term);
    s2 = hn::MulAdd(s2, factor, term);
    s3 = hn::MulAdd(s3, factor, term);
    s4 = hn::MulAdd(s4, factor, term);
    s5 = hn::MulAdd(s5, factor, term);
    s6 = hn::MulAdd(s6, factor, term);
    s7 = hn::MulAdd(s7, factor, term);
    s8 = hn::MulAdd(s8, factor, term);
    s9 = hn::MulAdd(s9, factor, term);
    s10 = hn::MulAdd(s10, factor, term);
    s11 = hn::MulAdd(s11, factor, term);
  }
  const auto low = hn::Add(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), hn::Add(s4, s5));
  const auto high = hn::Add(hn::Add(hn::Add(s6, s7), hn::Add(s8, s9)), hn::Add(s10, s11));
  // At most 12 * 1000 terms: a result of zero or NaN is impossible, but the compiler does not know.
  const float total = hn::GetLane(hn::SumOfLanes(d, hn::Add(low, high)));
  if (!(total > 0.0f)) *sink = total;
  return 2.0 * static_cast<double>(kIterationsABlock * kChains) * static_cast<double>(hn::Lanes(d));
}

}  // namespace qx::peak::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qx::peak {
namespace {

HWY_EXPORT(MultiplyAddBlock);

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Operations a second of one thread over `seconds`.
double rate_of_thread(double seconds) {
  float sink = 0.001f;
  double operations = 0;
  const Clock::time_point start = Clock::now();
  double elapsed = 0;
  do {
    operations += HWY_DYNAMIC_DISPATCH(MultiplyAddBlock)(&sink);
    elapsed = seconds_since(start);
  } while (elapsed < seconds);
  return operations / elapsed;
}

}  // namespace
}  // namespace qx::peak

// GFLOP/s of `threads` threads at once over about `seconds`; negative where an argument is out of range.
extern "C" __attribute__((visibility("default"))) double qx_fma_peak_gflops(int threads, double seconds) {
  if (threads < 1 || threads > qx::peak::kMaxThreads || !(seconds > 0)) return -1.0;
  std::vector<double> rates(static_cast<size_t>(threads), 0.0);
  std::latch all_started(threads);
  std::vector<std::thread> workers;
  workers.reserve(rates.size());
  for (double& rate : rates) {
    workers.emplace_back([&rate, &all_started, seconds] {
      all_started.arrive_and_wait();
      rate = qx::peak::rate_of_thread(seconds);
    });
  }
  for (std::thread& worker : workers) worker.join();
  double total = 0;
  for (const double rate : rates) total += rate;
  return total * 1e-9;
}
#endif  // HWY_ONCE
