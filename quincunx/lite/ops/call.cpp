#include "quincunx/lite/ops/call.h"

#include <algorithm>
#include <string>

namespace qx::lite {

int64_t resolve_dim(const graph::Dim& dim, std::span<const int64_t> symbols) {
  if (dim.is_known()) return dim.value;
  // No tensor has a size of -1: what overflows is found where it is used.
  int64_t size = 0;
  if (__builtin_mul_overflow(dim.multiplier, symbols[static_cast<size_t>(dim.symbol)], &size) ||
      __builtin_add_overflow(size, dim.value, &size)) {
    return -1;
  }
  return size;
}

Result<int> normalized_dim(int64_t dim, int rank) {
  const int64_t limit = std::max(rank, 1);
  if (dim < -limit || dim >= limit) {
    return invalid_argument("dim: expected " + std::to_string(-limit) + " to " + std::to_string(limit - 1) + ", got " +
                            std::to_string(dim));
  }
  return static_cast<int>(dim < 0 ? dim + limit : dim);
}

int64_t Call::resolve(const graph::Dim& dim) const { return resolve_dim(dim, symbols_); }

bool Call::has(size_t index) const {
  return index < node_.arguments.size() && !std::holds_alternative<std::monostate>(node_.arguments[index]);
}

bool Call::is_tensor(size_t index) const {
  return index < node_.arguments.size() && std::holds_alternative<graph::TensorRef>(node_.arguments[index]);
}

const TensorView& Call::tensor(size_t index) const {
  return values_[static_cast<size_t>(std::get<graph::TensorRef>(node_.arguments[index]).id)];
}

const TensorView* Call::optional_tensor(size_t index) const { return is_tensor(index) ? &tensor(index) : nullptr; }

std::vector<const TensorView*> Call::tensors(size_t index) const {
  std::vector<const TensorView*> list;
  for (const graph::TensorRef ref : std::get<std::vector<graph::TensorRef>>(node_.arguments[index])) {
    list.push_back(ref.id == graph::kNoValue ? nullptr : &values_[static_cast<size_t>(ref.id)]);
  }
  return list;
}

Number Call::number(size_t index, double fallback) const {
  if (!has(index)) return {Number::Kind::kFloat, static_cast<int64_t>(fallback), fallback};
  const graph::Argument& argument = node_.arguments[index];
  if (const bool* flag = std::get_if<bool>(&argument)) return {Number::Kind::kBool, *flag, *flag ? 1.0 : 0.0};
  if (const double* real = std::get_if<double>(&argument)) return {Number::Kind::kFloat, 0, *real};
  const int64_t integer = resolve(std::get<graph::Dim>(argument));
  return {Number::Kind::kInteger, integer, static_cast<double>(integer)};
}

int64_t Call::integer(size_t index, int64_t fallback) const {
  return has(index) ? resolve(std::get<graph::Dim>(node_.arguments[index])) : fallback;
}

bool Call::flag(size_t index, bool fallback) const {
  return has(index) ? std::get<bool>(node_.arguments[index]) : fallback;
}

std::string_view Call::text(size_t index, std::string_view fallback) const {
  return has(index) ? std::get<std::string>(node_.arguments[index]) : fallback;
}

std::optional<DType> Call::dtype(size_t index) const {
  return has(index) ? std::optional(std::get<DType>(node_.arguments[index])) : std::nullopt;
}

std::vector<int64_t> Call::integers(size_t index) const {
  std::vector<int64_t> list;
  if (!has(index)) return list;
  if (const auto* single = std::get_if<graph::Dim>(&node_.arguments[index])) return {resolve(*single)};
  for (const graph::Dim& dim : std::get<std::vector<graph::Dim>>(node_.arguments[index])) list.push_back(resolve(dim));
  return list;
}

std::vector<int64_t> Call::integers(size_t index, size_t count, int64_t fallback) const {
  std::vector<int64_t> list = integers(index);
  if (list.empty()) list.push_back(fallback);
  if (list.size() == 1) list.resize(count, list[0]);
  return list;
}

std::vector<double> Call::reals(size_t index) const {
  if (!has(index)) return {};
  return std::get<std::vector<double>>(node_.arguments[index]);
}

const TensorView* Call::optional_result(size_t index) const {
  if (index >= node_.results.size() || node_.results[index] == graph::kNoValue) return nullptr;
  return &values_[static_cast<size_t>(node_.results[index])];
}

const TensorView& Call::result(size_t index) const { return values_[static_cast<size_t>(node_.results[index])]; }

}  // namespace qx::lite
