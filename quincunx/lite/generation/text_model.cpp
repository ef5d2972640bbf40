#include "quincunx/lite/generation/text_model.h"

#include <limits>

#include "quincunx/graph/qxm.h"
#include "quincunx/lite/generation/embedder.h"
#include "quincunx/lite/generation/tokenizers/json_fields.h"
#include "quincunx/lite/generation/tokenizers/stream_decoder.h"

namespace qx::lite {
namespace {

Result<std::unique_ptr<Tokenizer>> read_tokenizer(const JsonObject& metadata, const std::string& bytes) {
  QX_ASSIGN_OR_RETURN(const JsonObject tokenizer, metadata.object("tokenizer"));
  QX_ASSIGN_OR_RETURN(const std::string format, tokenizer.text("format"));
  if (format == "json") return load_tokenizer_json(bytes);
  if (format != "sentencepiece") return tokenizer.wrong("format", format, "json or sentencepiece");
  SentencePieceOptions options;
  QX_ASSIGN_OR_RETURN(options.add_begin_of_sequence, tokenizer.flag("add_begin_of_sequence", false));
  QX_ASSIGN_OR_RETURN(options.add_end_of_sequence, tokenizer.flag("add_end_of_sequence", false));
  return load_sentencepiece(bytes, options);
}

bool is_token(const Json& value, int32_t vocab_size) {
  return value.is_number_integer() && value >= 0 && value < vocab_size;
}

std::string tokens_below(int32_t vocab_size) { return "tokens from 0 to " + std::to_string(vocab_size - 1); }

Result<std::vector<int32_t>> stop_tokens_of(const JsonObject& metadata, int32_t vocab_size) {
  std::vector<int32_t> tokens;
  const Json& list = metadata.field("stop_tokens");
  if (!list.is_array() && !list.is_null()) return metadata.wrong("stop_tokens", list, tokens_below(vocab_size));
  for (const Json& token : list) {
    if (!is_token(token, vocab_size)) return metadata.wrong("stop_tokens", list, tokens_below(vocab_size));
    tokens.push_back(token.get<int32_t>());
  }
  return tokens;
}

Result<TextSettings> read_settings(const JsonObject& metadata, int32_t vocab_size) {
  TextSettings settings;
  QX_ASSIGN_OR_RETURN(settings.stop_tokens, stop_tokens_of(metadata, vocab_size));
  const Json& padding = metadata.field("padding_token");
  if (padding.is_null()) return settings;
  if (!is_token(padding, vocab_size)) return metadata.wrong("padding_token", padding, tokens_below(vocab_size));
  settings.padding_token = padding.get<int32_t>();
  return settings;
}

}  // namespace

Result<std::vector<int32_t>> read_stop_tokens(const std::string& metadata, const std::string& name) {
  const Json document = Json::parse(metadata, nullptr, /*allow_exceptions=*/false);
  QX_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::make(document, "metadata", name));
  return stop_tokens_of(object, std::numeric_limits<int32_t>::max());
}

Result<TextModel> TextModel::load(const std::string& path, const SessionOptions& options) {
  QX_ASSIGN_OR_RETURN(graph::Qxm model, graph::open_qxm(path));
  if (model.tokenizer.empty()) {
    return invalid_argument(path + " holds no tokenizer; convert it again with tokenizer=...");
  }
  const Json document = Json::parse(model.metadata, nullptr, /*allow_exceptions=*/false);
  QX_ASSIGN_OR_RETURN(const JsonObject metadata, JsonObject::make(document, "metadata", path));
  QX_ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer, read_tokenizer(metadata, model.tokenizer));
  QX_ASSIGN_OR_RETURN(TextSettings settings, read_settings(metadata, tokenizer->vocab_size()));
  QX_ASSIGN_OR_RETURN(Session session, Session::create(std::move(model.methods), options));
  return TextModel(std::move(session), std::move(tokenizer), std::move(settings));
}

Result<GeneratedText> TextModel::generate(std::string_view prompt, GenerateOptions options,
                                          const TextCallback& on_text) {
  QX_RETURN_IF_ERROR(check_decoder(session_));
  QX_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, tokenizer_->encode(prompt, SpecialTokens::kAdd));
  options.stop_tokens.insert(options.stop_tokens.end(), settings_.stop_tokens.begin(), settings_.stop_tokens.end());
  StreamDecoder decoder(*tokenizer_);
  GeneratedText result;
  Status decoding = ok_status();
  const auto show = [&](Result<std::string> piece) {
    if (!piece.ok()) {
      decoding = piece.status();
      return false;
    }
    result.text += *piece;
    return piece->empty() || on_text == nullptr || on_text(*piece);
  };
  QX_ASSIGN_OR_RETURN(result.generation, lite::generate(session_, tokens, options,
                                                        [&](int32_t token) { return show(decoder.push(token)); }));
  if (decoding.ok()) show(decoder.finish());
  QX_RETURN_IF_ERROR(decoding);
  return result;
}

Result<Tensor> TextModel::embed(std::span<const std::string> texts, const RunOptions& options) {
  QX_RETURN_IF_ERROR(check_encoder(session_));
  std::vector<std::vector<int32_t>> tokens;
  for (const std::string& text : texts) {
    QX_ASSIGN_OR_RETURN(std::vector<int32_t> one, tokenizer_->encode_at_most(text, encoder_capacity(session_)));
    tokens.push_back(std::move(one));
  }
  return lite::embed(session_, tokens, settings_.padding_token, options);
}

}  // namespace qx::lite
