// quincunx._core.Session: lite's runtime for arrays of any library that speaks DLPack.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "quincunx/lite/ops/operator.h"
#include "quincunx/lite/session.h"
#include "quincunx/python/bindings.h"
#include "quincunx/python/errors.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace qx::python {
namespace {

using Array = nb::ndarray<nb::device::cpu>;
using ReadOnlyArray = nb::ndarray<nb::ro, nb::device::cpu>;
using lite::Session;

template <typename AnyArray>
TensorView view_of(const AnyArray& array) {
  DLTensor tensor = {};
  tensor.data = const_cast<void*>(static_cast<const void*>(array.data()));
  tensor.device = {kDLCPU, 0};
  tensor.ndim = static_cast<int32_t>(array.ndim());
  const nb::dlpack::dtype dtype = array.dtype();
  tensor.dtype = {dtype.code, dtype.bits, dtype.lanes};
  tensor.shape = const_cast<int64_t*>(array.shape_ptr());
  tensor.strides = const_cast<int64_t*>(array.stride_ptr());
  return unwrap(TensorView::from_dlpack(tensor));
}

// An array that keeps what `owner` holds.
template <typename Owner>
nb::object array_of(const TensorView& view, Owner owner) {
  const DLTensor tensor = view.to_dlpack();
  auto* held = new Owner(std::move(owner));
  const nb::capsule keep(held, [](void* pointer) noexcept { delete static_cast<Owner*>(pointer); });
  std::vector<size_t> shape(view.shape().begin(), view.shape().end());
  const nb::dlpack::dtype dtype = {tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes};
  nb::ndarray<nb::array_api> array(view.data(), shape.size(), shape.data(), keep, view.strides().data(), dtype);
  return array.cast(nb::rv_policy::reference);
}

nb::list shape_of(const lite::MethodInfo& info, const graph::TensorType& type) {
  nb::list shape;
  for (const graph::Dim& dim : type.shape) {
    if (dim.is_known()) {
      shape.append(dim.value);
      continue;
    }
    std::string text = info.symbols[static_cast<size_t>(dim.symbol)].name;
    if (dim.multiplier != 1) text = std::to_string(dim.multiplier) + "*" + text;
    if (dim.value != 0) text += (dim.value > 0 ? "+" : "") + std::to_string(dim.value);
    shape.append(text);
  }
  return shape;
}

// [(name, dtype, shape)], where a size that a symbol gives is text.
nb::list specs_of(const lite::MethodInfo& info, const std::vector<lite::TensorSpec>& specs) {
  nb::list list;
  for (const lite::TensorSpec& spec : specs) {
    list.append(nb::make_tuple(spec.name, std::string(dtype_name(spec.type.dtype)), shape_of(info, spec.type)));
  }
  return list;
}

nb::list run(Session& session, const std::string& method, const std::vector<ReadOnlyArray>& inputs,
             const std::optional<std::vector<Array>>& outputs, std::optional<double> timeout_s,
             lite::Profile* profile) {
  std::vector<TensorView> views, given;
  for (const ReadOnlyArray& input : inputs) views.push_back(view_of(input));
  if (outputs) {
    for (const Array& output : *outputs) given.push_back(view_of(output));
  }
  lite::RunOptions options;
  options.outputs = given;
  options.profile = profile;
  if (timeout_s) options.deadline = unwrap(lite::deadline_after(*timeout_s));
  std::vector<lite::Tensor> results;
  {
    const nb::gil_scoped_release release;
    results = unwrap(session.run(method, views, options));
  }
  nb::list list;
  if (outputs) return list;
  for (const lite::Tensor& result : results) list.append(array_of(result.view, result.storage));
  return list;
}

nb::dict memory(Session& session, const std::string& method, const std::vector<std::vector<int64_t>>& shapes) {
  const lite::MemoryReport report = unwrap(session.memory(method, shapes));
  nb::dict result;
  result["arena_bytes"] = report.arena_bytes;
  result["unshared_bytes"] = report.unshared_bytes;
  result["output_bytes"] = report.output_bytes;
  result["packed_weight_bytes"] = report.packed_weight_bytes;
  result["state_bytes"] = report.state_bytes;
  result["peak_bytes"] = report.peak_bytes();
  return result;
}

nb::list profile_rows(const std::vector<lite::Profile::Row>& rows) {
  nb::list list;
  for (const auto& row : rows) list.append(nb::make_tuple(row.name, row.op, row.num_calls, row.total_ns));
  return list;
}

}  // namespace

void bind_session(nb::module_& module) {
  nb::class_<lite::Profile>(module, "Profile", "Where the time of calls goes.")
      .def(nb::init<>())
      .def_prop_ro("nodes", [](const lite::Profile& profile) { return profile_rows(profile.nodes()); })
      .def_prop_ro("operators", [](const lite::Profile& profile) { return profile_rows(profile.operators()); })
      .def("__str__", &lite::Profile::to_text);
  nb::class_<Session>(module, "Session", "A converted model, ready to run; quincunx.lite.Session wraps it.")
      .def_static(
          "create",
          [](const std::vector<graph::Graph*>& graphs, int num_threads, bool rewrites) {
            std::vector<graph::Graph> copies;
            for (const graph::Graph* graph : graphs) {
              if (graph == nullptr) throw nb::type_error("graphs: expected graphs, got None");
              copies.push_back(*graph);
            }
            return unwrap(Session::create(std::move(copies), {.num_threads = num_threads, .rewrites = rewrites}));
          },
          "graphs"_a, "num_threads"_a = 0, "rewrites"_a = true)
      .def_static(
          "load",
          [](const std::string& path, int num_threads, bool rewrites, bool check_weights) {
            const nb::gil_scoped_release release;
            return unwrap(Session::load(
                path, {.num_threads = num_threads, .rewrites = rewrites, .check_weights = check_weights}));
          },
          "path"_a, "num_threads"_a = 0, "rewrites"_a = true, "check_weights"_a = true)
      .def("methods",
           [](const Session& session) {
             nb::dict result;
             for (const lite::MethodInfo& info : session.methods()) {
               nb::dict method;
               method["inputs"] = specs_of(info, info.inputs);
               method["outputs"] = specs_of(info, info.outputs);
               method["states"] = info.states;
               method["symbols"] = info.symbols;
               result[info.name.c_str()] = method;
             }
             return result;
           })
      .def("run", &run, "method"_a, "inputs"_a, "outputs"_a = nb::none(), "timeout_s"_a = nb::none(),
           "profile"_a = nb::none())
      .def("memory", &memory, "method"_a, "shapes"_a)
      .def(
          "output_shapes",
          [](Session& session, const std::string& method, const std::vector<std::vector<int64_t>>& shapes) {
            return unwrap(session.output_shapes(method, shapes));
          },
          "method"_a, "shapes"_a)
      .def(
          "state",
          [](nb::handle self, const std::string& name) {
            const TensorView view = unwrap(nb::cast<Session&>(self).state(name));
            return array_of(view, nb::borrow<nb::object>(self));
          },
          "name"_a)
      .def("reset_states", &Session::reset_states);
  module.def("lite_operators", [] {
    std::vector<std::string> names;
    for (const std::string_view name : lite::operator_names()) names.emplace_back(name);
    return names;
  });
}

}  // namespace qx::python
