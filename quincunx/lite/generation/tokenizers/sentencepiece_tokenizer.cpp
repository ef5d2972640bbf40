#include <sentencepiece_processor.h>

#include "quincunx/lite/generation/tokenizers/token_check.h"
#include "quincunx/lite/generation/tokenizers/tokenizer.h"
#include "quincunx/lite/generation/tokenizers/unicode.h"

namespace qx::lite {
namespace {

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(const SentencePieceOptions& options) : options_(options) {}

  Status load(std::string_view model) {
    const sentencepiece::util::Status status = processor_.LoadFromSerializedProto(model);
    if (!status.ok() || processor_.GetPieceSize() <= 0) {
      return data_loss("load_sentencepiece: model of " + std::to_string(model.size()) +
                       " bytes is not a SentencePiece model: " + status.ToString());
    }
    if (options_.add_begin_of_sequence && processor_.bos_id() < 0) {
      return invalid_argument("load_sentencepiece: add_begin_of_sequence is set, but the model has no such token");
    }
    if (options_.add_end_of_sequence && processor_.eos_id() < 0) {
      return invalid_argument("load_sentencepiece: add_end_of_sequence is set, but the model has no such token");
    }
    return ok_status();
  }

  Result<std::string> decode(std::span<const int32_t> tokens) const override {
    QX_RETURN_IF_ERROR(check_tokens(tokens, vocab_size()));
    std::string text;
    const sentencepiece::util::Status status = processor_.Decode(std::vector<int>(tokens.begin(), tokens.end()), &text);
    if (!status.ok()) return internal_error("decode: SentencePiece failed: " + status.ToString());
    return text;
  }

  int32_t vocab_size() const override { return processor_.GetPieceSize(); }

  int32_t token_id(std::string_view token) const override {
    const int id = processor_.PieceToId(token);
    return processor_.IdToPiece(id) == token ? id : kNoToken;
  }

 protected:
  Result<std::vector<int32_t>> encode_text(std::string_view text) const override {
    QX_RETURN_IF_ERROR(check_text_size(text));
    std::vector<int> tokens;
    const sentencepiece::util::Status status = processor_.Encode(unicode::replace_invalid(text), &tokens);
    if (!status.ok()) return internal_error("encode: SentencePiece failed: " + status.ToString());
    return tokens;
  }

  std::vector<int32_t> with_special_tokens(std::span<const int32_t> tokens) const override {
    std::vector<int32_t> result;
    if (options_.add_begin_of_sequence) result.push_back(processor_.bos_id());
    result.insert(result.end(), tokens.begin(), tokens.end());
    if (options_.add_end_of_sequence) result.push_back(processor_.eos_id());
    return result;
  }

 private:
  SentencePieceOptions options_;
  sentencepiece::SentencePieceProcessor processor_;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> load_sentencepiece(std::string_view model, const SentencePieceOptions& options) {
  auto tokenizer = std::make_unique<SentencePieceTokenizer>(options);
  QX_RETURN_IF_ERROR(tokenizer->load(model));
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

}  // namespace qx::lite
