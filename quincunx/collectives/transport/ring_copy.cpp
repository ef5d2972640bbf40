#include "quincunx/collectives/transport/ring_copy.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace qx::collectives {
namespace {

// Smaller ones, calls and headers among them, stay in the caches: their reader waits for them.
constexpr size_t kLeastTimed = 16 << 10;
// A copy that was interrupted costs more than others like it: the least of the last ones counts.
constexpr double kForget = 1.25;
// How much cheaper a trial must have been.
constexpr double kWorthwhile = 0.8;

#if defined(__x86_64__)
constexpr size_t kLineBytes = 64;

void stream(std::byte* destination, const std::byte* source, size_t size) {
  const size_t unaligned = -reinterpret_cast<uintptr_t>(destination) % kLineBytes;
  const size_t head = std::min(size, unaligned);
  std::memcpy(destination, source, head);
  const size_t end = head + (size - head) / kLineBytes * kLineBytes;
  for (size_t i = head; i < end; i += kLineBytes) {
    const auto* from = reinterpret_cast<const __m128i*>(source + i);
    auto* to = reinterpret_cast<__m128i*>(destination + i);
    const __m128i line[] = {_mm_loadu_si128(from), _mm_loadu_si128(from + 1), _mm_loadu_si128(from + 2),
                            _mm_loadu_si128(from + 3)};
    for (int part = 0; part < 4; ++part) _mm_stream_si128(to + part, line[part]);
  }
  std::memcpy(destination + end, source + end, size - end);
  _mm_sfence();  // streaming stores are not ordered by a release
}
#endif

}  // namespace

void CheaperStores::record(double cost) {
  if (is_trial()) {
    const bool was_cheaper = cost < kWorthwhile * cost_;
    pause_ = was_cheaper ? kFirstTrial : std::min(2 * pause_, kLastPause);
    num_left_ = pause_;
    if (was_cheaper) {
      chosen_ = other();
      cost_ = cost;
    }
    return;
  }
  --num_left_;
  cost_ = cost_ == 0.0 ? cost : std::min(cost, kForget * cost_);
}

void copy_by(Stores stores, std::byte* destination, const std::byte* source, size_t size) {
  if (size == 0) return;
#if defined(__x86_64__)
  if (stores == Stores::kStreaming) return stream(destination, source, size);
#else
  static_cast<void>(stores);
#endif
  std::memcpy(destination, source, size);
}

void RingCopy::operator()(std::byte* destination, const std::byte* source, size_t size) {
  if (size < kLeastTimed) return copy_by(Stores::kOrdinary, destination, source, size);
  const auto start = std::chrono::steady_clock::now();
  copy_by(stores_.next(), destination, source, size);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  stores_.record(elapsed.count() / static_cast<double>(size));
}

}  // namespace qx::collectives
