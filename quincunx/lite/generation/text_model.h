// A converted model that reads text: a session, its tokenizer and how the two belong together.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quincunx/lite/generation/generator.h"
#include "quincunx/lite/generation/tokenizers/tokenizer.h"
#include "quincunx/lite/session.h"

namespace qx::lite {

// What the converter knew and the runtime needs: the metadata of a .qxm.
struct TextSettings {
  // Generation ends before any of them, beside those that the caller names.
  std::vector<int32_t> stop_tokens;
  // What fills up the shorter texts of a batch.
  int32_t padding_token = 0;
};

// The stop tokens in the metadata of the .qxm file `name`; none where it names none.
Result<std::vector<int32_t>> read_stop_tokens(const std::string& metadata, const std::string& name);

// Sees the text as soon as it is certain, in pieces; false ends the generation.
using TextCallback = std::function<bool(std::string_view text)>;

struct GeneratedText {
  std::string text;
  Generation generation;
};

// Movable. One call at a time.
class TextModel {
 public:
  // A .qxm file with a tokenizer. INVALID_ARGUMENT if it has none.
  static Result<TextModel> load(const std::string& path, const SessionOptions& options = {});

  TextModel(Session session, std::unique_ptr<Tokenizer> tokenizer, TextSettings settings)
      : session_(std::move(session)), tokenizer_(std::move(tokenizer)), settings_(std::move(settings)) {}

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  Session& session() { return session_; }

  // The text after `prompt`, from the methods `prefill` and `decode`.
  Result<GeneratedText> generate(std::string_view prompt, GenerateOptions options,
                                 const TextCallback& on_text = nullptr);

  // One row a text, from the method `encode`: float32[texts, width]. What a text has beyond the model's length is left
  // out.
  Result<Tensor> embed(std::span<const std::string> texts, const RunOptions& options = {});

 private:
  Session session_;
  std::unique_ptr<Tokenizer> tokenizer_;
  TextSettings settings_;
};

}  // namespace qx::lite
