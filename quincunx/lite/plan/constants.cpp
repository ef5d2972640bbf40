#include "quincunx/lite/plan/constants.h"

#include <algorithm>
#include <string>

#include "quincunx/lite/ops/product.h"
#include "quincunx/lite/plan/arguments.h"

namespace qx::lite {
namespace {

using graph::ValueId;

bool has_symbol(const graph::Argument& argument) {
  if (const auto* dim = std::get_if<graph::Dim>(&argument)) return !dim->is_known();
  const auto* dims = std::get_if<std::vector<graph::Dim>>(&argument);
  return dims != nullptr && std::any_of(dims->begin(), dims->end(), [](graph::Dim dim) { return !dim.is_known(); });
}

bool is_known(const graph::TensorType& type) {
  return std::all_of(type.shape.begin(), type.shape.end(), [](graph::Dim dim) { return dim.is_known(); });
}

std::vector<int64_t> known_shape(const graph::TensorType& type) {
  std::vector<int64_t> shape;
  for (const graph::Dim& dim : type.shape) shape.push_back(dim.value);
  return shape;
}

class Folder {
 public:
  Folder(graph::Graph& graph, int64_t max_bytes)
      : graph_(graph), max_bytes_(max_bytes), views_(graph.values.size()), is_constant_(graph.values.size(), false) {}

  Result<std::vector<TensorView>> run() {
    for (size_t id = 0; id < graph_.values.size(); ++id) {
      if (graph_.values[id].constant >= 0) QX_RETURN_IF_ERROR(use_constant(static_cast<ValueId>(id)));
    }
    // A state that starts from a constant is not one.
    for (const graph::State& state : graph_.states) is_constant_[static_cast<size_t>(state.input)] = false;
    std::vector<graph::Node> kept;
    for (graph::Node& node : graph_.nodes) {
      QX_ASSIGN_OR_RETURN(const bool folded, fold(node));
      if (!folded) kept.push_back(std::move(node));
    }
    graph_.nodes = std::move(kept);
    for (size_t id = 0; id < views_.size(); ++id) {
      if (!is_constant_[id]) views_[id] = TensorView();
    }
    return std::move(views_);
  }

 private:
  Status use_constant(ValueId id) {
    const graph::Value& value = graph_.values[static_cast<size_t>(id)];
    const graph::Constant& constant = graph_.constants[static_cast<size_t>(value.constant)];
    QX_ASSIGN_OR_RETURN(views_[static_cast<size_t>(id)],
                        constant.storage->view(value.type.dtype, known_shape(value.type), constant.offset_bytes));
    is_constant_[static_cast<size_t>(id)] = true;
    return ok_status();
  }

  bool is_foldable(const graph::Node& node) const {
    bool constant = true;
    for_each_tensor(node, [&](ValueId id) { constant = constant && is_constant_[static_cast<size_t>(id)]; });
    for (const graph::Argument& argument : node.arguments) constant = constant && !has_symbol(argument);
    for (const ValueId id : node.results) {
      constant = constant && (id == graph::kNoValue || is_known(graph_.values[static_cast<size_t>(id)].type));
    }
    return constant;
  }

  // The results that are views of a constant; false where an argument's strides do not allow it.
  Result<bool> fold_view(const graph::Node& node, const Operator& entry) {
    for (size_t i = 0; i < node.results.size(); ++i) {
      if (node.results[i] == graph::kNoValue) continue;
      const auto id = static_cast<size_t>(node.results[i]);
      QX_ASSIGN_OR_RETURN(views_[id], TensorView::contiguous(&kDummy, graph_.values[id].type.dtype,
                                                             known_shape(graph_.values[id].type)));
      QX_ASSIGN_OR_RETURN(const std::optional<TensorView> view, entry.view(Call(node, views_, {}), i));
      if (!view) return false;
      views_[id] = *view;
    }
    return true;
  }

  Status compute(const graph::Node& node, const Operator& entry) {
    for (const ValueId result : node.results) {
      if (result == graph::kNoValue) continue;
      graph::Value& value = graph_.values[static_cast<size_t>(result)];
      const std::vector<int64_t> shape = known_shape(value.type);
      int64_t bytes = dtype_size_bytes(value.type.dtype);
      for (const int64_t size : shape) bytes *= size;
      QX_ASSIGN_OR_RETURN(std::shared_ptr<Storage> storage, Storage::allocate(std::max<int64_t>(bytes, 1)));
      QX_ASSIGN_OR_RETURN(views_[static_cast<size_t>(result)], storage->view(value.type.dtype, shape));
      value.constant = static_cast<int32_t>(graph_.constants.size());
      graph_.constants.push_back({std::move(storage), 0});
    }
    return entry.run(Call(node, views_, {}));
  }

  bool is_small(const graph::Node& node) const {
    int64_t bytes = 0;
    for (const ValueId id : node.results) {
      if (id == graph::kNoValue) continue;
      int64_t size = dtype_size_bytes(graph_.values[static_cast<size_t>(id)].type.dtype);
      for (const graph::Dim& dim : graph_.values[static_cast<size_t>(id)].type.shape) {
        if (dim.value < 0 || __builtin_mul_overflow(size, dim.value, &size)) return false;
      }
      if (__builtin_add_overflow(bytes, size, &bytes)) return false;
    }
    return bytes <= max_bytes_;
  }

  Result<bool> fold(const graph::Node& node) {
    const Operator* entry = find_operator(node.op);
    if (!is_foldable(node)) return false;
    Status status;
    bool viewed = false;
    if (entry->view != nullptr) {
      Result<bool> view = fold_view(node, *entry);
      if (view.ok()) viewed = *view;
      status = view.status();
    }
    if (status.ok() && !viewed) {
      if (!is_small(node)) return false;
      status = compute(node, *entry);
    }
    if (!status.ok()) return Status(status.code(), "node '" + node.name + "' (" + node.op + "): " + status.message());
    for (const ValueId id : node.results) {
      if (id != graph::kNoValue) is_constant_[static_cast<size_t>(id)] = true;
    }
    // Views stay in the graph: they cost nothing, and their value has no constant of its own.
    return !viewed;
  }

  inline static char kDummy = 0;
  graph::Graph& graph_;
  int64_t max_bytes_;
  std::vector<TensorView> views_;
  std::vector<bool> is_constant_;
};

}  // namespace

Result<const Packed*> PackCache::pack(const TensorView& matrix) {
  return pack({matrix, {}, [](const TensorView& weight, std::span<const int64_t>) { return pack_matrix(weight); }});
}

Result<const Packed*> PackCache::pack(const PackRecipe& recipe) {
  const TensorView& weight = recipe.weight;
  const Key key(weight.data(), weight.dtype(), {weight.shape().begin(), weight.shape().end()},
                {weight.strides().begin(), weight.strides().end()}, recipe.parameters);
  auto found = entries_.find(key);
  if (found == entries_.end()) {
    QX_ASSIGN_OR_RETURN(Packed packed, recipe.pack(weight, recipe.parameters));
    size_bytes_ += packed.storage->size_bytes();
    found = entries_.emplace(key, std::make_unique<Packed>(std::move(packed))).first;
  }
  return found->second.get();
}

Result<std::vector<TensorView>> fold_constants(graph::Graph& graph, int64_t max_folded_bytes) {
  return Folder(graph, max_folded_bytes).run();
}

Result<std::vector<const Packed*>> pack_weights(const graph::Graph& graph, const std::vector<TensorView>& constants,
                                                PackCache& cache) {
  std::vector<const Packed*> packed(graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Operator* entry = find_operator(graph.nodes[i].op);
    if (entry->matrix == nullptr && entry->recipe == nullptr) continue;
    bool unknown = false;
    for (const graph::Argument& argument : graph.nodes[i].arguments) unknown = unknown || has_symbol(argument);
    if (unknown) continue;
    const Call call(graph.nodes[i], constants, {});
    if (entry->recipe != nullptr) {
      const std::optional<PackRecipe> recipe = entry->recipe(call);
      if (!recipe) continue;
      QX_ASSIGN_OR_RETURN(packed[i], cache.pack(*recipe));
      continue;
    }
    const std::optional<TensorView> matrix = entry->matrix(call);
    if (!matrix) continue;
    QX_ASSIGN_OR_RETURN(packed[i], cache.pack(*matrix));
  }
  return packed;
}

}  // namespace qx::lite
