#include "quincunx/lite/generation/tokenizers/tokenizer.h"

#include <string>

namespace qx::lite {

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text, SpecialTokens special_tokens) const {
  QX_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, encode_text(text));
  return special_tokens == SpecialTokens::kAdd ? with_special_tokens(tokens) : tokens;
}

Result<std::vector<int32_t>> Tokenizer::encode_at_most(std::string_view text, int64_t max_tokens) const {
  const auto num_special = static_cast<int64_t>(with_special_tokens({}).size());
  if (max_tokens < num_special) {
    return invalid_argument("max_tokens is " + std::to_string(max_tokens) + ", expected at least " +
                            std::to_string(num_special) + " for the special tokens");
  }
  QX_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, encode_text(text));
  const auto room = static_cast<size_t>(max_tokens - num_special);
  if (tokens.size() > room) tokens.resize(room);
  return with_special_tokens(tokens);
}

}  // namespace qx::lite
