// The `decoder` of a tokenizer.json: how the strings of tokens become text.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "quincunx/lite/generation/tokenizers/json_fields.h"

namespace qx::lite {

// The text is the result's strings one after another.
using TokenDecoder = std::function<Result<std::vector<std::string>>(std::vector<std::string> tokens)>;

// WordPiece, ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace and Sequence; null joins with spaces.
Result<TokenDecoder> parse_token_decoder(const Json& value, const std::string& part);

}  // namespace qx::lite
