// The `added_tokens` of a tokenizer.json: strings that are one token wherever a text has them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "quincunx/lite/generation/tokenizers/normalizer.h"
#include "quincunx/lite/generation/tokenizers/vocabulary.h"

namespace qx::lite {

// Bytes of a text: an added token, or text between them (kNoToken).
struct TextPart {
  std::string text;
  int32_t token = kNoToken;
  // Whether the whole text begins with this part.
  bool first = false;
};

class AddedTokens {
 public:
  // Adds each to `vocabulary`. Those marked `normalized` are looked for as `normalizer` writes them.
  static Result<AddedTokens> parse(const Json& value, const Normalizer& normalizer, Vocabulary& vocabulary);

  // `text` cut into added tokens and normalised parts, none of them empty.
  Result<std::vector<TextPart>> split(std::string_view text, const Normalizer& normalizer) const;

  bool is_special(int32_t token) const { return special_.contains(token); }

 private:
  struct Entry {
    std::string content;
    int32_t token = kNoToken;
    bool single_word = false;
    bool strips_left = false;
    bool strips_right = false;
  };
  // By first byte, the longest first.
  struct Group {
    std::vector<std::vector<Entry>> by_byte = std::vector<std::vector<Entry>>(256);
    bool empty = true;
    void add(Entry entry);
    const Entry* longest_at(std::string_view text, size_t position) const;
  };

  static std::vector<TextPart> cut(const TextPart& part, const Group& group);

  Group raw_;
  Group normalized_;
  std::unordered_set<int32_t> special_;
};

}  // namespace qx::lite
