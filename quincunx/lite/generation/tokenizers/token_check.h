// What every tokenizer asks of its arguments.
#pragma once

#include <climits>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "quincunx/base/status.h"

namespace qx::lite {

// ICU and SentencePiece count in int.
inline Status check_text_size(std::string_view text) {
  if (text.size() <= INT_MAX) return ok_status();
  return invalid_argument("encode: text has " + std::to_string(text.size()) + " bytes, expected at most " +
                          std::to_string(INT_MAX));
}

inline Status check_tokens(std::span<const int32_t> tokens, int32_t vocab_size) {
  for (size_t index = 0; index < tokens.size(); ++index) {
    if (tokens[index] >= 0 && tokens[index] < vocab_size) continue;
    return invalid_argument("decode: tokens[" + std::to_string(index) + "] is " + std::to_string(tokens[index]) +
                            ", expected 0 to " + std::to_string(vocab_size - 1));
  }
  return ok_status();
}

}  // namespace qx::lite
