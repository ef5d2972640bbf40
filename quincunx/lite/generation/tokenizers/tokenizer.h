// Text to token ids and back. The library quincunx_tokenizers holds this folder, so that quincunx_runtime needs neither
// ICU nor SentencePiece.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quincunx/base/status.h"

namespace qx::lite {

inline constexpr int32_t kNoToken = -1;

// Whether encode() puts around the text what the model was trained with, such as [CLS] and [SEP].
enum class SpecialTokens { kAdd, kLeaveOut };

// All functions may be called from several threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Bytes that are not UTF-8 are read as U+FFFD, one for each maximal wrong part, as Python's errors="replace" does.
  Result<std::vector<int32_t>> encode(std::string_view text, SpecialTokens special_tokens) const;

  // encode() with special tokens, of as much of the text as `max_tokens` have room for. INVALID_ARGUMENT if there is
  // none for the special tokens themselves.
  Result<std::vector<int32_t>> encode_at_most(std::string_view text, int64_t max_tokens) const;

  // The text of `tokens`; special tokens leave no text. Each must lie in [0, vocab_size()).
  virtual Result<std::string> decode(std::span<const int32_t> tokens) const = 0;

  // One more than the largest token id.
  virtual int32_t vocab_size() const = 0;

  // The id of exactly this token, or kNoToken.
  virtual int32_t token_id(std::string_view token) const = 0;

 protected:
  virtual Result<std::vector<int32_t>> encode_text(std::string_view text) const = 0;
  virtual std::vector<int32_t> with_special_tokens(std::span<const int32_t> tokens) const = 0;
};

// What a SentencePiece model file does not say itself.
struct SentencePieceOptions {
  bool add_begin_of_sequence = false;
  bool add_end_of_sequence = false;
};

// The bytes of a SentencePiece model ("tokenizer.model").
Result<std::unique_ptr<Tokenizer>> load_sentencepiece(std::string_view model, const SentencePieceOptions& options);

// The text of a Hugging Face `tokenizer.json` with a WordPiece or a BPE model. Its `truncation` and `padding` are not
// the tokenizer's: how long a text may be is the model's matter. An unknown part is UNIMPLEMENTED and names itself.
Result<std::unique_ptr<Tokenizer>> load_tokenizer_json(std::string_view json);

}  // namespace qx::lite
