#include "quincunx/lite/generation/tokenizers/unicode.h"

#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>
#include <unicode/utf8.h>

#include "quincunx/base/check.h"

namespace qx::lite::unicode {
namespace {

icu::StringPiece piece(std::string_view text) { return {text.data(), static_cast<int32_t>(text.size())}; }

constexpr uint32_t kControl = U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CO_MASK;

bool is_ascii_symbol(char32_t code_point) {
  return (code_point >= '!' && code_point <= '/') || (code_point >= ':' && code_point <= '@') ||
         (code_point >= '[' && code_point <= '`') || (code_point >= '{' && code_point <= '~');
}

const icu::Normalizer2* normalizer(NormalizationForm form) {
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* found = nullptr;
  switch (form) {
    case NormalizationForm::kNfc: found = icu::Normalizer2::getNFCInstance(error); break;
    case NormalizationForm::kNfd: found = icu::Normalizer2::getNFDInstance(error); break;
    case NormalizationForm::kNfkc: found = icu::Normalizer2::getNFKCInstance(error); break;
    case NormalizationForm::kNfkd: found = icu::Normalizer2::getNFKDInstance(error); break;
  }
  QX_CHECK_MESSAGE(U_SUCCESS(error), "ICU has no normalisation data");
  return found;
}

bool is_ascii(std::string_view text) {
  for (const char byte : text) {
    if (static_cast<unsigned char>(byte) >= 0x80) return false;
  }
  return true;
}

}  // namespace

std::string replace_invalid(std::string_view text) {
  if (is_ascii(text)) return std::string(text);
  std::string valid;
  valid.reserve(text.size());
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  const auto size = static_cast<int64_t>(text.size());
  for (int64_t index = 0; index < size;) {
    UChar32 code_point = 0;
    U8_NEXT_OR_FFFD(bytes, index, size, code_point);
    append_utf8(static_cast<char32_t>(code_point), valid);
  }
  return valid;
}

std::u32string code_points(std::string_view text) {
  std::u32string result;
  result.reserve(text.size());
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  const auto size = static_cast<int64_t>(text.size());
  for (int64_t index = 0; index < size;) {
    UChar32 code_point = 0;
    U8_NEXT_OR_FFFD(bytes, index, size, code_point);
    result.push_back(static_cast<char32_t>(code_point));
  }
  return result;
}

void append_utf8(char32_t code_point, std::string& text) {
  uint8_t bytes[U8_MAX_LENGTH];
  int32_t size = 0;
  U8_APPEND_UNSAFE(bytes, size, static_cast<UChar32>(code_point));
  text.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
}

std::string to_utf8(std::u32string_view text) {
  std::string result;
  result.reserve(text.size());
  for (const char32_t code_point : text) append_utf8(code_point, result);
  return result;
}

bool is_white_space(char32_t code_point) { return u_isUWhiteSpace(static_cast<UChar32>(code_point)) != 0; }

bool is_control(char32_t code_point) { return (U_GET_GC_MASK(static_cast<UChar32>(code_point)) & kControl) != 0; }

bool is_punctuation(char32_t code_point) {
  return is_ascii_symbol(code_point) || u_ispunct(static_cast<UChar32>(code_point)) != 0;
}

bool is_nonspacing_mark(char32_t code_point) {
  return u_charType(static_cast<UChar32>(code_point)) == U_NON_SPACING_MARK;
}

bool is_numeric(char32_t code_point) { return (U_GET_GC_MASK(static_cast<UChar32>(code_point)) & U_GC_N_MASK) != 0; }

bool is_word(char32_t code_point) {
  const auto c = static_cast<UChar32>(code_point);
  return u_isUAlphabetic(c) != 0 || (U_GET_GC_MASK(c) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0 ||
         u_hasBinaryProperty(c, UCHAR_JOIN_CONTROL) != 0;
}

std::string lower_case(std::string_view text) {
  constexpr char32_t kCapitalIWithDotAbove = 0x130;  // the only one whose small form is two code points
  std::u32string lower;
  lower.reserve(text.size());
  for (const char32_t code_point : code_points(text)) {
    if (code_point == kCapitalIWithDotAbove) {
      lower += U"i\u0307";
    } else {
      lower.push_back(static_cast<char32_t>(u_tolower(static_cast<UChar32>(code_point))));
    }
  }
  return to_utf8(lower);
}

std::string normalize(std::string_view text, NormalizationForm form) {
  if (is_ascii(text)) return std::string(text);
  UErrorCode error = U_ZERO_ERROR;
  const icu::UnicodeString result = normalizer(form)->normalize(icu::UnicodeString::fromUTF8(piece(text)), error);
  QX_CHECK_MESSAGE(U_SUCCESS(error), "ICU could not normalise");
  std::string utf8;
  result.toUTF8String(utf8);
  return utf8;
}

}  // namespace qx::lite::unicode
