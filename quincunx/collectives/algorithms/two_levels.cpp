#include "quincunx/collectives/algorithms/two_levels.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "quincunx/base/check.h"
#include "quincunx/collectives/algorithms/flow_exchange.h"
#include "quincunx/collectives/algorithms/partial_reduction.h"

namespace qx::collectives {
namespace {

// Parts begin at multiples of a cache line: no line is written by two ranks.
constexpr int64_t kPartAlignment = 64;

std::byte* bytes_of(const Buffer& buffer) { return static_cast<std::byte*>(buffer.data); }

struct Range {
  int64_t begin = 0;
  int64_t count = 0;
};

// The elements of a part of `count`.
Range part_of(int64_t count, int part, int num_parts, DType dtype) {
  const int64_t aligned = std::max<int64_t>(1, kPartAlignment / dtype_size_bytes(dtype));
  const int64_t share = (count + num_parts - 1) / num_parts;
  const int64_t step = (share + aligned - 1) / aligned * aligned;
  const int64_t begin = std::min(count, part * step);
  return {begin, std::min(count, begin + step) - begin};
}

Buffer slice(const Buffer& buffer, const Range& range) {
  return {bytes_of(buffer) + range.begin * dtype_size_bytes(buffer.dtype), range.count, buffer.dtype};
}

class Plan {
 public:
  Plan(const DirectExchange& direct, const HostLayout& layout, int rank)
      : direct_(direct),
        call_(direct.call()),
        layout_(layout),
        rank_(rank),
        host_(layout.host_of(rank)),
        index_(layout.index_of(rank)),
        local_(layout.ranks_of(host_)) {
    if (call_.reduces()) partial_.emplace(call_.reduction, call_.dtype);
  }

  std::unique_ptr<Exchange> make() {
    switch (call_.operation) {
      case Operation::kBroadcast: broadcast(); break;
      case Operation::kAllGather: all_gather(); break;
      case Operation::kAllReduce: all_reduce(); break;
      case Operation::kReduce: reduce(); break;
      default: reduce_scatter(); break;
    }
    // Those that have farthest to go leave first.
    std::sort(flows_.begin(), flows_.end(), [](const auto& a, const auto& b) {
      return std::pair(a.first, a.second.id) < std::pair(b.first, b.second.id);
    });
    std::vector<Flow> flows;
    for (auto& [order, flow] : flows_) flows.push_back(std::move(flow));
    link_results(flows);
    std::vector<int> all(static_cast<size_t>(layout_.num_ranks()));
    std::iota(all.begin(), all.end(), 0);
    stages_.push_back({std::make_unique<FlowExchange>(std::move(flows), partial_,
                                                      FlowExchange::Result{call_.dtype, layout_.num_ranks()}),
                       std::move(all)});
    return std::make_unique<StagedExchange>(std::move(stages_), std::move(scratch_));
  }

 private:
  // The ring of hosts: how many of them a stream that begins on `from` has passed when it is here, and who is next.
  int num_passed(int from) const { return (host_ - from + num_hosts()) % num_hosts(); }
  int num_hosts() const { return layout_.num_hosts(); }
  int next_host() const { return (host_ + 1) % num_hosts(); }
  int previous_host() const { return (host_ + num_hosts() - 1) % num_hosts(); }
  const PartialReduction& partial_reduction() const {
    QX_CHECK(partial_.has_value());
    return *partial_;
  }
  bool is_carrier(int column) const { return index_ == column; }

  std::byte* make_scratch(int64_t size) {
    scratch_.push_back(std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(size)));
    return scratch_.back().get();
  }

  // From `owner` to all ranks: to the carrier of its host, along the column, and to the ranks of each host.
  void spread(int32_t id, int owner, int column, const Buffer& buffer) {
    const int first = layout_.host_of(owner);
    const int carrier = layout_.carrier(host_, column);
    Flow flow;
    flow.id = id;
    flow.data = bytes_of(buffer);
    flow.size_bytes = buffer.size_bytes();
    if (rank_ == carrier) {
      if (rank_ != owner) flow.from = host_ == first ? owner : layout_.carrier(previous_host(), column);
      if (num_passed(first) + 1 < num_hosts()) flow.to.push_back(layout_.carrier(next_host(), column));
      for (const int r : local_) {
        if (r != rank_ && r != owner) flow.to.push_back(r);
      }
    } else if (rank_ == owner) {
      flow.to.push_back(carrier);
    } else {
      flow.from = carrier;
    }
    flows_.emplace_back(kMaxFlows + num_passed(first), std::move(flow));
  }

  // Partial results of a column, combined along the ring until they are on host `last`; `result` is the flow that takes
  // them from there.
  void combine(int32_t id, int column, int last, std::byte* data, int64_t count, int32_t result) {
    if (!is_carrier(column)) return;
    const int first = (last + 1) % num_hosts();
    Flow flow;
    flow.id = id;
    flow.combines = true;
    flow.data = data;
    flow.size_bytes = count * dtype_size_bytes(partial_reduction().dtype);
    if (host_ != first) flow.from = layout_.carrier(previous_host(), column);
    if (host_ == last)
      flow.feeds = result;  // its id: see link_results
    else
      flow.to.push_back(layout_.carrier(next_host(), column));
    flows_.emplace_back(num_passed(first), std::move(flow));
  }

  // A finished result from the carrier of `column` on the host of `owner` to that one alone.
  void deliver(int32_t id, int column, int owner, std::byte* finished, const Buffer& output) {
    const int carrier = layout_.carrier(layout_.host_of(owner), column);
    if (rank_ != carrier && rank_ != owner) return;
    Flow flow;
    flow.id = id;
    flow.size_bytes = output.size_bytes();
    flow.data = rank_ == owner ? bytes_of(output) : finished;
    if (rank_ != owner) flow.to.push_back(owner);
    if (rank_ != carrier) flow.from = carrier;
    flows_.emplace_back(kMaxFlows, std::move(flow));
  }

  static void link_results(std::vector<Flow>& flows) {
    for (Flow& flow : flows) {
      if (flow.feeds < 0) continue;
      const auto is_result = [&](const Flow& other) { return other.id == flow.feeds; };
      flow.feeds = static_cast<int>(std::find_if(flows.begin(), flows.end(), is_result) - flows.begin());
    }
  }

  // A stage within the host: contributions[k] goes to the k-th carrier; the own one of them is reduced into `partial`.
  void reduce_in_host(const std::vector<Buffer>& contributions, std::byte* partial) {
    Moves moves;
    moves.operation = Operation::kReduceScatter;
    moves.reduction = partial_reduction().first;
    for (int k = 0; k < static_cast<int>(contributions.size()); ++k) {
      const Buffer& contribution = contributions[static_cast<size_t>(k)];
      if (k != index_)
        moves.sends.push_back({k, contribution});
      else
        moves.reduced = {bytes_of(contribution), partial, contribution.size_bytes(), contribution.dtype,
                         partial_reduction().dtype != contribution.dtype};
    }
    stages_.push_back(
        {std::make_unique<DirectExchange>(moves, index_, static_cast<int>(local_.size())), std::vector<int>(local_)});
  }

  void broadcast() {
    const Buffer& buffer = direct_.inputs()[0];
    for (int c = 0; c < layout_.num_carriers(); ++c) {
      spread(c, call_.root, c, slice(buffer, part_of(buffer.count, c, layout_.num_carriers(), buffer.dtype)));
    }
  }

  void all_gather() {
    const Buffer& input = direct_.inputs()[0];
    for (int r = 0; r < layout_.num_ranks(); ++r) {
      const Buffer& output = direct_.outputs()[static_cast<size_t>(r)];
      if (r == rank_ && input.count > 0 && input.data != output.data) {
        std::memmove(output.data, input.data, static_cast<size_t>(input.size_bytes()));
      }
      spread(r, r, layout_.column_of(r), output);
    }
  }

  // The parts of the columns, and the partial result of the own one: in place where that may be.
  std::byte* reduce_columns(const Buffer& input, bool in_place) {
    std::vector<Buffer> parts;
    for (int c = 0; c < layout_.num_carriers(); ++c) {
      parts.push_back(slice(input, part_of(input.count, c, layout_.num_carriers(), input.dtype)));
    }
    std::byte* partial = nullptr;
    if (index_ < layout_.num_carriers()) {
      const Buffer& own = parts[static_cast<size_t>(index_)];
      const bool stays = in_place && partial_reduction().dtype == own.dtype;
      partial = stays ? bytes_of(own) : make_scratch(own.count * dtype_size_bytes(partial_reduction().dtype));
    }
    reduce_in_host(parts, partial);
    return partial;
  }

  void all_reduce() {
    const Buffer& buffer = direct_.inputs()[0];
    std::byte* partial = reduce_columns(buffer, true);
    const int64_t partial_bytes = dtype_size_bytes(partial_reduction().dtype);
    for (int c = 0; c < layout_.num_carriers(); ++c) {
      const Buffer column = slice(buffer, part_of(buffer.count, c, layout_.num_carriers(), buffer.dtype));
      for (int h = 0; h < num_hosts(); ++h) {
        const Range range = part_of(column.count, h, num_hosts(), buffer.dtype);
        const int32_t result = num_hosts() + c * num_hosts() + h;
        combine(h, c, h, is_carrier(c) ? partial + range.begin * partial_bytes : nullptr, range.count, result);
        spread(result, layout_.carrier(h, c), c, slice(column, range));
      }
    }
  }

  // Where a finished result waits for its owner: where the partial one was, if it is of the same size.
  std::byte* finished_at(std::byte* partial, int64_t count) {
    return partial_reduction().dtype == call_.dtype ? partial : make_scratch(count * dtype_size_bytes(call_.dtype));
  }

  void reduce() {
    const Buffer& input = direct_.inputs()[0];
    std::byte* partial = reduce_columns(input, false);
    const int num_columns = layout_.num_carriers();
    const int last = layout_.host_of(call_.root);
    for (int c = 0; c < num_columns; ++c) {
      const Range range = part_of(input.count, c, num_columns, input.dtype);
      combine(c, c, last, partial, range.count, num_columns + c);
      const bool hands_on = is_carrier(c) && host_ == last && rank_ != call_.root;
      const Buffer output =
          rank_ == call_.root ? slice(direct_.outputs()[0], range) : Buffer{nullptr, range.count, call_.dtype};
      deliver(num_columns + c, c, call_.root, hands_on ? finished_at(partial, range.count) : nullptr, output);
    }
  }

  void reduce_scatter() {
    const std::span<const Buffer> inputs = direct_.inputs();
    const int num_ranks = layout_.num_ranks();
    const int num_columns = layout_.num_carriers();
    std::vector<std::byte*> partials(static_cast<size_t>(num_ranks), nullptr);
    for (int h = 0; h < num_hosts(); ++h) {
      const std::vector<int>& owners = layout_.ranks_of(h);
      for (size_t first = 0; first < owners.size(); first += static_cast<size_t>(num_columns)) {
        std::vector<Buffer> parts;
        std::byte* partial = nullptr;
        for (size_t i = first; i < std::min(owners.size(), first + static_cast<size_t>(num_columns)); ++i) {
          const Buffer& part = inputs[static_cast<size_t>(owners[i])];
          if (is_carrier(static_cast<int>(parts.size()))) {
            partial = make_scratch(part.count * dtype_size_bytes(partial_reduction().dtype));
            partials[static_cast<size_t>(owners[i])] = partial;
          }
          parts.push_back(part);
        }
        reduce_in_host(parts, partial);
      }
    }
    for (int r = 0; r < num_ranks; ++r) {
      std::byte* partial = partials[static_cast<size_t>(r)];
      const int64_t count = inputs[static_cast<size_t>(r)].count;
      const int column = layout_.column_of(r);
      combine(r, column, layout_.host_of(r), partial, count, num_ranks + r);
      const bool hands_on = is_carrier(column) && host_ == layout_.host_of(r) && r != rank_;
      const Buffer output = r == rank_ ? direct_.outputs()[0] : Buffer{nullptr, count, call_.dtype};
      deliver(num_ranks + r, column, r, hands_on ? finished_at(partial, count) : nullptr, output);
    }
  }

  const DirectExchange& direct_;
  const Call& call_;
  const HostLayout& layout_;
  const int rank_;
  const int host_;
  const int index_;
  const std::vector<int>& local_;
  std::optional<PartialReduction> partial_;
  std::vector<std::unique_ptr<std::byte[]>> scratch_;
  std::vector<Stage> stages_;
  std::vector<std::pair<int, Flow>> flows_;  // with their place in the order
};

}  // namespace

bool has_two_levels(Operation operation) {
  switch (operation) {
    case Operation::kBroadcast:
    case Operation::kAllReduce:
    case Operation::kReduce:
    case Operation::kAllGather:
    case Operation::kReduceScatter: return true;
    default: return false;
  }
}

std::unique_ptr<Exchange> in_two_levels(const DirectExchange& direct, const HostLayout& layout, int rank) {
  return Plan(direct, layout, rank).make();
}

}  // namespace qx::collectives
