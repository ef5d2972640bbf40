// What becomes of an operator's result: a table made from ordered rules, consulted once per operator in a forward.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "quincunx/torch/activation/arena.h"

namespace qx::activation {

enum class Action { kRecompute, kSave, kSwap };

// A rule applies to an operator that meets all of its conditions; empty ones are met by all.
struct Rule {
  bool any_operator = false;
  std::unordered_set<std::string> operators;  // "aten::mm", "aten::mm.out"
  bool any_module = false;
  std::unordered_set<std::string> modules;  // paths of modules; an operator inside of one matches
  std::optional<at::ScalarType> dtype;      // of the first result
  int64_t min_bytes = 0;                    // of all results
  int64_t every_nth = 1;                    // only the n-th, 2n-th, ... operator of a region that meets the others
  Action action = Action::kRecompute;
  int64_t num_matched = 0;
};

// What a function that decides in the place of rules is told.
struct OperatorCall {
  std::string op;                    // "aten.mm.default"
  std::vector<std::string> modules;  // paths of those that it is called in, from the outermost
  at::ScalarType dtype;              // of the first result, as is the next
  std::vector<int64_t> shape;
  int64_t num_bytes;  // of all results
};

class Policy {
 public:
  using Decide = std::function<Action(const OperatorCall&)>;

  // `decide`, where there is one, decides about every operator; the rules and `otherwise` do not.
  Policy(std::vector<Rule> rules, Action otherwise, std::shared_ptr<SwapArena> arena, Decide decide)
      : rules_(std::move(rules)), otherwise_(otherwise), arena_(std::move(arena)), decide_(std::move(decide)) {}

  // The first rule that applies decides. `counters` are the region's own, one a rule.
  Action decide(const c10::OperatorHandle& op, const std::vector<std::string>& modules,
                const std::vector<at::Tensor>& results, std::vector<int64_t>& counters);

  const std::shared_ptr<SwapArena>& arena() const { return arena_; }
  std::vector<int64_t> num_matched() const;

 private:
  mutable std::mutex mutex_;  // threads may run regions under one policy
  std::vector<Rule> rules_;
  const Action otherwise_;
  const std::shared_ptr<SwapArena> arena_;
  const Decide decide_;
  // The rules whose operators an operator is one of, keyed by its schema, which lives as long as the operator.
  std::unordered_map<const void*, std::vector<size_t>> candidates_;
};

}  // namespace qx::activation
