// One collective on one rank, with inputs that are a function of rank and place, and what must come out of it by plain
// loops in float64. Ranks are threads, each with buffers of its own.
#pragma once

#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "collectives/ranks.h"
#include "quincunx/collectives/call.h"

namespace qx::collectives::testing {

struct Property {
  Operation operation = Operation::kAllReduce;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  int64_t count = 1;  // elements a rank; rank r has count + r of them where the operation allows it
  bool uneven = false;
  bool allocated = false;  // by the backend
  bool in_place = false;   // the own part of the output is the input
  std::string to_string() const {
    return std::string(operation_name(operation)) + " of " + std::to_string(count) + " " +
           std::string(dtype_name(dtype)) + ", " + std::string(reduce_op_name(op)) + (uneven ? ", uneven" : "") +
           (allocated ? ", allocated" : "") + (in_place ? ", in place" : "");
  }
};

// Small whole numbers: exact in every dtype, and so are their sums over 33 ranks.
inline double value_of(int rank, int part, int64_t i) { return static_cast<double>((rank * 5 + part * 3 + i) % 7); }

template <typename T>
void store_as(void* data, int64_t i, T value) {
  std::memcpy(static_cast<char*>(data) + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}
template <typename T>
T load_as(const void* data, int64_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

inline void put(void* data, DType dtype, int64_t i, double value) {
  switch (dtype) {
    case DType::kFloat64: return store_as(data, i, value);
    case DType::kFloat32: return store_as(data, i, static_cast<float>(value));
    case DType::kInt64: return store_as(data, i, static_cast<int64_t>(value));
    case DType::kInt32: return store_as(data, i, static_cast<int32_t>(value));
    case DType::kUInt8: return store_as(data, i, static_cast<uint8_t>(value));
    default: {  // bfloat16: the upper half of a float, exact for small whole numbers
      const auto whole = static_cast<float>(value);
      uint32_t bits;
      std::memcpy(&bits, &whole, 4);
      return store_as(data, i, static_cast<uint16_t>(bits >> 16));
    }
  }
}

inline double get(const void* data, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::kFloat64: return load_as<double>(data, i);
    case DType::kFloat32: return load_as<float>(data, i);
    case DType::kInt64: return static_cast<double>(load_as<int64_t>(data, i));
    case DType::kInt32: return load_as<int32_t>(data, i);
    case DType::kUInt8: return load_as<uint8_t>(data, i);
    default: {
      const uint32_t bits = uint32_t{load_as<uint16_t>(data, i)} << 16;
      float value;
      std::memcpy(&value, &bits, 4);
      return value;
    }
  }
}

// The buffers of one rank for one call.
class Trial {
 public:
  Trial(Communicator& group, const Property& property)
      : group_(group), property_(property), rank_(group.options().rank), world_(group.options().world_size) {
    const Operation op = property.operation;
    const bool lists_inputs =
        op == Operation::kReduceScatter || op == Operation::kAllToAll || op == Operation::kScatter;
    const bool lists_outputs = op == Operation::kAllGather || op == Operation::kAllToAll || op == Operation::kGather;
    for (int r = 0; r < (lists_inputs ? world_ : 1); ++r) {
      inputs_.push_back(make(lists_inputs ? size_of(op == Operation::kAllToAll ? rank_ : 0, r) : own_size()));
      for (int64_t i = 0; i < inputs_.back().count; ++i) {
        put(inputs_.back().data, property.dtype, i, value_of(rank_, lists_inputs ? r : 0, i));
      }
    }
    for (int r = 0; r < (lists_outputs ? world_ : 1); ++r) {
      outputs_.push_back(make(lists_outputs ? size_of(r, op == Operation::kAllToAll ? rank_ : r) : own_size()));
      if (outputs_.back().count > 0) {
        std::memset(outputs_.back().data, 0x5a, static_cast<size_t>(outputs_.back().size_bytes()));
      }
    }
    if (property.in_place) share_own_part(lists_inputs, lists_outputs);
  }

  WorkPtr start(int root) {
    const auto only_on_root = [&](std::vector<Buffer>& buffers) {
      return rank_ == root ? buffers : std::vector<Buffer>();
    };
    switch (property_.operation) {
      case Operation::kBarrier: return group_.barrier();
      case Operation::kBroadcast: return group_.broadcast(inputs_[0], root);
      case Operation::kAllReduce: return group_.all_reduce(inputs_[0], {property_.op});
      case Operation::kReduce: return group_.reduce(inputs_[0], outputs_[0], root, {property_.op});
      case Operation::kAllGather: return group_.all_gather(inputs_[0], outputs_);
      case Operation::kGather: return group_.gather(inputs_[0], only_on_root(outputs_), root);
      case Operation::kScatter: return group_.scatter(only_on_root(inputs_), outputs_[0], root);
      case Operation::kReduceScatter: return group_.reduce_scatter(inputs_, outputs_[0], {property_.op});
      default: return group_.all_to_all(inputs_, outputs_);
    }
  }

  // The first element that is wrong, as a text; empty where none is.
  std::string check(int root) const {
    const bool is_root = rank_ == root;
    switch (property_.operation) {
      case Operation::kBroadcast: return compare(inputs_[0], [&](int64_t i) { return value_of(root, 0, i); });
      case Operation::kAllReduce: return compare(inputs_[0], [&](int64_t i) { return reduced(0, i); });
      case Operation::kReduce:
        return is_root ? compare(outputs_[0], [&](int64_t i) { return reduced(0, i); }) : std::string();
      case Operation::kReduceScatter: return compare(outputs_[0], [&](int64_t i) { return reduced(rank_, i); });
      case Operation::kScatter: return compare(outputs_[0], [&](int64_t i) { return value_of(root, rank_, i); });
      case Operation::kGather:
        if (!is_root) return {};
        [[fallthrough]];
      case Operation::kAllGather: return compare_all([&](int r, int64_t i) { return value_of(r, 0, i); });
      case Operation::kAllToAll: return compare_all([&](int r, int64_t i) { return value_of(r, rank_, i); });
      default: return {};
    }
  }

 private:
  int64_t size_of(int from, int to) const {
    if (!property_.uneven) return property_.count;
    return property_.operation == Operation::kAllToAll ? property_.count + (from + 2 * to) % 3 : property_.count + to;
  }
  int64_t own_size() const {
    const Operation op = property_.operation;
    const bool may_differ = op == Operation::kAllGather || op == Operation::kGather || op == Operation::kScatter ||
                            op == Operation::kReduceScatter;
    return may_differ ? size_of(0, rank_) : property_.count;
  }

  Buffer make(int64_t count) {
    const int64_t size = count * dtype_size_bytes(property_.dtype);
    if (property_.allocated) {
      auto memory = group_.allocate(size);
      require_ok(memory.status());
      kept_.push_back(*memory);
    } else {
      kept_.push_back(std::shared_ptr<char[]>(new char[static_cast<size_t>(size)]));
    }
    return {kept_.back().get(), count, property_.dtype};
  }

  void share_own_part(bool lists_inputs, bool lists_outputs) {
    const auto own = static_cast<size_t>(rank_);
    const Buffer& input = inputs_[lists_inputs ? own : 0];
    Buffer& output = outputs_[lists_outputs ? own : 0];
    if (input.count == output.count) output = input;
  }

  double reduced(int part, int64_t i) const {
    double result = value_of(0, part, i);
    for (int r = 1; r < world_; ++r) {
      const double value = value_of(r, part, i);
      result = property_.op == ReduceOp::kMax   ? std::max(result, value)
               : property_.op == ReduceOp::kMin ? std::min(result, value)
                                                : result + value;
    }
    return property_.dtype == DType::kUInt8 ? static_cast<double>(static_cast<uint8_t>(static_cast<int>(result)))
                                            : result;
  }

  template <typename Expected>
  std::string compare(const Buffer& buffer, const Expected& expected) const {
    for (int64_t i = 0; i < buffer.count; ++i) {
      const double value = get(buffer.data, property_.dtype, i);
      if (value == expected(i)) continue;
      return property_.to_string() + ", rank " + std::to_string(rank_) + " of " + std::to_string(world_) +
             ": element " + std::to_string(i) + " is " + std::to_string(value) + ", expected " +
             std::to_string(expected(i));
    }
    return {};
  }
  template <typename Expected>
  std::string compare_all(const Expected& expected) const {
    for (int r = 0; r < world_; ++r) {
      const auto index = static_cast<size_t>(r);
      const std::string wrong = compare(outputs_[index], [&](int64_t i) { return expected(r, i); });
      if (!wrong.empty()) return "part " + std::to_string(r) + " of " + wrong;
    }
    return {};
  }

  Communicator& group_;
  const Property property_;
  const int rank_, world_;
  std::vector<Buffer> inputs_, outputs_;
  std::vector<std::shared_ptr<void>> kept_;
};

inline void require_property(Communicator& group, const Property& property, int root) {
  Trial trial(group, property);
  const Status status = trial.start(root)->wait();
  require(status.ok(), property.to_string() + ": " + status.to_string());
  const std::string wrong = trial.check(root);
  require(wrong.empty(), wrong);
}

}  // namespace qx::collectives::testing
