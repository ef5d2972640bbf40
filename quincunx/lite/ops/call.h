// One call of an operator: its node's arguments, with sizes resolved and tensors in memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "quincunx/graph/graph.h"
#include "quincunx/tensor/storage.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::lite {

// A weight in the form that an operator computes with, made once when the model is loaded.
struct Packed {
  std::shared_ptr<Storage> storage;
  int64_t inner = 0;    // rows of the packed matrix
  int64_t columns = 0;  // columns of the packed matrix
};

// What an operator makes of its node's arguments when the model is loaded, so that no call has to.
struct Prepared {
  virtual ~Prepared() = default;
};

// A number with the type that it had in Python.
struct Number {
  enum class Kind : uint8_t { kBool, kInteger, kFloat };
  Kind kind = Kind::kInteger;
  int64_t integer = 0;
  double value = 0;
};

// Refers to what it is made of. The accessors expect what the operator's signature (operator.h) has promised: a wrong
// kind of argument is a broken invariant. An absent argument reads as the default that the accessor is given.
class Call {
 public:
  Call(const graph::Node& node, std::span<const TensorView> values, std::span<const int64_t> symbols,
       const Packed* packed = nullptr, const Prepared* prepared = nullptr)
      : node_(node), values_(values), symbols_(symbols), packed_(packed), prepared_(prepared) {}

  const graph::Node& node() const { return node_; }
  size_t num_arguments() const { return node_.arguments.size(); }
  // Present and not None.
  bool has(size_t index) const;
  bool is_tensor(size_t index) const;
  const TensorView& tensor(size_t index) const;
  // Null where the argument is absent.
  const TensorView* optional_tensor(size_t index) const;
  // Null for an absent entry of a list.
  std::vector<const TensorView*> tensors(size_t index) const;
  Number number(size_t index, double fallback = 0) const;
  double real(size_t index, double fallback = 0) const { return number(index, fallback).value; }
  int64_t integer(size_t index, int64_t fallback = 0) const;
  bool flag(size_t index, bool fallback = false) const;
  std::string_view text(size_t index, std::string_view fallback = "") const;
  std::optional<DType> dtype(size_t index) const;
  // A single integer counts as a list of one.
  std::vector<int64_t> integers(size_t index) const;
  // integers(), with one entry repeated `count` times; `fallback` where the argument is absent or empty.
  std::vector<int64_t> integers(size_t index, size_t count, int64_t fallback) const;
  std::vector<double> reals(size_t index) const;

  size_t num_results() const { return node_.results.size(); }
  // Null for a result that nobody asked for.
  const TensorView* optional_result(size_t index) const;
  const TensorView& result(size_t index = 0) const;

  const Packed* packed() const { return packed_; }
  // Null where the operator prepares nothing, or the node is computed while the model is loaded.
  const Prepared* prepared() const { return prepared_; }
  int64_t resolve(const graph::Dim& dim) const;

 private:
  const graph::Node& node_;
  std::span<const TensorView> values_;
  std::span<const int64_t> symbols_;
  const Packed* packed_;
  const Prepared* prepared_;
};

// The value of a size whose symbol, if any, is bound in `symbols`.
int64_t resolve_dim(const graph::Dim& dim, std::span<const int64_t> symbols);

// A dim that may count from the end, as an index below max(rank, 1): INVALID_ARGUMENT outside of it.
Result<int> normalized_dim(int64_t dim, int rank);

}  // namespace qx::lite
