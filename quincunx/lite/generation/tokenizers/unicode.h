// The Unicode facts that tokenizers ask for, from ICU. Strings are UTF-8.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "quincunx/base/status.h"

namespace qx::lite::unicode {

// `text` with U+FFFD in place of each maximal part that is not UTF-8. The other functions expect valid UTF-8.
std::string replace_invalid(std::string_view text);

std::u32string code_points(std::string_view text);
std::string to_utf8(std::u32string_view text);
void append_utf8(char32_t code_point, std::string& text);

// The property White_Space.
bool is_white_space(char32_t code_point);
// Categories Cc, Cf and Co.
bool is_control(char32_t code_point);
// Any P category, and every ASCII symbol such as '$'.
bool is_punctuation(char32_t code_point);
bool is_nonspacing_mark(char32_t code_point);
bool is_numeric(char32_t code_point);
bool is_word(char32_t code_point);

// Each code point by itself, so a final sigma is an ordinary one; "\u0130" becomes two code points.
std::string lower_case(std::string_view text);

enum class NormalizationForm { kNfc, kNfd, kNfkc, kNfkd };
std::string normalize(std::string_view text, NormalizationForm form);

// Bytes [begin, end) of a text.
struct Span {
  size_t begin = 0;
  size_t end = 0;
};

// A regular expression in the syntax that tokenizer.json files use (Oniguruma's; what both it and ICU know).
class Regex {
 public:
  static Result<Regex> compile(const std::string& pattern);
  // The matches in order, without empty ones. RESOURCE_EXHAUSTED where the pattern backtracks beyond all measure.
  Result<std::vector<Span>> find_all(std::string_view text) const;

 private:
  struct Compiled;
  explicit Regex(std::shared_ptr<const Compiled> compiled) : compiled_(std::move(compiled)) {}
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace qx::lite::unicode
