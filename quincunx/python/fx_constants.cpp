#include "quincunx/python/fx_constants.h"

#include <nanobind/ndarray.h>

#include <memory>

namespace nb = nanobind;

namespace qx::python {
namespace {

using Bytes = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// The last holder may be any thread, at any time up to the end of the interpreter.
std::shared_ptr<const void> keep(Bytes bytes) {
  auto* held = new Bytes(std::move(bytes));
  return {held, [](const Bytes* last) {
            if (!Py_IsInitialized()) return;
            const nb::gil_scoped_acquire gil;
            delete last;
          }};
}

}  // namespace

int32_t FxConstants::add(nb::handle tensor) {
  // As bytes, because DLPack has no code for some dtypes.
  const nb::object uint8 = nb::module_::import_("torch").attr("uint8");
  const nb::object flat = tensor.attr("detach")().attr("contiguous")().attr("reshape")(-1).attr("view")(uint8);
  auto bytes = nb::cast<Bytes>(flat);
  const std::pair<const void*, size_t> memory(bytes.data(), bytes.size());
  const auto [entry, fresh] = known_.try_emplace(memory, static_cast<int32_t>(graph_.constants.size()));
  if (fresh || memory.second == 0) {
    const std::span<const std::byte> view(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
    graph_.constants.push_back({.storage = Storage::borrow(view, keep(std::move(bytes))), .offset_bytes = 0});
    entry->second = static_cast<int32_t>(graph_.constants.size()) - 1;
  }
  return entry->second;
}

}  // namespace qx::python
