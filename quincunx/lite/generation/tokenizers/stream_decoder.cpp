#include "quincunx/lite/generation/tokenizers/stream_decoder.h"

#include <algorithm>
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
  const size_t shown = std::min(num_shown_bytes_, text.size());
  std::string_view certain = text;
  for (int count = 0; count < kMaxIncompleteBytes && certain.ends_with(kReplacementCharacter); ++count) {
    if (certain.size() - kReplacementCharacter.size() < shown) break;
    certain.remove_suffix(kReplacementCharacter.size());
  }
  const std::string fresh(certain.substr(shown));
  num_shown_bytes_ = certain.size();
  if (fresh.empty() || certain.size() < text.size()) return fresh;
  tokens_.erase(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(num_context_));
  num_context_ = tokens_.size();
  QX_ASSIGN_OR_RETURN(const std::string context, tokenizer_.decode(tokens_));
  num_shown_bytes_ = context.size();
  return fresh;
}

Result<std::string> StreamDecoder::finish() {
  QX_ASSIGN_OR_RETURN(const std::string text, tokenizer_.decode(tokens_));
  tokens_.clear();
  num_context_ = 0;
  return text.substr(std::min(std::exchange(num_shown_bytes_, 0), text.size()));
}

}  // namespace qx::lite
