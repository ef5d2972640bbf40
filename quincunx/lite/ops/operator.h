// What the runtime knows of an operator, and the table of all of them.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "quincunx/lite/ops/call.h"

namespace qx::lite {

// How a constant weight is brought into a form of an operator's own.
struct PackRecipe {
  TensorView weight;
  std::vector<int64_t> parameters;  // equal ones of the same weight share its packed form
  Result<Packed> (*pack)(const TensorView& weight, std::span<const int64_t> parameters);
};

// What an operator does with images whose channels are adjacent. The arguments of any may lie so; results do where the
// operator prefers it or, as elementwise ones, keeps the layout of argument 0.
enum class ChannelLayout : uint8_t { kAny, kKeeps, kPrefersAdjacent };

// A row of the table. `signature` has one letter an argument:
//   T tensor   t tensor or None   S tensor or number   L list of tensors   K list of tensors or None
//   n number   g number or None   b bool or None       i integer           j integer or None
//   I list of integers            J list of integers or None               R list of numbers or None
//   d dtype or None   s string or None   * anything: it has no meaning here (layout, device, memory format ...)
// Trailing arguments may be missing where None is allowed, and for b, s and *.
struct Operator {
  std::string_view name;
  std::string_view signature;
  // Computes the results, which have the shapes and dtypes that the graph declares and no memory in common with the
  // arguments, except as `elementwise` and `updates` allow. Shapes that contradict the arguments are an error.
  Status (*run)(const Call& call) = nullptr;
  // Results that are the argument's own memory, seen differently. None where strides do not allow it: `run` copies.
  Result<std::optional<TensorView>> (*view)(const Call& call, size_t result) = nullptr;
  // Element i of the result depends on element i of each argument of the result's shape only: it may overwrite one.
  bool elementwise = false;
  // The result is argument 0 with a part overwritten: where nobody else needs the old contents, in place.
  bool updates = false;
  // The weight as the [inner, columns] matrix that `run` multiplies by, if it has memory yet: what is constant is
  // packed once, when the model is loaded. None for a weight that cannot be packed.
  std::optional<TensorView> (*matrix)(const Call& call) = nullptr;
  // The same for operators whose weight is no matrix.
  std::optional<PackRecipe> (*recipe)(const Call& call) = nullptr;
  // How many of the results are computed; 0: all. The others serve training, and a graph that reads them is refused.
  size_t num_computed = 0;
  // The shape of a result with sizes that the inputs' symbols do not give.
  Result<std::vector<int64_t>> (*shape)(const Call& call, size_t result) = nullptr;
  // What `run` finds in Call::prepared(), made of the node alone when the model is loaded.
  Result<std::unique_ptr<const Prepared>> (*prepare)(const graph::Node& node) = nullptr;
  // Where it is not kAny, `run` takes results with adjacent channels. So does that of every elementwise operator.
  ChannelLayout layout = ChannelLayout::kAny;
};

// Null where the runtime has no operator of this name.
const Operator* find_operator(std::string_view name);
// All names, sorted.
std::vector<std::string_view> operator_names();

// That the arguments are of the kinds that the signature names. The error names the node.
Status check_signature(const graph::Node& node, const Operator& entry);

}  // namespace qx::lite
