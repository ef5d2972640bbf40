// The extension module _quincunx_distributed. python/quincunx/mccl is its only user.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#include "quincunx/collectives/flight_recorder.h"
#include "quincunx/collectives/security/secure_channel.h"
#include "quincunx/torch/distributed/backend.h"
#include "quincunx/torch/distributed/errors.h"
#include "quincunx/torch/distributed/network_store.h"

namespace {

// Lets a group be destroyed without the GIL: its threads, which are joined then, may be waiting for it.
template <typename T>
class PointerReleasedWithoutGil {
 public:
  PointerReleasedWithoutGil() = default;
  PointerReleasedWithoutGil(c10::intrusive_ptr<T> pointer) : pointer_(std::move(pointer)) {}  // NOLINT
  explicit PointerReleasedWithoutGil(T* pointer) : pointer_(c10::intrusive_ptr<T>::unsafe_steal_from_new(pointer)) {}
  PointerReleasedWithoutGil(const PointerReleasedWithoutGil&) = default;
  PointerReleasedWithoutGil(PointerReleasedWithoutGil&&) noexcept = default;
  PointerReleasedWithoutGil& operator=(const PointerReleasedWithoutGil&) = default;
  PointerReleasedWithoutGil& operator=(PointerReleasedWithoutGil&&) noexcept = default;
  ~PointerReleasedWithoutGil() {
    if (!pointer_) return;
    if (PyGILState_Check()) {
      pybind11::gil_scoped_release release;
      pointer_.reset();
    } else {
      pointer_.reset();
    }
  }
  T* get() const { return pointer_.get(); }
  operator c10::intrusive_ptr<T>() const { return pointer_; }  // NOLINT

 private:
  c10::intrusive_ptr<T> pointer_;
};

}  // namespace

PYBIND11_DECLARE_HOLDER_TYPE(T, PointerReleasedWithoutGil<T>, true)

namespace {

namespace py = pybind11;
using qx::collectives::Options;
using qx::collectives::Phase;
using qx::distributed::McclBackend;

using qx::collectives::FlightFormat;

FlightFormat format_of(bool as_trace) { return as_trace ? FlightFormat::kChromeTrace : FlightFormat::kJson; }

const char* phase_name(Phase phase) {
  switch (phase) {
    case Phase::kConnecting: return "connecting";
    case Phase::kReady: return "ready";
    case Phase::kFailed: return "failed";
    case Phase::kAborted: return "aborted";
  }
  return "unknown";
}

py::tuple progress(const McclBackend& backend) {
  qx::collectives::Progress progress;
  {
    py::gil_scoped_release release;
    progress = backend.communicator()->progress();
  }
  return py::make_tuple(phase_name(progress.phase), progress.ranks_seen, progress.ranks_missing, progress.error);
}

void bind_options(py::module_& module) {
  using qx::collectives::Credentials;
  py::class_<Credentials, std::shared_ptr<Credentials>>(module, "Credentials");
  module.def(
      "load_credentials",
      [](std::optional<std::string> secret, std::optional<std::string> secret_file,
         std::optional<std::string> tls_certificate_file, std::optional<std::string> tls_key_file,
         std::optional<std::string> tls_authority_file) {
        const auto credentials =
            Credentials::from_named({std::move(secret), std::move(secret_file), std::move(tls_certificate_file),
                                     std::move(tls_key_file), std::move(tls_authority_file)});
        qx::distributed::throw_if_error(credentials.status());
        return std::const_pointer_cast<Credentials>(*credentials);  // pybind11 knows no pointers to const
      },
      py::kw_only(), py::arg("secret"), py::arg("secret_file"), py::arg("tls_certificate_file"),
      py::arg("tls_key_file"), py::arg("tls_authority_file"));
  py::class_<Options>(module, "Options")
      .def(py::init<>())
      .def_readwrite("rank", &Options::rank)
      .def_readwrite("world_size", &Options::world_size)
      .def_readwrite("group_name", &Options::group_name)
      .def_readwrite("generation", &Options::generation)
      .def_readwrite("timeout", &Options::timeout)
      .def_readwrite("interface_address", &Options::interface_address)
      .def_readwrite("allow_shared_memory", &Options::allow_shared_memory)
      .def_readwrite("host_id", &Options::host_id)
      .def_property(
          "credentials",
          [](const Options& options) { return std::const_pointer_cast<Credentials>(options.credentials); },
          [](Options& options, std::shared_ptr<Credentials> credentials) { options.credentials = credentials; });
}

void bind_backend(py::module_& module) {
  const py::call_guard<py::gil_scoped_release> without_gil;
  py::class_<McclBackend, c10d::Backend, PointerReleasedWithoutGil<McclBackend>>(module, "McclBackend")
      .def_static("create", &McclBackend::create, py::arg("store"), py::arg("options"), without_gil)
      .def("split_members", &McclBackend::split_members, py::arg("ranks"), py::arg("name"), py::arg("timeout"),
           without_gil)
      .def_property_readonly("options", &McclBackend::getBackendOptions)
      .def(
          "ready", [](const McclBackend& backend) { return backend.communicator()->ready(); }, without_gil)
      .def(
          "wait_ready",
          [](const McclBackend& backend, std::chrono::milliseconds timeout) {
            qx::distributed::throw_if_wait_failed(backend.communicator()->wait_ready(timeout));
          },
          py::arg("timeout"), without_gil)
      .def("progress", &progress)
      .def(
          "statistics_json", [](const McclBackend& backend) { return backend.communicator()->statistics_json(); },
          without_gil);
}

void bind_store(py::module_& module) {
  using qx::distributed::NetworkStore;
  const py::call_guard<py::gil_scoped_release> without_gil;
  py::class_<NetworkStore, c10d::Store, PointerReleasedWithoutGil<NetworkStore>>(module, "NetworkStore")
      .def_property_readonly("port", [](const NetworkStore& store) { return store.core().port(); })
      .def_property_readonly("num_served_connections",
                             [](const NetworkStore& store) { return store.core().num_served_connections(); });
  module.def(
      "open_store",
      [](const std::string& host, uint16_t port, int rank, int world_size, const std::string& generation,
         std::shared_ptr<qx::collectives::Credentials> credentials, bool ends_former,
         std::chrono::milliseconds timeout) {
        qx::collectives::NetworkStore::Options options;
        options.host = host;
        options.port = port;
        options.rank = rank;
        options.world_size = world_size;
        options.generation = generation;
        options.ends_former = ends_former;
        if (credentials) {
          options.credentials = *credentials;
        } else {
          auto of_environment = qx::collectives::Credentials::from_environment();
          qx::distributed::throw_if_error(of_environment.status());
          options.credentials = *std::move(of_environment);
        }
        return NetworkStore::open(options, timeout);
      },
      py::arg("host"), py::arg("port"), py::arg("rank"), py::arg("world_size"), py::arg("generation"),
      py::arg("credentials"), py::arg("ends_former"), py::arg("timeout"), without_gil);
}

// An exception class of its own, so that both `except TimeoutError` and `except DistBackendError` catch it.
void bind_timeout_error(py::module_& module) {
  const py::object backend_error = py::module_::import("torch.distributed").attr("DistBackendError");
  const py::object timeout_error = py::reinterpret_borrow<py::object>(PyExc_TimeoutError);
  py::dict members;
  members["__module__"] = "quincunx.mccl";
  members["__doc__"] = "A collective, or the connecting of its group, did not end within its deadline.";
  const py::object type = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(&PyType_Type));
  // Lives as long as the process: the translator below may run at any time.
  static PyObject* const error_class =
      type("CollectiveTimeoutError", py::make_tuple(backend_error, timeout_error), members).release().ptr();
  module.attr("CollectiveTimeoutError") = py::reinterpret_borrow<py::object>(error_class);
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const qx::distributed::CollectiveTimeout& error) {
      py::set_error(py::handle(error_class), error.what_without_backtrace());
    }
  });
}

}  // namespace

PYBIND11_MODULE(_quincunx_distributed, module) {
  py::module_::import("torch._C._distributed_c10d");  // Registers the base class and the stores.
  module.attr("TORCH_VERSION") = TORCH_VERSION;
  bind_options(module);
  bind_timeout_error(module);
  bind_backend(module);
  bind_store(module);
  module.def(
      "flight_recorder", [](bool as_trace) { return flight_records_text(format_of(as_trace)); }, py::arg("as_trace"),
      py::call_guard<py::gil_scoped_release>());
  qx::distributed::let_signals_interrupt_waits();
  module.def("shutdown_all", &McclBackend::shutdown_all, py::call_guard<py::gil_scoped_release>());
}
