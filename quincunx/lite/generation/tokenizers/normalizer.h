// The `normalizer` of a tokenizer.json: what is changed in a text before it is split.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "quincunx/lite/generation/tokenizers/json_fields.h"

namespace qx::lite {

using Normalizer = std::function<Result<std::string>(std::string_view text)>;

// BertNormalizer, NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Prepend, Replace and Sequence; null is none.
Result<Normalizer> parse_normalizer(const Json& value, const std::string& part);

}  // namespace qx::lite
