#include <unicode/regex.h>

#include "quincunx/lite/generation/tokenizers/unicode.h"

namespace qx::lite::unicode {
namespace {

constexpr size_t kMaxPatternBytes = 1 << 16;
constexpr int32_t kMaxStackBytes = 64 << 20;
// In ICU's unit of about a millisecond's work: far beyond what a sane pattern needs for the longest text.
constexpr int32_t kTimeLimit = 2'000;

// Oniguruma's classes: its \s has U+000B and U+0085, and its \w all numbers, which ICU's leave out.
std::string with_unicode_classes(const std::string& pattern) {
  std::string result;
  for (size_t index = 0; index < pattern.size(); ++index) {
    if (pattern[index] != '\\' || index + 1 == pattern.size()) {
      result.push_back(pattern[index]);
      continue;
    }
    const char escaped = pattern[++index];
    if (escaped == 's') {
      result += "\\p{White_Space}";
    } else if (escaped == 'S') {
      result += "\\P{White_Space}";
    } else if (escaped == 'w') {
      result += "[\\p{L}\\p{M}\\p{N}\\p{Pc}]";
    } else if (escaped == 'W') {
      result += "[^\\p{L}\\p{M}\\p{N}\\p{Pc}]";
    } else {
      result += {'\\', escaped};
    }
  }
  return result;
}

size_t utf8_length(const icu::UnicodeString& text, int32_t begin, int32_t end) {
  size_t bytes = 0;
  for (int32_t index = begin; index < end;) {
    const UChar32 code_point = text.char32At(index);
    index += U16_LENGTH(code_point);
    bytes += static_cast<size_t>(U8_LENGTH(code_point));
  }
  return bytes;
}

}  // namespace

struct Regex::Compiled {
  std::string source;
  std::unique_ptr<icu::RegexPattern> pattern;
};

Result<Regex> Regex::compile(const std::string& pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return invalid_argument("pattern has " + std::to_string(pattern.size()) + " bytes, expected at most " +
                            std::to_string(kMaxPatternBytes));
  }
  UErrorCode error = U_ZERO_ERROR;
  UParseError where = {};
  auto compiled = std::make_shared<Compiled>();
  compiled->source = pattern;
  compiled->pattern.reset(
      icu::RegexPattern::compile(icu::UnicodeString::fromUTF8(with_unicode_classes(pattern)), where, error));
  if (U_FAILURE(error)) {
    return invalid_argument("pattern '" + pattern + "' is not a regular expression that ICU reads: " +
                            u_errorName(error) + " at character " + std::to_string(where.offset));
  }
  return Regex(std::move(compiled));
}

Result<std::vector<Span>> Regex::find_all(std::string_view text) const {
  UErrorCode error = U_ZERO_ERROR;
  const icu::UnicodeString wide =
      icu::UnicodeString::fromUTF8(icu::StringPiece(text.data(), static_cast<int32_t>(text.size())));
  const std::unique_ptr<icu::RegexMatcher> matcher(compiled_->pattern->matcher(wide, error));
  if (U_SUCCESS(error)) matcher->setStackLimit(kMaxStackBytes, error);
  if (U_SUCCESS(error)) matcher->setTimeLimit(kTimeLimit, error);
  std::vector<Span> spans;
  int32_t position = 0;
  size_t byte = 0;
  while (U_SUCCESS(error) && matcher->find(error)) {
    const int32_t begin = matcher->start(error);
    const int32_t end = matcher->end(error);
    if (begin == end) continue;
    const size_t first = byte + utf8_length(wide, position, begin);
    byte = first + utf8_length(wide, begin, end);
    position = end;
    spans.push_back({first, byte});
  }
  if (U_FAILURE(error)) {
    return resource_exhausted("pattern '" + compiled_->source + "' failed on a text of " + std::to_string(text.size()) +
                              " bytes: " + u_errorName(error));
  }
  return spans;
}

}  // namespace qx::lite::unicode
