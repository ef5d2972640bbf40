// Where in a tensor a point of the iteration space lies, and how views of tensors change that.
#pragma once

#include <optional>
#include <vector>

#include "quincunx/compiler/codegen/loop_program.h"

namespace qx::compiler {

// One entry for each dim of a tensor.
using Place = std::vector<ViewDim>;
bool operator==(const ViewDim& a, const ViewDim& b);

// An axis that has to become several for a program to be expressed: sizes from the outermost to the innermost.
struct AxisSplit {
  int32_t axis = -1;
  std::vector<graph::Dim> sizes;
};

// Sizes as products: 6 * s0 is 2 * s0 times 3. Null if `total` is not a multiple of `part`.
std::optional<graph::Dim> divide(const graph::Dim& total, const graph::Dim& part);
std::optional<graph::Dim> multiply(const graph::Dim& a, const graph::Dim& b);

// The place in a tensor of shape `to` that is the same element, counted row by row, as `place` in one of shape `from`.
// Null if no place of this form says it; `split` then names an axis whose split would help, if there is one.
std::optional<Place> reshapePlace(const Place& place, const std::vector<graph::Dim>& from,
                                  const std::vector<graph::Dim>& to, const std::vector<Axis>& axes, AxisSplit& split);

}  // namespace qx::compiler
