// How a word becomes tokens: the `model` of a tokenizer.json.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "quincunx/lite/generation/tokenizers/vocabulary.h"

namespace qx::lite {

class SubwordModel {
 public:
  virtual ~SubwordModel() = default;
  // Appends the tokens of one word, which is not empty.
  virtual void tokenize(std::string_view word, std::vector<int32_t>& tokens) const = 0;
};

// Both keep a reference to `vocabulary`.
Result<std::unique_ptr<SubwordModel>> parse_word_piece(const JsonObject& model, const Vocabulary& vocabulary);
Result<std::unique_ptr<SubwordModel>> parse_bpe(const JsonObject& model, const Vocabulary& vocabulary);

}  // namespace qx::lite
