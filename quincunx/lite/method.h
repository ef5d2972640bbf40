// One method of a session: a graph made ready to run.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "quincunx/lite/plan/constants.h"
#include "quincunx/lite/plan/plan.h"
#include "quincunx/lite/session.h"

namespace qx::lite {

// Results of constant expressions up to this size are computed at load; larger ones cost less to compute than to keep.
inline constexpr int64_t kMaxFoldedBytes = int64_t{64} << 20;

// A plan and the addresses that its views have at the moment.
struct BoundPlan {
  Plan plan;
  std::vector<TensorView> values;
  std::vector<std::byte*> bases;  // of plan.buffers, at the last call
};

class Method {
 public:
  // Checks the graph and its operators, computes constants, rewrites and packs.
  static Result<std::unique_ptr<Method>> create(graph::Graph graph, const SessionOptions& options, PackCache& cache);

  const MethodInfo& info() const { return info_; }
  const graph::Graph& graph() const { return graph_; }

  // The plan for inputs of these shapes. It stays valid until the next call.
  Result<BoundPlan*> plan_for(const std::vector<std::vector<int64_t>>& input_shapes);
  // Dtypes and devices of the inputs.
  Status check_inputs(std::span<const TensorView> inputs) const;

  // Runs the steps of a plan whose values all have their addresses.
  Status run_steps(const BoundPlan& bound, const RunOptions& options) const;

 private:
  Method() = default;
  Status check_operators() const;
  Status check_results() const;
  void describe();
  Status find_operators();
  Result<std::vector<int64_t>> bind_symbols(const std::vector<std::vector<int64_t>>& input_shapes) const;

  graph::Graph graph_;
  MethodInfo info_;
  std::vector<graph::ValueId> inputs_;
  std::vector<TensorView> constants_;
  std::vector<const Packed*> packed_;                      // of the nodes
  std::vector<const Operator*> operators_;                 // of the nodes
  std::vector<std::unique_ptr<const Prepared>> prepared_;  // of the nodes
  std::map<std::vector<int64_t>, std::unique_ptr<BoundPlan>> plans_;
};

}  // namespace qx::lite
