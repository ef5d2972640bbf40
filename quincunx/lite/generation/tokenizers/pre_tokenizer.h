// The `pre_tokenizer` of a tokenizer.json: where a normalised text is cut before the subword model sees it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "quincunx/lite/generation/tokenizers/json_fields.h"

namespace qx::lite {

struct Piece {
  std::string text;
  // Whether the whole text begins with this piece.
  bool first = false;
};

using PreTokenizer = std::function<Result<std::vector<Piece>>(const Piece& piece)>;

// BertPreTokenizer, ByteLevel, Split, Whitespace, WhitespaceSplit, Punctuation, Digits, Metaspace and Sequence; null
// is none.
Result<PreTokenizer> parse_pre_tokenizer(const Json& value, const std::string& part);

}  // namespace qx::lite
