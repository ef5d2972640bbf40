#include "quincunx/lite/generation/tokenizers/pre_tokenizer.h"

#include <utility>

#include "quincunx/lite/generation/tokenizers/byte_alphabet.h"
#include "quincunx/lite/generation/tokenizers/replacement.h"
#include "quincunx/lite/generation/tokenizers/split.h"
#include "quincunx/lite/generation/tokenizers/unicode.h"

namespace qx::lite {
namespace {

using unicode::Span;

// Radford et al. 2019: contractions, words, numbers and runs of signs, each with one space before it.
constexpr char kByteLevelPattern[] = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Every code point of the kind, or every run of them.
template <typename Predicate>
std::vector<Span> find_characters(std::string_view text, Predicate is_match, bool runs) {
  std::vector<Span> spans;
  size_t position = 0;
  std::string encoded;
  for (const char32_t c : unicode::code_points(text)) {
    encoded.clear();
    unicode::append_utf8(c, encoded);
    const size_t end = position + encoded.size();
    if (is_match(c)) {
      const bool extends = runs && !spans.empty() && spans.back().end == position;
      if (extends) {
        spans.back().end = end;
      } else {
        spans.push_back({position, end});
      }
    }
    position = end;
  }
  return spans;
}

template <typename Predicate>
PreTokenizer by_character(Predicate is_match, SplitBehavior behavior, bool runs = false) {
  return [=](const Piece& piece) -> Result<std::vector<Piece>> {
    return split(piece, find_characters(piece.text, is_match, runs), behavior);
  };
}

PreTokenizer in_order(std::vector<PreTokenizer> steps) {
  return [steps = std::move(steps)](const Piece& piece) -> Result<std::vector<Piece>> {
    std::vector<Piece> pieces = {piece};
    for (const PreTokenizer& step : steps) {
      std::vector<Piece> next;
      for (const Piece& part : pieces) {
        QX_ASSIGN_OR_RETURN(std::vector<Piece> cut, step(part));
        for (Piece& one : cut) next.push_back(std::move(one));
      }
      pieces = std::move(next);
    }
    return pieces;
  };
}

Result<PreTokenizer> parse_byte_level(const JsonObject& object) {
  QX_ASSIGN_OR_RETURN(const bool add_prefix_space, object.flag("add_prefix_space", true));
  QX_ASSIGN_OR_RETURN(const bool use_regex, object.flag("use_regex", true));
  QX_ASSIGN_OR_RETURN(unicode::Regex regex, unicode::Regex::compile(kByteLevelPattern));
  return PreTokenizer([=](const Piece& piece) -> Result<std::vector<Piece>> {
    Piece prefixed = piece;
    if (add_prefix_space && !piece.text.starts_with(' ')) prefixed.text.insert(0, 1, ' ');
    std::vector<Piece> pieces = {prefixed};
    if (use_regex) {
      QX_ASSIGN_OR_RETURN(const std::vector<Span> matches, regex.find_all(prefixed.text));
      pieces = split(prefixed, matches, SplitBehavior::kIsolated);
    }
    for (Piece& one : pieces) one.text = to_byte_alphabet(one.text);
    return pieces;
  });
}

Result<PreTokenizer> parse_split(const JsonObject& object) {
  QX_ASSIGN_OR_RETURN(const SplitBehavior behavior, parse_split_behavior(object));
  QX_ASSIGN_OR_RETURN(const bool invert, object.flag("invert", false));
  QX_ASSIGN_OR_RETURN(Pattern pattern, Pattern::parse(object));
  return PreTokenizer([=, pattern = std::move(pattern)](const Piece& piece) -> Result<std::vector<Piece>> {
    QX_ASSIGN_OR_RETURN(const std::vector<Span> matches, pattern.find_all(piece.text));
    return split(piece, matches, behavior, invert);
  });
}

Result<PreTokenizer> parse_whitespace() {
  // Words as UTS #18 has them: unlike in Split's patterns, a superscript two is none.
  const std::string word = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control})";
  QX_ASSIGN_OR_RETURN(unicode::Regex regex, unicode::Regex::compile("[" + word + "]+|[^" + word + "\\s]+"));
  return PreTokenizer([=](const Piece& piece) -> Result<std::vector<Piece>> {
    QX_ASSIGN_OR_RETURN(const std::vector<Span> words, regex.find_all(piece.text));
    return split(piece, words, SplitBehavior::kRemoved, true);
  });
}

Result<PreTokenizer> parse_punctuation(const JsonObject& object) {
  if (object.field("behavior").is_null()) return by_character(unicode::is_punctuation, SplitBehavior::kIsolated);
  QX_ASSIGN_OR_RETURN(const SplitBehavior behavior, parse_split_behavior(object));
  return by_character(unicode::is_punctuation, behavior);
}

Result<PreTokenizer> parse_digits(const JsonObject& object) {
  QX_ASSIGN_OR_RETURN(const bool individual, object.flag("individual_digits", false));
  return by_character(unicode::is_numeric, individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
}

Result<PreTokenizer> parse_metaspace(const JsonObject& object) {
  QX_ASSIGN_OR_RETURN(const std::string replacement, object.text("replacement"));
  QX_ASSIGN_OR_RETURN(const std::string scheme, object.text_or_empty("prepend_scheme"));
  QX_ASSIGN_OR_RETURN(const bool older_prefix, object.flag("add_prefix_space", true));
  QX_ASSIGN_OR_RETURN(const bool cut, object.flag("split", true));
  if (replacement.empty()) return object.wrong("replacement", replacement, "one character");
  if (!scheme.empty() && scheme != "always" && scheme != "first" && scheme != "never") {
    return object.wrong("prepend_scheme", scheme, "always, first or never");
  }
  return PreTokenizer([=](const Piece& piece) -> Result<std::vector<Piece>> {
    Piece marked = {"", piece.first};
    for (const char byte : piece.text) {
      if (byte == ' ') {
        marked.text += replacement;
      } else {
        marked.text.push_back(byte);
      }
    }
    const bool prepends = scheme.empty() ? older_prefix : scheme == "always" || (scheme == "first" && piece.first);
    if (prepends && !marked.text.starts_with(replacement)) marked.text.insert(0, replacement);
    if (!cut) return std::vector<Piece>{marked};
    std::vector<Span> marks;
    for (size_t at = marked.text.find(replacement); at != std::string::npos;
         at = marked.text.find(replacement, at + replacement.size())) {
      marks.push_back({at, at + replacement.size()});
    }
    return split(marked, marks, SplitBehavior::kMergedWithNext);
  });
}

Result<PreTokenizer> parse_sequence(const JsonObject& object) {
  const Json& members = object.field("pretokenizers");
  if (!members.is_array()) return object.wrong("pretokenizers", members, "an array");
  std::vector<PreTokenizer> steps;
  for (const Json& member : members) {
    // A sequence inside a sequence would let a hostile file nest without end.
    if (member.is_object() && member.contains("type") && member["type"] == "Sequence") {
      return unimplemented("tokenizer.json: " + object.part() + " holds a Sequence, expected a flat list");
    }
    QX_ASSIGN_OR_RETURN(PreTokenizer step, parse_pre_tokenizer(member, object.part() + "[]"));
    steps.push_back(std::move(step));
  }
  return in_order(std::move(steps));
}

}  // namespace

Result<PreTokenizer> parse_pre_tokenizer(const Json& value, const std::string& part) {
  if (value.is_null()) return in_order({});
  QX_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::make(value, part));
  QX_ASSIGN_OR_RETURN(const std::string type, object.text("type"));
  if (type == "BertPreTokenizer") {
    return in_order({by_character(unicode::is_white_space, SplitBehavior::kRemoved),
                     by_character(unicode::is_punctuation, SplitBehavior::kIsolated)});
  }
  if (type == "ByteLevel") return parse_byte_level(object);
  if (type == "Split") return parse_split(object);
  if (type == "Whitespace") return parse_whitespace();
  if (type == "WhitespaceSplit") return by_character(unicode::is_white_space, SplitBehavior::kRemoved);
  if (type == "Punctuation") return parse_punctuation(object);
  if (type == "Digits") return parse_digits(object);
  if (type == "Metaspace") return parse_metaspace(object);
  if (type == "Sequence") return parse_sequence(object);
  return unimplemented("tokenizer.json: " + part + " has type '" + type +
                       "', expected BertPreTokenizer, ByteLevel, Split, Whitespace, WhitespaceSplit, Punctuation, "
                       "Digits, Metaspace or Sequence");
}

}  // namespace qx::lite
