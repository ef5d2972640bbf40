// Fused regions as tile programs.
#include <string>
#include <vector>

#include "quincunx/lite/ops/families.h"
#include "quincunx/tile/interpreter.h"
#include "quincunx/tile/program.h"

namespace qx::lite {
namespace {

// qx.tile(program, inputs): the program is text. Reading it takes microseconds, running it at least as long.
Status run_tile(const Call& call) {
  QX_ASSIGN_OR_RETURN(const tile::Program program, tile::parse(call.text(0)));
  std::vector<TensorView> inputs, outputs;
  for (const TensorView* input : call.tensors(1)) inputs.push_back(*input);
  for (size_t i = 0; i < call.num_results(); ++i) {
    if (call.optional_result(i) == nullptr) return invalid_argument("result " + std::to_string(i) + " is missing");
    outputs.push_back(call.result(i));
  }
  return tile::run(program, inputs, outputs);
}

constexpr Operator kOperators[] = {
    {"qx.tile", "sL", run_tile},
};

}  // namespace

std::span<const Operator> tile_operators() { return kOperators; }

}  // namespace qx::lite
