#include "quincunx/lite/generation/tokenizers/normalizer.h"

#include <vector>

#include "quincunx/lite/generation/tokenizers/replacement.h"
#include "quincunx/lite/generation/tokenizers/unicode.h"

namespace qx::lite {
namespace {

bool is_chinese_character(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

std::string clean_text(std::string_view text) {
  constexpr char32_t kReplacementCharacter = 0xFFFD;
  std::string clean;
  for (const char32_t c : unicode::code_points(text)) {
    if (c == '\t' || c == '\n' || c == '\r') {
      clean.push_back(' ');
    } else if (c != kReplacementCharacter && !unicode::is_control(c)) {
      unicode::append_utf8(unicode::is_white_space(c) ? U' ' : c, clean);
    }
  }
  return clean;
}

std::string surround_chinese_characters(std::string_view text) {
  std::string spaced;
  for (const char32_t c : unicode::code_points(text)) {
    const bool chinese = is_chinese_character(c);
    if (chinese) spaced.push_back(' ');
    unicode::append_utf8(c, spaced);
    if (chinese) spaced.push_back(' ');
  }
  return spaced;
}

std::string without_nonspacing_marks(std::string_view text) {
  std::string bare;
  for (const char32_t c : unicode::code_points(text)) {
    if (!unicode::is_nonspacing_mark(c)) unicode::append_utf8(c, bare);
  }
  return bare;
}

Result<Normalizer> parse_bert(const JsonObject& object) {
  QX_ASSIGN_OR_RETURN(const bool clean, object.flag("clean_text", true));
  QX_ASSIGN_OR_RETURN(const bool chinese, object.flag("handle_chinese_chars", true));
  QX_ASSIGN_OR_RETURN(const bool lower, object.flag("lowercase", true));
  QX_ASSIGN_OR_RETURN(const bool accents, object.flag("strip_accents", lower));
  return Normalizer([=](std::string_view text) -> Result<std::string> {
    std::string result = clean ? clean_text(text) : std::string(text);
    if (chinese) result = surround_chinese_characters(result);
    if (accents) {
      result = without_nonspacing_marks(unicode::normalize(result, unicode::NormalizationForm::kNfd));
    }
    return lower ? unicode::lower_case(result) : result;
  });
}

Normalizer form(unicode::NormalizationForm form) {
  return [form](std::string_view text) -> Result<std::string> { return unicode::normalize(text, form); };
}

Result<Normalizer> parse_prepend(const JsonObject& object) {
  QX_ASSIGN_OR_RETURN(const std::string prefix, object.text("prepend"));
  return Normalizer([prefix](std::string_view text) -> Result<std::string> {
    return text.empty() ? std::string() : prefix + std::string(text);
  });
}

Result<Normalizer> parse_strip(const JsonObject& object) {
  QX_ASSIGN_OR_RETURN(const bool left, object.flag("strip_left", true));
  QX_ASSIGN_OR_RETURN(const bool right, object.flag("strip_right", true));
  return Normalizer([=](std::string_view text) -> Result<std::string> {
    const std::u32string wide = unicode::code_points(text);
    size_t begin = 0;
    size_t end = wide.size();
    while (left && begin < end && unicode::is_white_space(wide[begin])) ++begin;
    while (right && begin < end && unicode::is_white_space(wide[end - 1])) --end;
    return unicode::to_utf8(std::u32string_view(wide).substr(begin, end - begin));
  });
}

Result<Normalizer> parse_replace(const JsonObject& object) {
  QX_ASSIGN_OR_RETURN(Replacement replacement, Replacement::parse(object));
  return Normalizer([replacement = std::move(replacement)](std::string_view text) { return replacement.apply(text); });
}

Result<Normalizer> parse_sequence(const JsonObject& object) {
  const Json& members = object.field("normalizers");
  if (!members.is_array()) return object.wrong("normalizers", members, "an array");
  std::vector<Normalizer> steps;
  for (const Json& member : members) {
    // A sequence inside a sequence would let a hostile file nest without end.
    if (member.is_object() && member.contains("type") && member["type"] == "Sequence") {
      return unimplemented("tokenizer.json: " + object.part() + " holds a Sequence, expected a flat list");
    }
    QX_ASSIGN_OR_RETURN(Normalizer step, parse_normalizer(member, object.part() + "[]"));
    steps.push_back(std::move(step));
  }
  return Normalizer([steps = std::move(steps)](std::string_view text) -> Result<std::string> {
    std::string result(text);
    for (const Normalizer& step : steps) {
      QX_ASSIGN_OR_RETURN(std::string next, step(result));
      result = std::move(next);
    }
    return result;
  });
}

}  // namespace

Result<Normalizer> parse_normalizer(const Json& value, const std::string& part) {
  using unicode::NormalizationForm;
  if (value.is_null())
    return Normalizer([](std::string_view text) -> Result<std::string> { return std::string(text); });
  QX_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::make(value, part));
  QX_ASSIGN_OR_RETURN(const std::string type, object.text("type"));
  if (type == "BertNormalizer") return parse_bert(object);
  if (type == "NFC") return form(NormalizationForm::kNfc);
  if (type == "NFD") return form(NormalizationForm::kNfd);
  if (type == "NFKC") return form(NormalizationForm::kNfkc);
  if (type == "NFKD") return form(NormalizationForm::kNfkd);
  if (type == "Lowercase") {
    return Normalizer([](std::string_view text) -> Result<std::string> { return unicode::lower_case(text); });
  }
  if (type == "StripAccents") {
    return Normalizer([](std::string_view text) -> Result<std::string> { return without_nonspacing_marks(text); });
  }
  if (type == "Strip") return parse_strip(object);
  if (type == "Prepend") return parse_prepend(object);
  if (type == "Replace") return parse_replace(object);
  if (type == "Sequence") return parse_sequence(object);
  return unimplemented("tokenizer.json: " + part + " has type '" + type +
                       "', expected BertNormalizer, NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Prepend, "
                       "Replace or Sequence (a tokenizer with Precompiled: convert its tokenizer.model instead)");
}

}  // namespace qx::lite
