// _quincunx_fusion: fuses graphs of quincunx._core and makes the operator torch.ops.quincunx.fused_region.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <utility>

#include "quincunx/compiler/compiler.h"
#include "quincunx/graph/graph.h"
#include "quincunx/torch/fusion/compiled_region.h"
#include "quincunx/torch/fusion/packed_weights.h"
#include "quincunx/torch/fusion/region_registry.h"

namespace nb = nanobind;

namespace qx::torch_bridge {
namespace {

// Python chooses the exception from the code, as for operators.
void raise_if_error(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.to_string());
}

// A fused graph, with the graph that its regions' ids mean.
struct FusedGraph {
  graph::Graph graph;
  compiler::Fusion fusion;

  void register_region(size_t index, int64_t key, std::vector<graph::ValueId> inputs,
                       std::vector<graph::ValueId> outputs, std::vector<std::vector<int64_t>> output_orders) const {
    if (index >= fusion.regions.size()) throw nb::index_error("index: the fusion has fewer regions");
    const CallLayout layout{std::move(inputs), std::move(outputs), std::move(output_orders)};
    Result<CompiledRegion> region = CompiledRegion::create(graph, fusion.regions[index], layout);
    raise_if_error(region.status());
    torch_bridge::register_region(key, std::make_shared<const CompiledRegion>(std::move(region).value()));
  }
};

FusedGraph fuse(const graph::Graph& graph, std::map<std::string, bool> patterns, std::vector<graph::ValueId> weights,
                std::vector<std::string> labels, std::string cache_directory, std::string dump_directory, bool check) {
  FusedGraph fused{graph, {}};
  compiler::FuseOptions options;
  options.patterns = std::move(patterns);
  options.weights = std::move(weights);
  options.labels = std::move(labels);
  options.cache_directory = std::move(cache_directory);
  options.dump_directory = std::move(dump_directory);
  options.check = check;
  Status status;
  {
    nb::gil_scoped_release unlocked;
    Result<compiler::Fusion> fusion = compiler::fuse(fused.graph, options);
    status = fusion.status();
    if (status.ok()) fused.fusion = std::move(fusion).value();
  }
  raise_if_error(status);
  return fused;
}

// Called by operators, which run without Python's lock.
RegionLoader loader_from(nb::callable function) {
  auto held = std::make_shared<nb::callable>(std::move(function));
  return [held](int64_t key, const std::string& program) {
    nb::gil_scoped_acquire locked;
    return nb::cast<bool>((*held)(key, program));
  };
}

nb::dict counters() {
  const RegionCounters regions = region_counters();
  const compiler::CompileCounters kernels = compiler::compileCounters();
  nb::dict result;
  result["regions_registered"] = regions.registered;
  result["regions_loaded"] = regions.loaded;
  result["regions_run"] = regions.runs;
  result["regions_run_by_aten"] = regions.eager_runs;
  result["kernels_compiled"] = kernels.compiled;
  result["kernels_from_memory"] = kernels.from_memory;
  result["kernels_from_disk"] = kernels.from_disk;
  result["rejected_cache_files"] = kernels.rejected_files;
  const PackedWeightCounters weights = packed_weight_counters();
  result["weights_packed"] = weights.made;
  result["packed_weights_used"] = weights.used;
  result["packed_weights_kept"] = weights.kept;
  result["packed_weight_bytes"] = weights.bytes;
  return result;
}

// key -> (seconds, bytes)
nb::dict times() {
  nb::dict result;
  for (const auto& [key, time] : region_times()) {
    result[nb::int_(key)] = nb::make_tuple(static_cast<double>(time.nanoseconds) * 1e-9, time.bytes);
  }
  return result;
}

// Which of a region's inputs is a weight that is packed, or -1.
int32_t weight_of(const compiler::Region& region) {
  const compiler::PackingKernel* const product = region.kernel->packing();
  return product == nullptr ? -1 : product->weight();
}

void bind_results(nb::module_& module) {
  nb::class_<compiler::Region>(module, "Region")
      .def_ro("name", &compiler::Region::name)
      .def_prop_ro("kind", [](const compiler::Region& r) { return std::string(compiler::regionKindName(r.kind)); })
      .def_ro("nodes", &compiler::Region::nodes)
      .def_ro("inputs", &compiler::Region::inputs)
      .def_ro("outputs", &compiler::Region::outputs)
      .def_ro("patterns", &compiler::Region::patterns)
      .def_prop_ro("weight", &weight_of)
      .def_prop_ro("program", [](const compiler::Region& r) { return r.kernel->to_string(); });
  nb::class_<compiler::ReportEntry>(module, "ReportEntry")
      .def_ro("stage", &compiler::ReportEntry::stage)
      .def_ro("nodes", &compiler::ReportEntry::nodes)
      .def_ro("fused", &compiler::ReportEntry::fused)
      .def_ro("reason", &compiler::ReportEntry::reason);
  nb::class_<FusedGraph>(module, "FusedGraph")
      .def_prop_ro("regions", [](const FusedGraph& fused) { return fused.fusion.regions; })
      .def_prop_ro("report", [](const FusedGraph& fused) { return fused.fusion.report; })
      .def("register_region", &FusedGraph::register_region, nb::arg("index"), nb::arg("key"), nb::arg("inputs"),
           nb::arg("outputs"), nb::arg("output_orders"));
}

}  // namespace
}  // namespace qx::torch_bridge

NB_MODULE(_quincunx_fusion, module) {
  namespace bridge = qx::torch_bridge;
  bridge::bind_results(module);
  module.def("fuse", &bridge::fuse, nb::arg("graph"), nb::arg("patterns"), nb::arg("weights"), nb::arg("labels"),
             nb::arg("cache_directory"), nb::arg("dump_directory"), nb::arg("check"));
  module.def("pattern_names", &qx::compiler::patternNames);
  module.def("is_registered", &bridge::is_registered, nb::arg("key"));
  module.def(
      "set_region_loader",
      [](nb::callable function) { bridge::set_region_loader(bridge::loader_from(std::move(function))); },
      nb::arg("function"));
  module.def("counters", &bridge::counters);
  module.def("drop_packed_weight", &bridge::drop_packed_weight, nb::arg("entry"));
  module.def("set_region_timing", &bridge::set_region_timing, nb::arg("on"));
  module.def("region_times", &bridge::times);
}
