#include "quincunx/compiler/clustering/regions.h"

#include <algorithm>
#include <set>

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SetVector.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "quincunx/compiler/clustering/clusters.h"
#include "quincunx/compiler/clustering/source_users.h"
#include "quincunx/compiler/codegen/region_operations.h"
#include "quincunx/compiler/dialect/labels.h"
#include "quincunx/compiler/dialect/mfuse.h"
#include "quincunx/compiler/dialect/origin.h"

namespace qx::compiler {

std::string_view regionKindName(RegionKind kind) {
  switch (kind) {
    case RegionKind::kElementwise: return "elementwise";
    case RegionKind::kBroadcast: return "broadcast";
    case RegionKind::kReduce: return "reduce";
    case RegionKind::kReshape: return "reshape";
    case RegionKind::kProduct: return "product";
  }
  return "";
}

namespace {
namespace mf = qx::mfuse;

using Ops = llvm::SmallVector<mlir::Operation*>;

// Taken for a size that is not known, when edges are ranked.
constexpr int64_t kTypicalSize = 64;

bool isView(mlir::Operation* op) { return llvm::isa<mf::ReshapeOp, mf::PermuteOp, mf::BroadcastOp, mf::SliceOp>(op); }

int64_t bytesOf(mlir::Operation* op) {
  int64_t bytes = 0;
  for (const mlir::Value result : op->getResults()) {
    const auto type = llvm::dyn_cast<mlir::RankedTensorType>(result.getType());
    if (!type) continue;
    int64_t elements = 1;
    for (const int64_t size : type.getShape()) elements *= mlir::ShapedType::isDynamic(size) ? kTypicalSize : size;
    bytes += elements * std::max<int64_t>(1, type.getElementType().getIntOrFloatBitWidth() / 8);
  }
  return bytes;
}

class RegionMaker {
 public:
  RegionMaker(mlir::func::FuncOp function, const graph::Graph& graph, const Target& target, const FuseOptions& options,
              std::vector<ReportEntry>& report)
      : graph_(graph), target_(target), options_(options), report_(report), users_(graph) {
    for (mlir::Operation& op : function.getBody().front().without_terminator()) {
      numbers_[&op] = static_cast<int32_t>(ops_.size());
      ops_.push_back(&op);
    }
    folded_.resize(graph.nodes.size(), true);
    for (mlir::Operation* op : ops_) {
      for (const int64_t node : mf::sourceNodes(op)) folded_[node] = false;
    }
  }

  std::vector<Region> make() {
    std::vector<Region> regions;
    for (const auto& cluster : findClusters(clusterGraph(), [this](auto members) { return accepts(members); })) {
      Ops ops = trimmed(cluster);
      // A region of one operator is what the source has already.
      const std::set<int32_t> nodes = nodesOf(ops);
      if (!isWorthwhile(ops, nodes)) continue;
      auto region = makeRegion(ops, nodes, regions.size());
      if (region.ok()) {
        report_.push_back({"cluster", region->nodes, true, ""});
        regions.push_back(*std::move(region));
      } else {
        report_.push_back({"cluster", {nodes.begin(), nodes.end()}, false, region.status().message()});
      }
    }
    std::ranges::sort(regions, {}, [](const Region& region) { return region.nodes.back(); });
    return regions;
  }

 private:
  ClusterGraph clusterGraph() {
    ClusterGraph graph;
    for (mlir::Operation* op : ops_) {
      std::vector<int32_t> inputs;
      for (const mlir::Value operand : op->getOperands()) {
        mlir::Operation* const source = operand.getDefiningOp();
        if (source != nullptr && numbers_.count(source) != 0) inputs.push_back(numbers_[source]);
      }
      std::ranges::sort(inputs);
      inputs.erase(std::unique(inputs.begin(), inputs.end()), inputs.end());
      graph.inputs.push_back(std::move(inputs));
      graph.result_bytes.push_back(bytesOf(op));
      graph.candidate.push_back(!isEntryView(op, graph) && isCandidate(op));
      graph.reduces.push_back(llvm::isa<mf::ReduceOp, mf::VarianceOp>(op));
    }
    addSiblings(graph);
    return graph;
  }

  // Neighbours among the candidates that read one value which no candidate computes.
  void addSiblings(ClusterGraph& graph) const {
    llvm::DenseMap<mlir::Value, int32_t> last;
    for (mlir::Operation* op : ops_) {
      const int32_t number = numbers_.lookup(op);
      if (!graph.candidate[number]) continue;
      for (const mlir::Value operand : op->getOperands()) {
        mlir::Operation* const source = operand.getDefiningOp();
        const bool inside = source != nullptr && (isNumber(source) || graph.candidate[numbers_.lookup(source)]);
        if (inside) continue;
        const auto [entry, is_first] = last.try_emplace(operand, number);
        if (!is_first && entry->second != number) graph.siblings.emplace_back(entry->second, number);
        entry->second = number;
      }
    }
  }

  // A view of what no region computes: it would be trimmed anyway, and must not draw clusters to itself before.
  bool isEntryView(mlir::Operation* op, const ClusterGraph& graph) {
    if (!isView(op) || mf::sourceValue(op->getResult(0)) < 0) return false;
    const mlir::Value operand = op->getOperand(0);
    mlir::Operation* const source = operand.getDefiningOp();
    if (source == nullptr || !graph.candidate[numbers_[source]]) return true;
    return target_.standsAlone(source) && mf::sourceValue(operand) >= 0;
  }

  bool isCandidate(mlir::Operation* op) {
    if (isNumber(op) || llvm::isa<mf::WeightOp>(op)) return false;
    const Status supported = target_.supports(op);
    if (supported.ok()) return true;
    const auto nodes = mf::sourceNodes(op);
    report_.push_back({"cluster", {nodes.begin(), nodes.end()}, false, supported.message()});
    return false;
  }

  bool accepts(std::span<const int32_t> members) const {
    Ops ops;
    for (const int32_t member : members) ops.push_back(ops_[member]);
    const bool same =
        llvm::all_of(ops, [&](mlir::Operation* op) { return mf::labelOf(op) == mf::labelOf(ops.front()); });
    return same && target_.accepts(ops).ok();
  }

  // Views at a region's border cost nothing where they are, but would make it copy: they stay outside.
  Ops trimmed(const std::vector<int32_t>& members) const {
    llvm::SetVector<mlir::Operation*> inside;
    for (const int32_t member : members) inside.insert(ops_[member]);
    const auto hasOrigin = [](mlir::Value value) { return mf::sourceValue(value) >= 0; };
    const auto isInside = [&](mlir::Operation* op) { return op != nullptr && inside.contains(op); };
    bool changed = true;
    while (changed) {
      changed = inside.remove_if([&](mlir::Operation* op) {
        if (!isView(op)) return false;
        const bool reads = isInside(op->getOperand(0).getDefiningOp());
        const bool is_read = llvm::any_of(op->getUsers(), isInside);
        return (!reads && hasOrigin(op->getResult(0))) || (!is_read && hasOrigin(op->getOperand(0)));
      });
    }
    return inside.takeVector();
  }

  std::set<int32_t> nodesOf(const Ops& ops) const {
    std::set<int32_t> nodes;
    for (mlir::Operation* op : ops) {
      for (const int64_t node : mf::sourceNodes(op)) nodes.insert(static_cast<int32_t>(node));
    }
    return nodes;
  }

  bool isWorthwhile(const Ops& ops, const std::set<int32_t>& nodes) const {
    int64_t cost = 0;
    std::set<int64_t> computing;
    for (mlir::Operation* op : ops) {
      const int64_t own = target_.cost(op);
      cost += own;
      const auto sources = mf::sourceNodes(op);
      if (own > 0) computing.insert(sources.begin(), sources.end());
      if (target_.standsAlone(op)) return true;
    }
    if (cost == 0 || nodes.empty()) return false;
    if (!mf::labelOf(ops.front()).empty()) return true;
    return static_cast<int64_t>(computing.size()) >= options_.min_region_size;
  }

  Result<Region> makeRegion(const Ops& ops, const std::set<int32_t>& computed, size_t number) {
    QX_RETURN_IF_ERROR(checkBorders(ops, computed));
    Region region;
    region.name = nameOf(ops, number);
    region.kind = kindOf(ops);
    QX_ASSIGN_OR_RETURN(EmittedRegion emitted, target_.emit(ops, region.name, options_));
    for (const mlir::Value input : emitted.inputs) {
      const int64_t value = mf::sourceValue(input);
      if (value < 0) return unimplemented("an input is no value of the source graph");
      region.inputs.push_back(static_cast<graph::ValueId>(value));
    }
    for (const mlir::Value output : emitted.outputs) {
      const int64_t value = mf::sourceValue(output);
      if (value < 0) return unimplemented("a result is no value of the source graph");
      region.outputs.push_back(static_cast<graph::ValueId>(value));
    }
    std::set<int32_t> nodes = computed;
    users_.absorb(nodes, folded_);
    for (const graph::ValueId needed : users_.usedOutside(nodes)) {
      if (std::ranges::count(region.outputs, needed) == 0) {
        return unimplemented("value " + graph_.values[needed].name + " is needed but not computed");
      }
    }
    region.nodes.assign(nodes.begin(), nodes.end());
    region.kernel = std::move(emitted.kernel);
    for (mlir::Operation* op : ops) {
      op->setAttr("qx.region", mlir::StringAttr::get(op->getContext(), region.name));
    }
    return region;
  }

  // A node must be replaced as a whole, and no write may come between the region's nodes.
  Status checkBorders(const Ops& ops, const std::set<int32_t>& nodes) const {
    const llvm::DenseSet<mlir::Operation*> inside(ops.begin(), ops.end());
    for (mlir::Operation* op : ops_) {
      if (inside.contains(op) || isNumber(op)) continue;
      for (const int64_t node : mf::sourceNodes(op)) {
        if (nodes.contains(static_cast<int32_t>(node))) {
          return unimplemented("node " + graph_.nodes[node].name + " is only partly in the region");
        }
      }
      const auto opaque = llvm::dyn_cast<mf::OpaqueOp>(op);
      if (opaque && mf::OpaqueOp(opaque).getWrites()) {
        const auto node = static_cast<int32_t>(mf::OpaqueOp(opaque).getNode());
        if (*nodes.begin() < node && node < *nodes.rbegin()) {
          return unimplemented("node " + graph_.nodes[node].name + " writes to memory in between");
        }
      }
    }
    return ok_status();
  }

  static RegionKind kindOf(const Ops& ops) {
    bool computes = false;
    bool broadcasts = false;
    for (mlir::Operation* op : ops) {
      if (llvm::isa<mf::ReduceOp, mf::VarianceOp>(op)) return RegionKind::kReduce;
      if (llvm::isa<mf::MatmulOp>(op)) return RegionKind::kProduct;
      computes |= !isView(op) && !llvm::isa<mf::CatOp>(op);
      const auto result = llvm::dyn_cast<mlir::RankedTensorType>(op->getResult(0).getType());
      for (const mlir::Value operand : op->getOperands()) {
        const auto type = llvm::dyn_cast<mlir::RankedTensorType>(operand.getType());
        broadcasts |= !isView(op) && type && result && type.getShape() != result.getShape();
      }
    }
    return !computes ? RegionKind::kReshape : broadcasts ? RegionKind::kBroadcast : RegionKind::kElementwise;
  }

  // The user's, or from the first few kinds of operations that compute something.
  std::string nameOf(const Ops& ops, size_t number) const {
    if (const llvm::StringRef label = mf::labelOf(ops.front()); !label.empty()) {
      return label.str() + "_" + std::to_string(number);
    }
    std::string name = "fused_" + std::to_string(number);
    std::set<std::string> seen;
    for (mlir::Operation* op : ops) {
      if (target_.cost(op) == 0 || seen.size() == 4) continue;
      std::string kind = op->getName().stripDialect().str();
      if (auto unary = llvm::dyn_cast<mf::UnaryOp>(op)) kind = mf::stringifyUnaryKind(unary.getKind()).str();
      if (auto binary = llvm::dyn_cast<mf::BinaryOp>(op)) kind = mf::stringifyBinaryKind(binary.getKind()).str();
      if (auto reduce = llvm::dyn_cast<mf::ReduceOp>(op)) kind = mf::stringifyReduceKind(reduce.getKind()).str();
      if (seen.insert(kind).second) name += "_" + kind;
    }
    return name;
  }

  const graph::Graph& graph_;
  const Target& target_;
  const FuseOptions& options_;
  std::vector<ReportEntry>& report_;
  const SourceUsers users_;
  std::vector<mlir::Operation*> ops_;
  llvm::DenseMap<mlir::Operation*, int32_t> numbers_;
  // Source nodes that no operation stands for any more.
  std::vector<bool> folded_;
};

}  // namespace

std::vector<Region> makeRegions(mlir::ModuleOp module, const graph::Graph& graph, const Target& target,
                                const FuseOptions& options, std::vector<ReportEntry>& report) {
  std::vector<Region> regions;
  for (auto function : module.getOps<mlir::func::FuncOp>()) {
    RegionMaker maker(function, graph, target, options, report);
    for (Region& region : maker.make()) regions.push_back(std::move(region));
  }
  return regions;
}

}  // namespace qx::compiler
