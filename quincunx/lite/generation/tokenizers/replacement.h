// {"pattern": {"String": ...} or {"Regex": ...}, "content": ...}: normalizers and decoders share it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "quincunx/lite/generation/tokenizers/json_fields.h"
#include "quincunx/lite/generation/tokenizers/unicode.h"

namespace qx::lite {

// A `pattern` that is found in texts, without overlap, from left to right.
class Pattern {
 public:
  static Result<Pattern> parse(const JsonObject& owner);
  Result<std::vector<unicode::Span>> find_all(std::string_view text) const;

 private:
  std::string literal_;
  std::optional<unicode::Regex> regex_;
};

class Replacement {
 public:
  static Result<Replacement> parse(const JsonObject& object);
  Result<std::string> apply(std::string_view text) const;

 private:
  Pattern pattern_;
  std::string content_;
};

}  // namespace qx::lite
