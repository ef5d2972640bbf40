#include "quincunx/lite/generation/tokenizers/stream_decoder.h"

#include <utility>

namespace qx::lite {
namespace {

constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";
// A character of four bytes is incomplete after three, which some decoders show as one U+FFFD each.
constexpr int kMaxIncompleteBytes = 3;

}  // namespace

Result<std::string> StreamDecoder::push(int32_t token) {
  tokens_.push_back(token);
  QX_ASSIGN_OR_RETURN(const std::string text, tokenizer_.decode(tokens_));
  // Some decoders show a whole run of bytes as U+FFFD until its last character is complete.
  if (!text.starts_with(shown_)) return std::string();
  std::string_view certain = text;
  for (int count = 0; count < kMaxIncompleteBytes && certain.ends_with(kReplacementCharacter); ++count) {
    if (certain.size() - kReplacementCharacter.size() < shown_.size()) break;
    certain.remove_suffix(kReplacementCharacter.size());
  }
  std::string fresh(certain.substr(shown_.size()));
  shown_ = certain;
  if (fresh.empty() || certain.size() < text.size()) return fresh;
  tokens_.erase(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(num_context_));
  num_context_ = tokens_.size();
  QX_ASSIGN_OR_RETURN(shown_, tokenizer_.decode(tokens_));
  return fresh;
}

Result<std::string> StreamDecoder::finish() {
  const std::vector<int32_t> tokens = std::exchange(tokens_, {});
  const std::string shown = std::exchange(shown_, "");
  const size_t num_context = std::exchange(num_context_, 0);
  QX_ASSIGN_OR_RETURN(const std::string text, tokenizer_.decode(tokens));
  if (text.starts_with(shown)) return text.substr(shown.size());
  return tokenizer_.decode(std::span(tokens).subspan(num_context));
}

}  // namespace qx::lite
