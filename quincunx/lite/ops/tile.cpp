// Fused regions as tile programs.
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "quincunx/lite/ops/families.h"
#include "quincunx/tile/interpreter.h"
#include "quincunx/tile/program.h"

namespace qx::lite {
namespace {

struct PreparedTile : Prepared {
  explicit PreparedTile(tile::PreparedProgram tile_program) : program(std::move(tile_program)) {}
  tile::PreparedProgram program;
};

Result<std::unique_ptr<const Prepared>> prepare_tile(const graph::Node& node) {
  QX_ASSIGN_OR_RETURN(tile::Program program, tile::parse(std::get<std::string>(node.arguments[0])));
  QX_ASSIGN_OR_RETURN(tile::PreparedProgram prepared, tile::PreparedProgram::create(std::move(program)));
  return std::unique_ptr<const Prepared>(std::make_unique<PreparedTile>(std::move(prepared)));
}

// qx.tile(program, inputs): the program is text.
Status run_tile(const Call& call) {
  std::vector<TensorView> inputs, outputs;
  const std::vector<const TensorView*> given = call.tensors(1);
  inputs.reserve(given.size());
  outputs.reserve(call.num_results());
  for (const TensorView* input : given) inputs.push_back(*input);
  for (size_t i = 0; i < call.num_results(); ++i) {
    if (call.optional_result(i) == nullptr) return invalid_argument("result " + std::to_string(i) + " is missing");
    outputs.push_back(call.result(i));
  }
  if (call.prepared() != nullptr) {
    return static_cast<const PreparedTile*>(call.prepared())->program.run(inputs, outputs);
  }
  QX_ASSIGN_OR_RETURN(const tile::Program program, tile::parse(call.text(0)));
  return tile::run(program, inputs, outputs);
}

constexpr Operator kOperators[] = {
    {.name = "qx.tile", .signature = "sL", .run = run_tile, .prepare = prepare_tile},
};

}  // namespace

std::span<const Operator> tile_operators() { return kOperators; }

}  // namespace qx::lite
