// Reads an array as fast as this machine can: the bound of kernels that read each weight once. Called through ctypes.
#include <cstdint>
#include <thread>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "benchmarks/peak/read_bandwidth.cpp"
#include <hwy/foreach_target.h>  // NOLINT(misc-header-include-cycle)
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace qx::peak::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The largest bit pattern: an operation a vector, so that reading alone takes time.
uint32_t LargestOf(const uint32_t* data, int64_t count) {
  const hn::ScalableTag<uint32_t> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int64_t kLine = 16;       // words of a cache line
  constexpr int64_t kAhead = 4 << 8;  // words, 4 KiB: what served best on a Zen 4 core
  auto m0 = hn::Zero(d), m1 = hn::Zero(d), m2 = hn::Zero(d), m3 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    for (int64_t line = 0; line < 4 * lanes; line += kLine) __builtin_prefetch(data + i + kAhead + line);
    m0 = hn::Max(m0, hn::LoadU(d, data + i));
    m1 = hn::Max(m1, hn::LoadU(d, data + i + lanes));
    m2 = hn::Max(m2, hn::LoadU(d, data + i + 2 * lanes));
    m3 = hn::Max(m3, hn::LoadU(d, data + i + 3 * lanes));
  }
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(m0, m1), hn::Max(m2, m3))));
}

}  // namespace qx::peak::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qx::peak {
HWY_EXPORT(LargestOf);
}

// Reads `count` words on `threads` threads; returns something that depends on them, 0 for bad arguments.
extern "C" __attribute__((visibility("default"))) uint32_t qx_read_words(const uint32_t* data, int64_t count,
                                                                         int threads) {
  constexpr int kMaxThreads = 1024;
  if (data == nullptr || count < 0 || threads < 1 || threads > kMaxThreads) return 0;
  std::vector<uint32_t> largest(static_cast<size_t>(threads));
  const auto read = [&](int part) {
    const int64_t begin = count * part / threads;
    largest[static_cast<size_t>(part)] =
        HWY_DYNAMIC_DISPATCH(qx::peak::LargestOf)(data + begin, count * (part + 1) / threads - begin);
  };
  std::vector<std::thread> workers;
  for (int part = 1; part < threads; ++part) workers.emplace_back(read, part);
  read(0);
  for (std::thread& worker : workers) worker.join();
  uint32_t all = 0;
  for (const uint32_t one : largest) all |= one;
  return all;
}
#endif  // HWY_ONCE
