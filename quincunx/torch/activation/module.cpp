// The extension module _quincunx_activation. python/quincunx/activation is its only user.
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#include "quincunx/torch/activation/frame.h"

namespace {

namespace py = pybind11;
using namespace qx::activation;  // NOLINT(google-build-using-namespace): this file binds all of it

Rule make_rule(std::optional<std::vector<std::string>> operators, std::optional<std::vector<std::string>> modules,
               std::optional<at::ScalarType> dtype, int64_t min_bytes, int64_t every_nth, Action action) {
  Rule rule;
  rule.any_operator = !operators;
  if (operators) rule.operators.insert(operators->begin(), operators->end());
  rule.any_module = !modules;
  if (modules) rule.modules.insert(modules->begin(), modules->end());
  rule.dtype = dtype;
  rule.min_bytes = min_bytes;
  rule.every_nth = every_nth;
  rule.action = action;
  return rule;
}

void bind_policy(py::module_& module) {
  py::enum_<Action>(module, "Action")
      .value("RECOMPUTE", Action::kRecompute)
      .value("SAVE", Action::kSave)
      .value("SWAP", Action::kSwap);
  py::class_<Rule>(module, "Rule").def(py::init(&make_rule));
  py::class_<OperatorCall>(module, "OperatorCall")
      .def_readonly("op", &OperatorCall::op)
      .def_readonly("modules", &OperatorCall::modules)
      .def_readonly("dtype", &OperatorCall::dtype)
      .def_readonly("shape", &OperatorCall::shape)
      .def_readonly("num_bytes", &OperatorCall::num_bytes);
  py::class_<Policy, std::shared_ptr<Policy>>(module, "Policy")
      .def(py::init<std::vector<Rule>, Action, std::shared_ptr<SwapArena>, Policy::Decide>())
      .def_property_readonly("num_matched", &Policy::num_matched);
}

void bind_arena(py::module_& module) {
  py::class_<SwapArena, std::shared_ptr<SwapArena>>(module, "SwapArena")
      .def(py::init<const std::string&, int64_t>(), py::arg("directory"), py::arg("budget_bytes"))
      .def_property_readonly("budget_bytes", &SwapArena::budget_bytes)
      .def_property_readonly("used_bytes", &SwapArena::used_bytes)
      .def_property_readonly("num_prefetched", &SwapArena::num_prefetched);
}

void bind_frame(py::module_& module) {
  py::class_<Handle>(module, "Handle");
  py::class_<Frame, std::shared_ptr<Frame>>(module, "Frame")
      .def(py::init<std::shared_ptr<Policy>>())
      .def("pack", &Frame::pack)
      .def_static("unpack", &Frame::unpack)
      .def_static("current", &Frame::current)
      .def("enter", &Frame::enter)
      .def("leave", &Frame::leave)
      .def("finish_forward", &Frame::finish_forward)
      .def("begin_replay", &Frame::begin_replay)
      .def("end_replay", &Frame::end_replay)
      .def("push_policy", &Frame::push_policy)
      .def("pop_policy", &Frame::pop_policy)
      .def("push_module", &Frame::push_module)
      .def("pop_module", &Frame::pop_module)
      .def("changed_tensors", &Frame::changed_tensors)
      .def_readwrite("replay", &Frame::replay);
}

void bind_timeline(py::module_& module) {
  py::enum_<Holder>(module, "Holder")
      .value("SAVED", Holder::kSaved)
      .value("SWAP_BUFFER", Holder::kSwapBuffer)
      .value("SWAPPED", Holder::kSwapped)
      .value("RECOMPUTED", Holder::kRecomputed)
      .value("AUTOGRAD", Holder::kAutograd);
  py::class_<Timeline, std::shared_ptr<Timeline>>(module, "Timeline")
      .def(py::init<>())
      .def("start", &Timeline::start)
      .def("stop", &Timeline::stop)
      .def("events", [](const Timeline& timeline) {
        std::vector<std::tuple<int64_t, Holder, int64_t>> events;
        for (const auto& [nanoseconds, holder, live_bytes] : timeline.events()) {
          events.emplace_back(nanoseconds, holder, live_bytes);
        }
        return events;
      });
}

py::dict counters_as_dict() {
  const Counters& now = counters();
  py::dict result;
  result["regions"] = now.regions.load();
  result["replays"] = now.replays.load();
  result["inspected"] = now.inspected.load();
  result["saved"] = now.kept_saved.load();
  result["swapped"] = now.kept_swapped.load();
  result["answered"] = now.answered.load();
  result["bytes_written"] = swap_totals().bytes_written.load();
  result["bytes_read"] = swap_totals().bytes_read.load();
  return result;
}

}  // namespace

PYBIND11_MODULE(_quincunx_activation, module) {
  module.attr("TORCH_VERSION") = TORCH_VERSION;
  bind_policy(module);
  bind_arena(module);
  bind_frame(module);
  bind_timeline(module);
  module.def("counters", &counters_as_dict);
  module.def("set_stop_class", &set_stop_class);
  install_fallback();
}
