// The parts of matrices above or below a diagonal.
#include <algorithm>

#include "quincunx/lite/ops/families.h"
#include "quincunx/lite/ops/rows.h"

namespace qx::lite {
namespace {

// Row `i` of an upper triangle keeps the columns from i + diagonal on, that of a lower one those up to it.
template <bool kUpper>
Status run_triangle(const Call& call) {
  const TensorView& result = call.result();
  const int64_t diagonal = call.integer(1, 0);
  if (result.num_dims() < 2) return invalid_argument("expected matrices, got " + result.to_string());
  QX_RETURN_IF_ERROR(copy_elements(call.tensor(0), result));
  const int rows = result.num_dims() - 2;
  for (int64_t i = 0; i < result.size(rows); ++i) {
    const int64_t columns = result.size(rows + 1);
    const int64_t edge = std::clamp<int64_t>(i + diagonal + (kUpper ? 0 : 1), 0, columns);
    QX_ASSIGN_OR_RETURN(const TensorView row, result.slice(rows, i, i + 1));
    QX_ASSIGN_OR_RETURN(const TensorView outside,
                        kUpper ? row.slice(rows + 1, 0, edge) : row.slice(rows + 1, edge, columns));
    QX_RETURN_IF_ERROR(fill_elements(outside, 0, 0));
  }
  return ok_status();
}

constexpr Operator kOperators[] = {
    {"aten.triu.default", "Tj", run_triangle<true>},
    {"aten.tril.default", "Tj", run_triangle<false>},
};

}  // namespace

std::span<const Operator> triangle_operators() { return kOperators; }

}  // namespace qx::lite
