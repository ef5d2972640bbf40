// A virtual clock and what is to happen: for planning jobs of thousands of ranks on one machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace qx::planning {

// Events of a small, trivially copyable type, in order of time; those of one time in the order in which they were
// scheduled, so that runs repeat exactly. A heap of four children a node: events are large against the time of a
// comparison, and half as many moves are made as with two. No memory is allocated for an event.
template <typename Event>
class EventQueue {
 public:
  // Nanoseconds since the start.
  int64_t now() const { return now_; }
  bool empty() const { return heap_.empty(); }
  size_t size() const { return heap_.size(); }
  uint64_t num_popped() const { return num_popped_; }

  // Of the first event. The queue must not be empty.
  int64_t next_time() const { return heap_.front().time; }
  // No event may be due before.
  void advance_to(int64_t time) {
    if (time > now_) now_ = time;
  }

  // A time that has passed is now.
  void schedule(int64_t time, const Event& event) {
    heap_.push_back({time < now_ ? now_ : time, next_sequence_++, event});
    rise(heap_.size() - 1);
  }

  // The queue must not be empty. The clock goes on to the event's time.
  Event pop() {
    const Entry top = heap_.front();
    now_ = top.time;
    ++num_popped_;
    const Entry last = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) sink(last);
    return top.event;
  }

 private:
  struct Entry {
    int64_t time;
    uint64_t sequence;
    Event event;
    bool operator<(const Entry& other) const {
      return time != other.time ? time < other.time : sequence < other.sequence;
    }
  };
  static constexpr size_t kChildren = 4;

  void rise(size_t at) {
    const Entry entry = heap_[at];
    while (at > 0) {
      const size_t parent = (at - 1) / kChildren;
      if (!(entry < heap_[parent])) break;
      heap_[at] = heap_[parent];
      at = parent;
    }
    heap_[at] = entry;
  }

  void sink(const Entry& entry) {
    size_t at = 0;
    for (;;) {
      const size_t first = at * kChildren + 1;
      if (first >= heap_.size()) break;
      size_t least = first;
      const size_t end = first + kChildren < heap_.size() ? first + kChildren : heap_.size();
      for (size_t child = first + 1; child < end; ++child) {
        if (heap_[child] < heap_[least]) least = child;
      }
      if (!(heap_[least] < entry)) break;
      heap_[at] = heap_[least];
      at = least;
    }
    heap_[at] = entry;
  }

  std::vector<Entry> heap_;
  int64_t now_ = 0;
  uint64_t next_sequence_ = 0;
  uint64_t num_popped_ = 0;
};

// splitmix64: the same numbers for the same seed on every machine.
class SimulationRandom {
 public:
  explicit SimulationRandom(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t bits = state_ += 0x9e3779b97f4a7c15;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
    return bits ^ (bits >> 31);
  }
  // In [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

 private:
  uint64_t state_;
};

}  // namespace qx::planning
