#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "quincunx/lite/generation/generator.h"
#include "quincunx/python/errors.h"
#include "quincunx/python/generation/bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace qx::python {
namespace {

using lite::GenerateOptions;
using lite::Generation;
using lite::Session;

// An exception of the callback ends the generation, and is raised once it has.
Generation generate(Session& session, const std::vector<int32_t>& prompt, const GenerateOptions& options,
                    const nb::object& on_token) {
  std::optional<nb::python_error> raised;
  lite::TokenCallback callback;
  if (!on_token.is_none()) {
    callback = [&](int32_t token) {
      const nb::gil_scoped_acquire acquire;
      try {
        const nb::object answer = on_token(token);
        return answer.is_none() || nb::cast<bool>(answer);
      } catch (nb::python_error& error) {
        raised.emplace(std::move(error));
      } catch (const nb::cast_error&) {
        PyErr_SetString(PyExc_TypeError, "on_token: expected it to return a bool or None");
        raised.emplace();
      }
      return false;
    };
  }
  std::optional<Result<Generation>> result;
  {
    const nb::gil_scoped_release release;
    result.emplace(lite::generate(session, prompt, options, callback));
  }
  if (raised.has_value()) throw std::move(*raised);
  return unwrap(std::move(*result));
}

}  // namespace

void bind_generate(nb::module_& module) {
  nb::class_<Generation>(module, "Generation", "What generate() gave.")
      .def_ro("tokens", &Generation::tokens)
      .def_prop_ro("stop_reason",
                   [](const Generation& generation) { return std::string(stop_reason_name(generation.stop_reason)); })
      .def_ro("num_prompt_tokens", &Generation::num_prompt_tokens)
      .def_ro("prefill_ns", &Generation::prefill_ns)
      .def_ro("decode_ns", &Generation::decode_ns);
  module.def(
      "generate",
      [](Session& session, const std::vector<int32_t>& prompt, int64_t max_tokens, double temperature, int64_t top_k,
         double top_p, uint64_t seed, std::vector<int32_t> stop_tokens, std::optional<double> timeout_s,
         const nb::object& on_token) {
        GenerateOptions options{.sampling = {temperature, top_k, top_p, seed},
                                .max_tokens = max_tokens,
                                .stop_tokens = std::move(stop_tokens)};
        if (timeout_s) options.deadline = unwrap(lite::deadline_after(*timeout_s));
        return generate(session, prompt, options, on_token);
      },
      "session"_a, "prompt"_a, nb::kw_only(), "max_tokens"_a, "temperature"_a, "top_k"_a, "top_p"_a, "seed"_a,
      "stop_tokens"_a, "timeout_s"_a = nb::none(), "on_token"_a = nb::none());
}

}  // namespace qx::python
