#include "quincunx/lite/generation/tokenizers/token_decoder.h"

#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "quincunx/lite/generation/tokenizers/byte_alphabet.h"
#include "quincunx/lite/generation/tokenizers/replacement.h"
#include "quincunx/lite/generation/tokenizers/unicode.h"

namespace qx::lite {
namespace {

using Strings = std::vector<std::string>;

constexpr char kReplacementCharacter[] = "\xEF\xBF\xBD";

std::string replace_all(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// English spacing as BERT's published tokenizer restores it.
std::string clean_up(std::string text) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kReplacements = {{
      {" .", "."},
      {" ?", "?"},
      {" !", "!"},
      {" ,", ","},
      {" ' ", "'"},
      {" n't", "n't"},
      {" 'm", "'m"},
      {" do not", " don't"},
      {" 's", "'s"},
      {" 've", "'ve"},
      {" 're", "'re"},
  }};
  for (const auto& [from, to] : kReplacements) text = replace_all(std::move(text), from, to);
  return text;
}

Result<TokenDecoder> parse_word_piece(const JsonObject& object) {
  QX_ASSIGN_OR_RETURN(const std::string prefix, object.text("prefix"));
  QX_ASSIGN_OR_RETURN(const bool cleans, object.flag("cleanup", true));
  return TokenDecoder([=](Strings tokens) -> Result<Strings> {
    for (size_t index = 0; index < tokens.size(); ++index) {
      std::string& token = tokens[index];
      if (index != 0) token = token.starts_with(prefix) ? token.substr(prefix.size()) : " " + token;
      if (cleans) token = clean_up(std::move(token));
    }
    return tokens;
  });
}

Result<Strings> join_byte_level(Strings tokens) {
  std::string bytes;
  for (const std::string& token : tokens) bytes += from_byte_alphabet(token);
  return Strings{unicode::replace_invalid(bytes)};
}

// The byte of a token like "<0x0A>".
std::optional<char> byte_of(const std::string& token) {
  constexpr size_t kSize = 6;
  if (token.size() != kSize || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  unsigned value = 0;
  const char* end = token.data() + kSize - 1;
  const auto [stop, error] = std::from_chars(token.data() + 3, end, value, 16);
  if (error != std::errc() || stop != end) return std::nullopt;
  return static_cast<char>(value);
}

// Runs of byte tokens become their UTF-8 text, or one U+FFFD a byte where they are none.
Result<Strings> join_bytes(Strings tokens) {
  Strings result;
  std::string bytes;
  const auto flush = [&] {
    if (bytes.empty()) return;
    if (unicode::replace_invalid(bytes) == bytes) {
      result.push_back(bytes);
    } else {
      for (size_t index = 0; index < bytes.size(); ++index) result.emplace_back(kReplacementCharacter);
    }
    bytes.clear();
  };
  for (std::string& token : tokens) {
    if (const std::optional<char> byte = byte_of(token)) {
      bytes.push_back(*byte);
      continue;
    }
    flush();
    result.push_back(std::move(token));
  }
  flush();
  return result;
}

Result<Strings> fuse(Strings tokens) {
  std::string text;
  for (const std::string& token : tokens) text += token;
  return Strings{text};
}

// Takes up to `start` and `stop` times `content` from the ends of each string.
Result<TokenDecoder> parse_strip(const JsonObject& object) {
  QX_ASSIGN_OR_RETURN(const std::string content, object.text("content"));
  QX_ASSIGN_OR_RETURN(const int32_t start, object.count("start"));
  QX_ASSIGN_OR_RETURN(const int32_t stop, object.count("stop"));
  if (content.empty()) return object.wrong("content", content, "one character");
  return TokenDecoder([=](Strings tokens) -> Result<Strings> {
    for (std::string& token : tokens) {
      for (int32_t count = 0; count < start && token.starts_with(content); ++count) token.erase(0, content.size());
      for (int32_t count = 0; count < stop && token.ends_with(content); ++count) {
        token.resize(token.size() - content.size());
      }
    }
    return tokens;
  });
}

Result<TokenDecoder> parse_replace(const JsonObject& object) {
  QX_ASSIGN_OR_RETURN(Replacement replacement, Replacement::parse(object));
  return TokenDecoder([replacement = std::move(replacement)](Strings tokens) -> Result<Strings> {
    for (std::string& token : tokens) {
      QX_ASSIGN_OR_RETURN(token, replacement.apply(token));
    }
    return tokens;
  });
}

Result<TokenDecoder> parse_metaspace(const JsonObject& object) {
  QX_ASSIGN_OR_RETURN(const std::string replacement, object.text("replacement"));
  QX_ASSIGN_OR_RETURN(const std::string scheme, object.text_or_empty("prepend_scheme"));
  QX_ASSIGN_OR_RETURN(const bool older_prefix, object.flag("add_prefix_space", true));
  if (replacement.empty()) return object.wrong("replacement", replacement, "one character");
  const bool prepended = scheme.empty() ? older_prefix : scheme != "never";
  return TokenDecoder([=](Strings tokens) -> Result<Strings> {
    for (size_t index = 0; index < tokens.size(); ++index) {
      if (index == 0 && prepended && tokens[0].starts_with(replacement)) tokens[0].erase(0, replacement.size());
      tokens[index] = replace_all(std::move(tokens[index]), replacement, " ");
    }
    return tokens;
  });
}

Result<TokenDecoder> parse_sequence(const JsonObject& object) {
  const Json& members = object.field("decoders");
  if (!members.is_array()) return object.wrong("decoders", members, "an array");
  std::vector<TokenDecoder> steps;
  for (const Json& member : members) {
    // A sequence inside a sequence would let a hostile file nest without end.
    if (member.is_object() && member.contains("type") && member["type"] == "Sequence") {
      return unimplemented("tokenizer.json: " + object.part() + " holds a Sequence, expected a flat list");
    }
    QX_ASSIGN_OR_RETURN(TokenDecoder step, parse_token_decoder(member, object.part() + "[]"));
    steps.push_back(std::move(step));
  }
  return TokenDecoder([steps = std::move(steps)](Strings tokens) -> Result<Strings> {
    for (const TokenDecoder& step : steps) {
      QX_ASSIGN_OR_RETURN(tokens, step(std::move(tokens)));
    }
    return tokens;
  });
}

Result<Strings> join_with_spaces(Strings tokens) {
  for (size_t index = 1; index < tokens.size(); ++index) tokens[index].insert(0, 1, ' ');
  return tokens;
}

}  // namespace

Result<TokenDecoder> parse_token_decoder(const Json& value, const std::string& part) {
  if (value.is_null()) return TokenDecoder(join_with_spaces);
  QX_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::make(value, part));
  QX_ASSIGN_OR_RETURN(const std::string type, object.text("type"));
  if (type == "WordPiece") return parse_word_piece(object);
  if (type == "ByteLevel") return TokenDecoder(join_byte_level);
  if (type == "ByteFallback") return TokenDecoder(join_bytes);
  if (type == "Fuse") return TokenDecoder(fuse);
  if (type == "Strip") return parse_strip(object);
  if (type == "Replace") return parse_replace(object);
  if (type == "Metaspace") return parse_metaspace(object);
  if (type == "Sequence") return parse_sequence(object);
  return unimplemented("tokenizer.json: " + part + " has type '" + type +
                       "', expected WordPiece, ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace or Sequence");
}

}  // namespace qx::lite
