// Copies and conversions of dtype.
#include "quincunx/lite/ops/families.h"
#include "quincunx/lite/ops/rows.h"

namespace qx::lite {
namespace {

Status run_convert(const Call& call) { return convert_elements(call.tensor(0), call.result()); }

// A conversion to the dtype that the argument has is the argument.
Result<std::optional<TensorView>> view_if_same_dtype(const Call& call, size_t) {
  const TensorView& x = call.tensor(0);
  return x.dtype() == call.result().dtype() ? std::optional(x) : std::nullopt;
}

constexpr Operator kOperators[] = {
    // A clone need not be memory of its own here: no operator writes to what another one reads.
    {"aten.clone.default", "T*", run_convert, view_if_same_dtype},
    {"aten.contiguous.default", "T*", run_convert, view_if_same_dtype},
    {"aten._to_copy.default", "T******", run_convert, view_if_same_dtype},
    {"aten.to.dtype", "T****", run_convert, view_if_same_dtype},
    {"aten.to.dtype_layout", "T*******", run_convert, view_if_same_dtype},
    {"aten.to.device", "T*****", run_convert, view_if_same_dtype},
    {"aten.to.other", "T*****", run_convert, view_if_same_dtype},
    {"aten.type_as.default", "TT", run_convert, view_if_same_dtype},
    {"aten.copy.default", "*T*", [](const Call& call) { return convert_elements(call.tensor(1), call.result()); }},
    {"prims.convert_element_type.default", "Td", run_convert, view_if_same_dtype},
};

}  // namespace

std::span<const Operator> copy_operators() { return kOperators; }

}  // namespace qx::lite
