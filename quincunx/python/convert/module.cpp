#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "quincunx/graph/qxm.h"
#include "quincunx/lite/convert/cached_decoder.h"
#include "quincunx/lite/convert/method.h"
#include "quincunx/python/errors.h"

namespace nb = nanobind;
using namespace nb::literals;

using qx::graph::Graph;

// The graph types are those of quincunx._core, which Python imports first.
NB_MODULE(_convert, module) {
  using namespace qx::python;
  module.doc() = "Rewrites of graphs into methods of a .qxm: see docs/lite.md.";
  register_errors();
  module.def(
      "make_method",
      [](const Graph& graph, const std::string& name) {
        return std::make_shared<Graph>(unwrap(qx::lite::make_method(graph, name)));
      },
      "graph"_a, "name"_a);
  module.def(
      "make_encoder",
      [](const Graph& graph, int64_t max_batch, int64_t max_length) {
        return std::make_shared<Graph>(unwrap(qx::lite::make_encoder(graph, max_batch, max_length)));
      },
      "graph"_a, nb::kw_only(), "max_batch"_a, "max_length"_a);
  module.def(
      "make_decoder_methods",
      [](const Graph& graph, int64_t max_length) {
        std::vector<std::shared_ptr<Graph>> methods;
        for (Graph& method : unwrap(qx::lite::make_decoder_methods(graph, {.max_length = max_length}))) {
          methods.push_back(std::make_shared<Graph>(std::move(method)));
        }
        return methods;
      },
      "graph"_a, nb::kw_only(), "max_length"_a, "The methods prefill and decode.");
  module.def(
      "write_qxm",
      [](const std::string& path, const std::vector<Graph*>& methods, std::string metadata,
         const nb::bytes& tokenizer) {
        qx::graph::Qxm contents;
        for (const Graph* method : methods) {
          if (method == nullptr) throw nb::type_error("methods: expected graphs, got None");
          contents.methods.push_back(*method);
        }
        contents.metadata = std::move(metadata);
        contents.tokenizer.assign(tokenizer.c_str(), tokenizer.size());
        check(qx::graph::write_qxm(path, contents));
      },
      "path"_a, "methods"_a, "metadata"_a, "tokenizer"_a);
}
