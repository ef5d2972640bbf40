#include "quincunx/lite/generation/tokenizers/added_tokens.h"

#include <algorithm>

#include "quincunx/lite/generation/tokenizers/unicode.h"

namespace qx::lite {
namespace {

bool begins_code_point(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

// Where the code point that ends at `end` begins.
size_t previous_code_point(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && !begins_code_point(text[begin])) --begin;
  return begin;
}

size_t next_code_point(std::string_view text, size_t begin) {
  size_t end = begin + 1;
  while (end < text.size() && !begins_code_point(text[end])) ++end;
  return end;
}

template <typename Predicate>
bool holds(std::string_view text, size_t begin, size_t end, Predicate predicate) {
  return predicate(unicode::code_points(text.substr(begin, end - begin)).front());
}

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  if (begin > 0 && holds(text, previous_code_point(text, begin), begin, unicode::is_word)) return false;
  return end == text.size() || !holds(text, end, next_code_point(text, end), unicode::is_word);
}

}  // namespace

void AddedTokens::Group::add(Entry entry) {
  auto& entries = by_byte[static_cast<unsigned char>(entry.content.front())];
  const auto shorter = std::find_if(entries.begin(), entries.end(),
                                    [&](const Entry& other) { return other.content.size() < entry.content.size(); });
  entries.insert(shorter, std::move(entry));
  empty = false;
}

const AddedTokens::Entry* AddedTokens::Group::longest_at(std::string_view text, size_t position) const {
  for (const Entry& entry : by_byte[static_cast<unsigned char>(text[position])]) {
    if (text.substr(position).starts_with(entry.content)) return &entry;
  }
  return nullptr;
}

Result<AddedTokens> AddedTokens::parse(const Json& value, const Normalizer& normalizer, Vocabulary& vocabulary) {
  AddedTokens tokens;
  if (value.is_null()) return tokens;
  if (!value.is_array()) return data_loss("tokenizer.json: added_tokens is no array");
  for (const Json& item : value) {
    QX_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::make(item, "added_tokens[]"));
    Entry entry;
    QX_ASSIGN_OR_RETURN(entry.content, object.text("content"));
    QX_ASSIGN_OR_RETURN(entry.token, object.count("id"));
    QX_ASSIGN_OR_RETURN(entry.single_word, object.flag("single_word", false));
    QX_ASSIGN_OR_RETURN(entry.strips_left, object.flag("lstrip", false));
    QX_ASSIGN_OR_RETURN(entry.strips_right, object.flag("rstrip", false));
    QX_ASSIGN_OR_RETURN(const bool special, object.flag("special", false));
    QX_ASSIGN_OR_RETURN(const bool normalized, object.flag("normalized", !special));
    QX_RETURN_IF_ERROR(vocabulary.add(entry.content, entry.token));
    if (special) tokens.special_.insert(entry.token);
    if (normalized) {
      QX_ASSIGN_OR_RETURN(entry.content, normalizer(entry.content));
    }
    if (!entry.content.empty()) (normalized ? tokens.normalized_ : tokens.raw_).add(std::move(entry));
  }
  return tokens;
}

std::vector<TextPart> AddedTokens::cut(const TextPart& part, const Group& group) {
  if (group.empty) return {part};
  const std::string_view text = part.text;
  std::vector<TextPart> parts;
  size_t kept = 0;  // where the text that is in no part yet begins
  const auto keep_until = [&](size_t end) {
    if (end > kept) parts.push_back({std::string(text.substr(kept, end - kept)), kNoToken, part.first && kept == 0});
  };
  for (size_t position = 0; position < text.size();) {
    const Entry* entry = group.longest_at(text, position);
    size_t begin = position;
    position = entry == nullptr ? position + 1 : position + entry->content.size();
    if (entry == nullptr || begin < kept) continue;
    if (entry->single_word && !stands_alone(text, begin, position)) continue;
    while (entry->strips_left && begin > kept &&
           holds(text, previous_code_point(text, begin), begin, unicode::is_white_space)) {
      begin = previous_code_point(text, begin);
    }
    while (entry->strips_right && position < text.size() &&
           holds(text, position, next_code_point(text, position), unicode::is_white_space)) {
      position = next_code_point(text, position);
    }
    keep_until(begin);
    parts.push_back({std::string(text.substr(begin, position - begin)), entry->token, part.first && begin == 0});
    kept = position;
  }
  keep_until(text.size());
  return parts;
}

Result<std::vector<TextPart>> AddedTokens::split(std::string_view text, const Normalizer& normalizer) const {
  std::vector<TextPart> result;
  for (TextPart& part : cut({std::string(text), kNoToken, true}, raw_)) {
    if (part.token != kNoToken) {
      result.push_back(std::move(part));
      continue;
    }
    QX_ASSIGN_OR_RETURN(part.text, normalizer(part.text));
    for (TextPart& one : cut(part, normalized_)) {
      if (!one.text.empty()) result.push_back(std::move(one));
    }
  }
  return result;
}

}  // namespace qx::lite
