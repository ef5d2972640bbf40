#include "quincunx/apps/inspect.h"

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "quincunx/base/mapped_file.h"
#include "quincunx/graph/qxm.h"
#include "quincunx/graph/text.h"
#include "quincunx/graph/tile_node.h"
#include "quincunx/tensor/storage.h"

namespace qx::apps {
namespace {

using Json = nlohmann::ordered_json;

Json values_json(const graph::Graph& graph, const std::vector<graph::ValueId>& ids) {
  Json list = Json::array();
  for (const graph::ValueId id : ids) {
    const graph::Value& value = graph.values[static_cast<size_t>(id)];
    list.push_back({{"name", value.name}, {"type", graph::type_text(value.type, graph.symbols)}});
  }
  return list;
}

Json method_json(const graph::Graph& graph) {
  Json symbols = Json::array();
  for (const graph::Symbol& symbol : graph.symbols) {
    symbols.push_back({{"name", symbol.name}, {"min", symbol.min}, {"max", symbol.max}});
  }
  Json states = Json::array();
  for (const graph::State& state : graph.states) {
    const graph::Value& value = graph.values[static_cast<size_t>(state.input)];
    states.push_back({{"name", state.name}, {"type", graph::type_text(value.type, graph.symbols)}});
  }
  std::map<std::string, int64_t> operators;
  Json regions = Json::array();
  for (const graph::Node& node : graph.nodes) {
    ++operators[node.op];
    if (node.op != graph::kTileOperator) continue;
    regions.push_back({{"name", node.name}, {"program", std::get<std::string>(node.arguments[0])}});
  }
  return {{"name", graph.name},
          {"symbols", symbols},
          {"inputs", values_json(graph, graph.inputs)},
          {"outputs", values_json(graph, graph.outputs)},
          {"states", states},
          {"num_nodes", graph.nodes.size()},
          {"num_constants", graph.constants.size()},
          {"operators", operators},
          {"regions", regions}};
}

Json model_json(const std::string& path, const graph::QxmLayout& layout, const graph::Qxm& model) {
  Json sections = Json::array();
  for (const graph::QxmSection& section : layout.sections) {
    sections.push_back({{"name", section.name},
                        {"offset", section.offset_bytes},
                        {"bytes", section.size_bytes},
                        {"crc32", section.checksum}});
  }
  Json methods = Json::array();
  for (const graph::Graph& graph : model.methods) methods.push_back(method_json(graph));
  return {{"file", path},
          {"format", std::to_string(layout.major) + "." + std::to_string(layout.minor)},
          {"bytes", layout.file_bytes},
          {"sections", sections},
          {"metadata", Json::parse(model.metadata)},
          {"tokenizer_bytes", model.tokenizer.size()},
          {"methods", methods}};
}

void print_text(const std::string& path, const graph::QxmLayout& layout, const graph::Qxm& model, std::ostream& out) {
  out << path << ": format " << layout.major << "." << layout.minor << ", " << layout.file_bytes << " bytes\n";
  for (const graph::QxmSection& section : layout.sections) {
    out << "section " << section.name << ": " << section.size_bytes << " bytes at " << section.offset_bytes << "\n";
  }
  out << "metadata " << Json::parse(model.metadata).dump() << "\n";
  for (const graph::Graph& graph : model.methods) out << "\n" << graph::to_text(graph);
}

}  // namespace

Status inspect_model(const InspectArguments& arguments, std::ostream& out) {
  QX_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(arguments.model));
  const std::shared_ptr<const Storage> bytes = Storage::from_file(std::move(file));
  QX_ASSIGN_OR_RETURN(const graph::QxmLayout layout, graph::qxm_layout(*bytes, arguments.model));
  QX_ASSIGN_OR_RETURN(const graph::Qxm model, graph::parse_qxm(bytes, arguments.model));
  if (arguments.json) {
    // A name in the file need not be UTF-8.
    out << model_json(arguments.model, layout, model).dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
  } else {
    print_text(arguments.model, layout, model, out);
  }
  return ok_status();
}

}  // namespace qx::apps
