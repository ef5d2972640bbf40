// Who holds which bytes of activations when: recorded on request, at no cost but a flag otherwise.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace qx::activation {

enum class Holder {
  kSaved,       // results that a policy keeps in memory
  kSwapBuffer,  // in memory on their way to a file, or read back from it
  kSwapped,     // in a file
  kRecomputed,  // brought back by a replay
  kAutograd,    // what autograd would hold in place of all of these
};
constexpr size_t kNumHolders = 5;

struct TimelineEvent {
  int64_t nanoseconds;  // of the steady clock
  Holder holder;
  int64_t live_bytes;  // what it holds from then on
};

// All functions may be called from any thread.
class Timeline : public std::enable_shared_from_this<Timeline> {
 public:
  // At most one records at a time; false where another one does.
  bool start();
  void stop();
  std::vector<TimelineEvent> events() const;

 private:
  friend class HeldBytes;
  void add(Holder holder, int64_t num_bytes);

  mutable std::mutex mutex_;
  std::array<int64_t, kNumHolders> live_bytes_{};
  std::vector<TimelineEvent> events_;
};

// Counted in the timeline that recorded when it was made, for as long as it lives.
class HeldBytes {
 public:
  // Null where nothing records.
  static std::shared_ptr<HeldBytes> make(Holder holder, int64_t num_bytes);
  HeldBytes(std::shared_ptr<Timeline> timeline, Holder holder, int64_t num_bytes);
  ~HeldBytes();
  HeldBytes(const HeldBytes&) = delete;
  HeldBytes& operator=(const HeldBytes&) = delete;

 private:
  const std::shared_ptr<Timeline> timeline_;
  const Holder holder_;
  const int64_t num_bytes_;
};

}  // namespace qx::activation
