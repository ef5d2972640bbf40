#include <utility>

#include "quincunx/lite/generation/tokenizers/added_tokens.h"
#include "quincunx/lite/generation/tokenizers/json_fields.h"
#include "quincunx/lite/generation/tokenizers/normalizer.h"
#include "quincunx/lite/generation/tokenizers/post_processor.h"
#include "quincunx/lite/generation/tokenizers/pre_tokenizer.h"
#include "quincunx/lite/generation/tokenizers/subword_model.h"
#include "quincunx/lite/generation/tokenizers/token_check.h"
#include "quincunx/lite/generation/tokenizers/token_decoder.h"
#include "quincunx/lite/generation/tokenizers/tokenizer.h"
#include "quincunx/lite/generation/tokenizers/unicode.h"

namespace qx::lite {
namespace {

class JsonTokenizer final : public Tokenizer {
 public:
  Status parse(const JsonObject& document) {
    QX_ASSIGN_OR_RETURN(const JsonObject model, document.object("model"));
    QX_ASSIGN_OR_RETURN(vocabulary_, Vocabulary::parse(model));
    QX_ASSIGN_OR_RETURN(model_, parse_model(model, vocabulary_));
    QX_ASSIGN_OR_RETURN(normalizer_, parse_normalizer(document.field("normalizer"), "normalizer"));
    QX_ASSIGN_OR_RETURN(pre_tokenizer_, parse_pre_tokenizer(document.field("pre_tokenizer"), "pre_tokenizer"));
    QX_ASSIGN_OR_RETURN(surroundings_, parse_post_processor(document.field("post_processor"), "post_processor"));
    QX_ASSIGN_OR_RETURN(decoder_, parse_token_decoder(document.field("decoder"), "decoder"));
    QX_ASSIGN_OR_RETURN(added_, AddedTokens::parse(document.field("added_tokens"), normalizer_, vocabulary_));
    QX_RETURN_IF_ERROR(check_tokens(surroundings_.before, vocab_size()));
    return check_tokens(surroundings_.after, vocab_size());
  }

  Result<std::string> decode(std::span<const int32_t> tokens) const override {
    QX_RETURN_IF_ERROR(check_tokens(tokens, vocab_size()));
    std::vector<std::string> strings;
    for (const int32_t token : tokens) {
      const std::string& text = vocabulary_.token(token);
      if (!text.empty() && !added_.is_special(token)) strings.push_back(text);
    }
    QX_ASSIGN_OR_RETURN(const std::vector<std::string> decoded, decoder_(std::move(strings)));
    std::string text;
    for (const std::string& one : decoded) text += one;
    return text;
  }

  int32_t vocab_size() const override { return vocabulary_.size(); }
  int32_t token_id(std::string_view token) const override { return vocabulary_.find(token); }

 protected:
  Result<std::vector<int32_t>> encode_text(std::string_view text) const override {
    QX_RETURN_IF_ERROR(check_text_size(text));
    std::vector<int32_t> tokens;
    QX_ASSIGN_OR_RETURN(const std::vector<TextPart> parts, added_.split(unicode::replace_invalid(text), normalizer_));
    for (const TextPart& part : parts) QX_RETURN_IF_ERROR(encode_part(part, tokens));
    return tokens;
  }

  std::vector<int32_t> with_special_tokens(std::span<const int32_t> tokens) const override {
    std::vector<int32_t> result = surroundings_.before;
    result.insert(result.end(), tokens.begin(), tokens.end());
    result.insert(result.end(), surroundings_.after.begin(), surroundings_.after.end());
    return result;
  }

 private:
  static Result<std::unique_ptr<SubwordModel>> parse_model(const JsonObject& model, const Vocabulary& vocabulary) {
    QX_ASSIGN_OR_RETURN(const std::string type, model.text("type"));
    if (type == "WordPiece") return parse_word_piece(model, vocabulary);
    if (type == "BPE") return parse_bpe(model, vocabulary);
    return unimplemented("tokenizer.json: model has type '" + type +
                         "', expected WordPiece or BPE (a Unigram model: convert its tokenizer.model instead)");
  }

  Status encode_part(const TextPart& part, std::vector<int32_t>& tokens) const {
    if (part.token != kNoToken) {
      tokens.push_back(part.token);
      return ok_status();
    }
    QX_ASSIGN_OR_RETURN(const std::vector<Piece> pieces, pre_tokenizer_({part.text, part.first}));
    for (const Piece& piece : pieces) {
      if (!piece.text.empty()) model_->tokenize(piece.text, tokens);
    }
    return ok_status();
  }

  Vocabulary vocabulary_;
  std::unique_ptr<SubwordModel> model_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  SurroundingTokens surroundings_;
  TokenDecoder decoder_;
  AddedTokens added_;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> load_tokenizer_json(std::string_view json) {
  const Json document = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded()) {
    return data_loss("tokenizer.json: " + std::to_string(json.size()) + " bytes that are not JSON");
  }
  QX_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::make(document, "the document"));
  auto tokenizer = std::make_unique<JsonTokenizer>();
  QX_RETURN_IF_ERROR(tokenizer->parse(object));
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

}  // namespace qx::lite
