// Cutting a text where something matches, in the five ways that a tokenizer.json can ask for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "quincunx/lite/generation/tokenizers/json_fields.h"
#include "quincunx/lite/generation/tokenizers/pre_tokenizer.h"
#include "quincunx/lite/generation/tokenizers/unicode.h"

namespace qx::lite {

// What becomes of a match: it goes, stands alone, joins the text before or after it, or joins the matches beside it.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

Result<SplitBehavior> parse_split_behavior(const JsonObject& object);

// `matches` in order and apart from each other. No piece is empty. With `invert` they are what is kept, each by itself,
// and what lies between them is what `behavior` is about.
std::vector<Piece> split(const Piece& piece, const std::vector<unicode::Span>& matches, SplitBehavior behavior,
                         bool invert = false);

}  // namespace qx::lite
