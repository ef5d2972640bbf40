#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "quincunx/lite/generation/tokenizers/stream_decoder.h"
#include "quincunx/lite/generation/tokenizers/tokenizer.h"
#include "quincunx/python/errors.h"
#include "quincunx/python/generation/bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace qx::python {
namespace {

using lite::SpecialTokens;
using lite::Tokenizer;

std::string_view bytes_view(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

std::vector<int32_t> encode(const Tokenizer& tokenizer, const nb::bytes& text, bool special_tokens) {
  const std::string_view view = bytes_view(text);
  const nb::gil_scoped_release release;
  return unwrap(tokenizer.encode(view, special_tokens ? SpecialTokens::kAdd : SpecialTokens::kLeaveOut));
}

nb::bytes decode(const Tokenizer& tokenizer, const std::vector<int32_t>& tokens) {
  const std::string text = unwrap(tokenizer.decode(tokens));
  return nb::bytes(text.data(), text.size());
}

// The pieces of a StreamDecoder, the last one from finish().
std::vector<nb::bytes> stream(const Tokenizer& tokenizer, const std::vector<int32_t>& tokens) {
  lite::StreamDecoder decoder(tokenizer);
  std::vector<nb::bytes> pieces;
  for (const int32_t token : tokens) {
    const std::string piece = unwrap(decoder.push(token));
    pieces.emplace_back(piece.data(), piece.size());
  }
  const std::string rest = unwrap(decoder.finish());
  pieces.emplace_back(rest.data(), rest.size());
  return pieces;
}

}  // namespace

void bind_tokenizer(nb::module_& module) {
  nb::class_<Tokenizer>(module, "Tokenizer")
      .def("encode", &encode, "text"_a, nb::kw_only(), "special_tokens"_a)
      .def("decode", &decode, "tokens"_a)
      .def("stream", &stream, "tokens"_a)
      .def_prop_ro("vocab_size", &Tokenizer::vocab_size)
      .def("token_id", [](const Tokenizer& tokenizer, const std::string& token) { return tokenizer.token_id(token); });
  module.def(
      "load_sentencepiece",
      [](const nb::bytes& model, bool add_begin, bool add_end) {
        return unwrap(lite::load_sentencepiece(bytes_view(model), {add_begin, add_end}));
      },
      "model"_a, nb::kw_only(), "add_begin_of_sequence"_a, "add_end_of_sequence"_a);
  module.def(
      "load_tokenizer_json", [](const nb::bytes& json) { return unwrap(lite::load_tokenizer_json(bytes_view(json))); },
      "json"_a);
}

}  // namespace qx::python
