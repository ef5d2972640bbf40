// The `post_processor` of a tokenizer.json: the special tokens around a single text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "quincunx/lite/generation/tokenizers/json_fields.h"

namespace qx::lite {

struct SurroundingTokens {
  std::vector<int32_t> before;
  std::vector<int32_t> after;
};

// TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel and Sequence; null is none.
Result<SurroundingTokens> parse_post_processor(const Json& value, const std::string& part);

}  // namespace qx::lite
