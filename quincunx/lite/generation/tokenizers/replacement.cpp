#include "quincunx/lite/generation/tokenizers/replacement.h"

namespace qx::lite {

Result<Pattern> Pattern::parse(const JsonObject& owner) {
  QX_ASSIGN_OR_RETURN(const JsonObject object, owner.object("pattern"));
  Pattern pattern;
  if (object.field("Regex").is_null()) {
    QX_ASSIGN_OR_RETURN(pattern.literal_, object.text("String"));
    if (pattern.literal_.empty()) return object.wrong("String", "", "at least one character");
    return pattern;
  }
  QX_ASSIGN_OR_RETURN(const std::string source, object.text("Regex"));
  Result<unicode::Regex> regex = unicode::Regex::compile(source);
  if (!regex.ok()) {
    return Status(regex.status().code(), "tokenizer.json: " + object.part() + ": " + regex.status().message());
  }
  pattern.regex_ = std::move(regex).value();
  return pattern;
}

Result<std::vector<unicode::Span>> Pattern::find_all(std::string_view text) const {
  if (regex_.has_value()) return regex_->find_all(text);
  std::vector<unicode::Span> spans;
  for (size_t begin = text.find(literal_); begin != std::string_view::npos;
       begin = text.find(literal_, spans.back().end)) {
    spans.push_back({begin, begin + literal_.size()});
  }
  return spans;
}

Result<Replacement> Replacement::parse(const JsonObject& object) {
  Replacement replacement;
  QX_ASSIGN_OR_RETURN(replacement.pattern_, Pattern::parse(object));
  QX_ASSIGN_OR_RETURN(replacement.content_, object.text("content"));
  return replacement;
}

Result<std::string> Replacement::apply(std::string_view text) const {
  QX_ASSIGN_OR_RETURN(const std::vector<unicode::Span> spans, pattern_.find_all(text));
  std::string result;
  size_t position = 0;
  for (const unicode::Span& span : spans) {
    result += text.substr(position, span.begin - position);
    result += content_;
    position = span.end;
  }
  return result += text.substr(position);
}

}  // namespace qx::lite
