// Copies into memory that another core reads next. An ordinary store first takes its line from the cache of the reader:
// fast where both cores share a cache, ten times slower than a copy within one where they do not (other sockets, or
// parts of one processor). Stores that go past the caches cost the same everywhere. Which is cheaper is seen from the
// copies themselves, since the system may move either process to another core.
#pragma once

#include <cstddef>
#include <cstdint>

namespace qx::collectives {

enum class Stores : uint8_t { kOrdinary, kStreaming };

// Chooses by what the copies have cost. Some go the other way, to try: the fewer, the more such trials were in vain.
class CheaperStores {
 public:
  static constexpr int kFirstTrial = 8, kLastPause = 512;  // in copies

  // Those of the next copy.
  Stores next() const { return is_trial() ? other() : chosen_; }
  // What it has cost, in any unit of time a byte.
  void record(double cost);

 private:
  bool is_trial() const { return num_left_ == 0; }
  Stores other() const { return chosen_ == Stores::kOrdinary ? Stores::kStreaming : Stores::kOrdinary; }

  Stores chosen_ = Stores::kOrdinary;
  double cost_ = 0.0;  // of the chosen one; 0: unknown
  int pause_ = kFirstTrial;
  int num_left_ = kFirstTrial;  // copies before the next trial
};

// memcpy by these stores. What was copied is visible to whoever sees a later atomic store of this thread.
void copy_by(Stores stores, std::byte* destination, const std::byte* source, size_t size);

class RingCopy {
 public:
  void operator()(std::byte* destination, const std::byte* source, size_t size);

 private:
  CheaperStores stores_;
};

}  // namespace qx::collectives
