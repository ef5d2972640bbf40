#include "quincunx/compiler/codegen/place.h"

#include <algorithm>

namespace qx::compiler {
namespace {

using graph::Dim;

Dim known(int64_t value) { return {.value = value}; }
bool isOne(const Dim& dim) { return dim == known(1); }

std::optional<Dim> sizeOf(const std::vector<int32_t>& list, const std::vector<Axis>& axes) {
  std::optional<Dim> product = known(1);
  for (const int32_t axis : list) {
    if (product) product = multiply(*product, axes[axis].size);
  }
  return product;
}

// start0 * size1 + start1 and so on: two neighbouring dims as one.
std::optional<ViewDim> mergeDims(const ViewDim& outer, const ViewDim& inner, const Dim& inner_size,
                                 const std::vector<Axis>& axes) {
  if (outer.axes.empty() && outer.start == known(0)) return inner;
  const bool starts_known = outer.start.is_known() && inner.start.is_known() && inner_size.is_known();
  const bool at_zero = outer.start == known(0) && inner.start == known(0);
  if (!starts_known && !at_zero) return std::nullopt;
  ViewDim merged;
  merged.start = at_zero ? known(0) : known(outer.start.value * inner_size.value + inner.start.value);
  if (outer.axes.empty()) {
    merged.axes = inner.axes;
    merged.step = inner.step;
    return merged;
  }
  merged.axes = outer.axes;
  if (inner.axes.empty()) {
    if (!inner_size.is_known()) return std::nullopt;
    merged.step = outer.step * inner_size.value;
    return merged;
  }
  merged.axes.insert(merged.axes.end(), inner.axes.begin(), inner.axes.end());
  merged.step = inner.step;
  // outer.step * inner_size steps of one, for each of which the inner axes are walked once.
  const std::optional<Dim> walked = sizeOf(inner.axes, axes);
  const auto left = multiply(known(outer.step), inner_size);
  const auto right = walked ? multiply(known(inner.step), *walked) : std::nullopt;
  if (!left || !right || !(*left == *right)) return std::nullopt;
  return merged;
}

// The inverse: index / inner_size and index % inner_size.
std::optional<std::pair<ViewDim, ViewDim>> splitDim(const ViewDim& whole, const Dim& outer_size, const Dim& inner_size,
                                                    const std::vector<Axis>& axes, AxisSplit& split) {
  ViewDim outer, inner;
  if (isOne(inner_size)) return std::pair{whole, ViewDim{}};
  if (inner_size.is_known() && whole.start.is_known()) {
    outer.start = known(whole.start.value / inner_size.value);
    inner.start = known(whole.start.value % inner_size.value);
  } else if (!(whole.start == known(0))) {
    return std::nullopt;
  }
  if (whole.axes.empty()) return std::pair{outer, inner};
  if (inner_size.is_known() && whole.step % inner_size.value == 0) {
    outer.axes = whole.axes;
    outer.step = whole.step / inner_size.value;
    return std::pair{outer, inner};
  }
  // The innermost axes fill the inner dim.
  std::optional<Dim> walked = known(whole.step);
  size_t first = whole.axes.size();
  while (first > 0 && walked && !(*walked == inner_size)) {
    const int32_t axis = whole.axes[--first];
    const Dim size = axes[axis].size;
    const std::optional<Dim> next = multiply(*walked, size);
    const bool fits = next && divide(inner_size, *next);
    if (!fits && next && divide(*next, inner_size)) {
      const std::optional<Dim> part = divide(inner_size, *walked);
      const std::optional<Dim> rest = part ? divide(size, *part) : std::nullopt;
      if (rest) split = {axis, {*rest, *part}};
      return std::nullopt;
    }
    walked = next;
  }
  inner.axes.assign(whole.axes.begin() + static_cast<int64_t>(first), whole.axes.end());
  inner.step = whole.step;
  outer.axes.assign(whole.axes.begin(), whole.axes.begin() + static_cast<int64_t>(first));
  if (walked && *walked == inner_size && inner.start == known(0)) return std::pair{outer, inner};
  // A stretch that lies inside one row of the inner dim.
  const bool inside = first == 0 && walked && walked->is_known() && inner_size.is_known() && outer_size.is_known() &&
                      inner.start.value + walked->value <= inner_size.value;
  if (inside) return std::pair{outer, inner};
  return std::nullopt;
}

// `count` dims of `place` from `first` on as one.
std::optional<ViewDim> mergeRange(const Place& place, const std::vector<Dim>& sizes, size_t first, size_t end,
                                  const std::vector<Axis>& axes) {
  std::optional<ViewDim> merged = ViewDim{};
  for (size_t dim = first; dim < end && merged; ++dim) merged = mergeDims(*merged, place[dim], sizes[dim], axes);
  return merged;
}

// Appends the dims of `sizes` from `first` to `end` that one dim is split into.
bool splitRange(ViewDim whole, const std::vector<Dim>& sizes, size_t first, size_t end, const std::vector<Axis>& axes,
                AxisSplit& split, Place& result) {
  Place reversed;
  for (size_t dim = end; dim-- > first + 1;) {
    std::optional<Dim> outer_size = known(1);
    for (size_t i = first; i < dim; ++i) outer_size = outer_size ? multiply(*outer_size, sizes[i]) : std::nullopt;
    if (!outer_size) return false;
    auto parts = splitDim(whole, *outer_size, sizes[dim], axes, split);
    if (!parts) return false;
    reversed.push_back(parts->second);
    whole = parts->first;
  }
  if (end > first) reversed.push_back(whole);
  result.insert(result.end(), reversed.rbegin(), reversed.rend());
  return true;
}

}  // namespace

bool operator==(const ViewDim& a, const ViewDim& b) {
  return a.axes == b.axes && a.start == b.start && a.step == b.step;
}

std::optional<Dim> divide(const Dim& total, const Dim& part) {
  if (total == part) return known(1);
  if (!part.is_known()) {
    // m * s over n * s.
    const bool multiple = !total.is_known() && total.symbol == part.symbol && total.value == 0 && part.value == 0 &&
                          part.multiplier != 0 && total.multiplier % part.multiplier == 0;
    return multiple ? std::optional(known(total.multiplier / part.multiplier)) : std::nullopt;
  }
  if (part.value == 0) return std::nullopt;
  if (total.value % part.value != 0) return std::nullopt;
  if (total.is_known()) return known(total.value / part.value);
  if (total.multiplier % part.value != 0) return std::nullopt;
  return Dim{.value = total.value / part.value, .multiplier = total.multiplier / part.value, .symbol = total.symbol};
}

std::optional<Dim> multiply(const Dim& a, const Dim& b) {
  if (a.is_known() && b.is_known()) return known(a.value * b.value);
  if (!a.is_known() && !b.is_known()) return std::nullopt;
  const Dim& symbolic = a.is_known() ? b : a;
  const int64_t factor = a.is_known() ? a.value : b.value;
  return Dim{.value = symbolic.value * factor, .multiplier = symbolic.multiplier * factor, .symbol = symbolic.symbol};
}

std::optional<Place> reshapePlace(const Place& place, const std::vector<Dim>& from, const std::vector<Dim>& to,
                                  const std::vector<Axis>& axes, AxisSplit& split) {
  Place result;
  size_t i = 0;
  size_t j = 0;
  while (i < from.size() || j < to.size()) {
    const size_t first_from = i;
    const size_t first_to = j;
    // The shortest groups of dims that hold the same number of elements.
    std::optional<Dim> left = i < from.size() ? from[i++] : known(1);
    std::optional<Dim> right = j < to.size() ? to[j++] : known(1);
    while (left && right && !(*left == *right)) {
      const bool take_left = divide(*right, *left).has_value() || j == to.size();
      if (take_left && i < from.size()) {
        left = multiply(*left, from[i++]);
      } else if (j < to.size()) {
        right = multiply(*right, to[j++]);
      } else {
        return std::nullopt;
      }
    }
    if (!left || !right) return std::nullopt;
    const auto merged = mergeRange(place, from, first_from, i, axes);
    if (!merged || !splitRange(*merged, to, first_to, j, axes, split, result)) return std::nullopt;
  }
  return result;
}

}  // namespace qx::compiler
