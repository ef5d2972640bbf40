#include "quincunx/torch/activation/policy.h"

#include <algorithm>

namespace qx::activation {

namespace {

int64_t bytes_of(const std::vector<at::Tensor>& results) {
  int64_t num_bytes = 0;
  for (const at::Tensor& result : results) num_bytes += result.defined() ? static_cast<int64_t>(result.nbytes()) : 0;
  return num_bytes;
}

OperatorCall described(const c10::OperatorHandle& op, const std::vector<std::string>& modules,
                       const std::vector<at::Tensor>& results) {
  const auto& name = op.operator_name();
  std::string full = name.name + "." + (name.overload_name.empty() ? "default" : name.overload_name);
  full.replace(full.find("::"), 2, ".");
  const at::Tensor& first = results.front();
  return {std::move(full), modules, first.scalar_type(), first.sizes().vec(), bytes_of(results)};
}

}  // namespace

Action Policy::decide(const c10::OperatorHandle& op, const std::vector<std::string>& modules,
                      const std::vector<at::Tensor>& results, std::vector<int64_t>& counters) {
  // Not under the lock: it may wait for the interpreter's.
  if (decide_) return decide_(described(op, modules, results));
  const std::lock_guard lock(mutex_);
  const auto [found, is_new] = candidates_.try_emplace(&op.schema());
  if (is_new) {
    const auto& name = op.operator_name();
    const std::string full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    for (size_t i = 0; i < rules_.size(); ++i) {
      if (rules_[i].any_operator || rules_[i].operators.contains(full)) found->second.push_back(i);
    }
  }
  if (found->second.empty()) return otherwise_;
  const int64_t num_bytes = bytes_of(results);
  for (const size_t i : found->second) {
    Rule& rule = rules_[i];
    const auto inside = [&](const std::string& module) { return rule.modules.contains(module); };
    if (!rule.any_module && std::none_of(modules.begin(), modules.end(), inside)) continue;
    if (rule.dtype && results.front().scalar_type() != *rule.dtype) continue;
    if (num_bytes < rule.min_bytes) continue;
    counters.resize(rules_.size());
    if (++counters[i] % rule.every_nth != 0) continue;
    ++rule.num_matched;
    return rule.action;
  }
  return otherwise_;
}

std::vector<int64_t> Policy::num_matched() const {
  const std::lock_guard lock(mutex_);
  std::vector<int64_t> counts;
  for (const Rule& rule : rules_) counts.push_back(rule.num_matched);
  return counts;
}

}  // namespace qx::activation
