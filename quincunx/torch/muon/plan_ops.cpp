// quincunx::muon_plan: the plan and this rank's schedule, as tensors.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <cstring>

#include "quincunx/kernels/newton_schulz/newton_schulz.h"
#include "quincunx/planning/muon_plan.h"
#include "quincunx/planning/muon_schedule.h"
#include "quincunx/torch/muon/schedule_table.h"

namespace qx::muon {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

struct TensorRow {
  int64_t num_matrices, rows, columns, num_steps, settings;
};

Tensor table_of(const void* data, size_t num_values, int64_t num_columns) {
  const auto rows = static_cast<int64_t>(num_values) / num_columns;
  Tensor table = torch::stable::empty({rows, num_columns}, ScalarType::Long);
  if (num_values > 0) std::memcpy(table.data_ptr(), data, num_values * sizeof(int64_t));
  return table;
}

template <typename Row>
Tensor table_of(const std::vector<Row>& rows) {
  constexpr size_t kColumns = sizeof(Row) / sizeof(int64_t);
  return table_of(rows.data(), rows.size() * kColumns, kColumns);
}

std::vector<planning::MuonTensor> tensors_from(const std::vector<std::string>& names, const Tensor& shapes,
                                               const Tensor& boxes, int64_t num_ranks) {
  const auto rows = rows_of<TensorRow>(shapes, "shapes");
  const auto box_rows = rows_of<planning::MuonBox>(boxes, "boxes");
  if (rows.size() != names.size() || box_rows.size() != names.size() * static_cast<size_t>(num_ranks)) {
    throw_if_error(
        invalid_argument("names, shapes and boxes: expected a name and a shape a tensor, and a box a tensor "
                         "and rank"));
  }
  std::vector<planning::MuonTensor> tensors;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto first = box_rows.begin() + static_cast<int64_t>(i) * num_ranks;
    tensors.push_back({names[i], rows[i].num_matrices, rows[i].rows, rows[i].columns, rows[i].num_steps,
                       rows[i].settings, std::vector<planning::MuonBox>(first, first + num_ranks)});
  }
  return tensors;
}

Tensor summary_of(const planning::MuonPlan& plan) {
  std::vector<int64_t> values = {static_cast<int64_t>(plan.hash()), plan.num_buckets};
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    values.push_back(static_cast<int64_t>(plan.tensor_hash(static_cast<int64_t>(i))));
  }
  return table_of(values.data(), values.size(), 1);
}

void append_bucket(const planning::MuonBucketSchedule& bucket, std::vector<Tensor>& result) {
  result.push_back(table_of(bucket.held));
  result.push_back(table_of(bucket.remote));
  result.push_back(table_of(bucket.owned));
  result.push_back(table_of(bucket.batches));
  std::vector<int64_t> counts;
  for (const auto* part :
       {&bucket.send_counts, &bucket.receive_counts, &bucket.reply_send_counts, &bucket.reply_receive_counts}) {
    counts.insert(counts.end(), part->begin(), part->end());
  }
  result.push_back(table_of(counts.data(), counts.size(), static_cast<int64_t>(bucket.send_counts.size())));
  const int64_t sizes[] = {bucket.whole_elements, bucket.has_transport};
  result.push_back(table_of(sizes, 2, 2));
}

// [summary, matrices, rank_flops, bucket_peak_bytes], then for each bucket [held, remote, owned, batches, counts,
// sizes]. summary: the plan's hash, the number of buckets and the hash of each tensor.
std::vector<Tensor> muon_plan(const std::vector<std::string>& names, const Tensor& shapes, const Tensor& boxes,
                              int64_t num_ranks, int64_t rank, int64_t memory_cap_bytes, int64_t num_threads) {
  auto plan = planning::make_muon_plan(
      tensors_from(names, shapes, boxes, num_ranks),
      {.num_ranks = num_ranks, .memory_cap_bytes = memory_cap_bytes, .num_threads = num_threads});
  throw_if_error(plan.status());
  const auto schedule = planning::make_muon_schedule(*plan, rank);
  throw_if_error(schedule.status());
  std::vector<Tensor> result = {summary_of(*plan), table_of(plan->matrices),
                                table_of(plan->rank_flops.data(), plan->rank_flops.size(), 1),
                                table_of(plan->bucket_peak_bytes.data(), plan->bucket_peak_bytes.size(), 1)};
  for (const planning::MuonBucketSchedule& bucket : schedule->buckets) append_bucket(bucket, result);
  return result;
}

// The polynomials of a named set, [num_steps, 3].
Tensor muon_coefficients(const std::string& name, int64_t num_steps) {
  const auto steps = kernels::newton_schulz_coefficients(name, static_cast<int>(num_steps));
  throw_if_error(steps.status());
  Tensor result = torch::stable::empty({num_steps, 3}, ScalarType::Float);
  std::memcpy(result.data_ptr(), steps->data(), steps->size() * sizeof(kernels::NewtonSchulzStep));
  return result;
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(quincunx, library) {
  library.def(
      "muon_plan(str[] names, Tensor shapes, Tensor boxes, int num_ranks, int rank, int memory_cap_bytes, "
      "int num_threads) -> Tensor[]");
  library.def("muon_coefficients(str name, int num_steps) -> Tensor");
}
STABLE_TORCH_LIBRARY_IMPL(quincunx, CPU, library) { library.impl("muon_plan", TORCH_BOX(&muon_plan)); }
// Without a tensor argument an operator has no device to dispatch on.
STABLE_TORCH_LIBRARY_IMPL(quincunx, CompositeExplicitAutograd, library) {
  library.impl("muon_coefficients", TORCH_BOX(&muon_coefficients));
}

}  // namespace qx::muon
