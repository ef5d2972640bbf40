// A schedule as int64 tensors: one row an entry, columns in the order of the struct's fields. Every field of the
// structs in muon_schedule.h is an int64_t, so a row is the struct itself.
#pragma once

#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "quincunx/planning/muon_schedule.h"
#include "quincunx/torch/muon/edge.h"

namespace qx::muon {

template <typename Row>
std::vector<Row> rows_of(const torch::stable::Tensor& table, const char* argument) {
  static_assert(std::is_trivially_copyable_v<Row> && sizeof(Row) % sizeof(int64_t) == 0);
  constexpr size_t kColumns = sizeof(Row) / sizeof(int64_t);
  const std::span<int64_t> values = integers_of(table, argument);
  if (table.dim() != 2 || table.size(1) != static_cast<int64_t>(kColumns)) {
    throw_if_error(invalid_argument(std::string(argument) + ": expected " + std::to_string(kColumns) + " columns"));
  }
  std::vector<Row> rows(values.size() / kColumns);
  if (!rows.empty()) std::memcpy(static_cast<void*>(rows.data()), values.data(), values.size_bytes());
  return rows;
}

}  // namespace qx::muon
