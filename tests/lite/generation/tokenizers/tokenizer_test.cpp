// What the comparison with Python's packages (tests/python/lite/test_tokenizer.py) does not reach.
#include "quincunx/lite/generation/tokenizers/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "quincunx/lite/generation/tokenizers/stream_decoder.h"
#include "quincunx/lite/generation/tokenizers/unicode.h"

namespace qx::lite {
namespace {

using nlohmann::json;

std::unique_ptr<Tokenizer> load(const json& document) { return load_tokenizer_json(document.dump()).value(); }

// Letters a to c, and merges of them in the order of `merges`.
json letters(const std::vector<std::pair<std::string, std::string>>& merges) {
  json vocabulary = {{"a", 0}, {"b", 1}, {"c", 2}};
  json list = json::array();
  for (const auto& [left, right] : merges) {
    if (!vocabulary.contains(left + right)) vocabulary[left + right] = static_cast<int>(vocabulary.size());
    list.push_back({left, right});
  }
  return {{"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", list}}}};
}

// Byte pair encoding as it is defined: the first merge of the list that applies anywhere, at its leftmost place.
std::vector<std::string> reference(const std::string& word,
                                   const std::vector<std::pair<std::string, std::string>>& merges) {
  std::vector<std::string> symbols;
  for (const char letter : word) symbols.emplace_back(1, letter);
  while (true) {
    size_t best = merges.size();
    size_t place = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      for (size_t rank = 0; rank < best; ++rank) {
        if (merges[rank] == std::pair(symbols[i], symbols[i + 1])) {
          best = rank;
          place = i;
        }
      }
    }
    if (best == merges.size()) return symbols;
    symbols[place] += symbols[place + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  }
}

TEST(Bpe, MergesInTheOrderOfTheList) {
  const std::vector<std::pair<std::string, std::string>> merges = {{"a", "b"},  {"b", "c"},   {"a", "a"}, {"ab", "c"},
                                                                   {"c", "ab"}, {"aa", "ab"}, {"b", "b"}};
  const std::unique_ptr<Tokenizer> tokenizer = load(letters(merges));
  std::mt19937 random(7);
  for (int trial = 0; trial < 300; ++trial) {
    std::string word;
    for (size_t i = random() % 40; i > 0; --i) word.push_back(static_cast<char>('a' + random() % 3));
    std::vector<int32_t> expected;
    for (const std::string& symbol : reference(word, merges)) expected.push_back(tokenizer->token_id(symbol));
    EXPECT_EQ(tokenizer->encode(word, SpecialTokens::kLeaveOut).value(), expected) << word;
  }
}

TEST(Bpe, ALongWordTakesNoSquareOfTime) {
  const std::unique_ptr<Tokenizer> tokenizer = load(letters({{"a", "a"}, {"aa", "aa"}, {"a", "b"}}));
  const std::string word(1 << 20, 'a');
  EXPECT_EQ(tokenizer->encode(word, SpecialTokens::kLeaveOut).value().size(), word.size() / 4);
}

json with_template() {
  json document = letters({});
  document["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", {{{"SpecialToken", {{"id", "a"}}}}, {{"Sequence", {{"id", "A"}}}}, {{"SpecialToken", {{"id", "c"}}}}}},
      {"special_tokens", {{"a", {{"ids", {0}}}}, {"c", {{"ids", {2}}}}}}};
  return document;
}

TEST(Tokenizer, CutsTheTextAndKeepsTheSpecialTokens) {
  const std::unique_ptr<Tokenizer> tokenizer = load(with_template());
  EXPECT_THAT(tokenizer->encode_at_most("bbbb", 4).value(), testing::ElementsAre(0, 1, 1, 2));
  EXPECT_THAT(tokenizer->encode_at_most("b", 4).value(), testing::ElementsAre(0, 1, 2));
  EXPECT_THAT(tokenizer->encode_at_most("b", 2).value(), testing::ElementsAre(0, 2));
  EXPECT_EQ(tokenizer->encode_at_most("b", 1).status().code(), StatusCode::kInvalidArgument);
}

TEST(Tokenizer, HostileDocumentsAreErrors) {
  const json good = with_template();
  // Each field, at every depth, in turn another kind of value or gone.
  const json flat = good.flatten();
  for (const auto& [path, value] : flat.items()) {
    for (const json& other : {json(), json(-1), json(1e300), json("x"), json::array(), json::object(), json(true)}) {
      json changed = flat;
      changed[path] = other;
      json document;
      try {
        document = changed.unflatten();
      } catch (const json::exception&) {
        continue;
      }
      const auto result = load_tokenizer_json(document.dump());
      if (result.ok()) EXPECT_TRUE(result.value()->encode("abc", SpecialTokens::kAdd).ok()) << path;
    }
  }
  const std::string deep = "{\"model\":" + std::string(100000, '[') + std::string(100000, ']') + "}";
  EXPECT_FALSE(load_tokenizer_json(deep).ok());
  EXPECT_FALSE(load_tokenizer_json("").ok());
  EXPECT_FALSE(load_sentencepiece("", {}).ok());
}

TEST(Tokenizer, APatternThatBacktracksWithoutEndIsAnError) {
  json document = letters({});
  document["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", {{"Regex", "(a*)*(b*)*(a*b*)*x"}}}, {"behavior", "Isolated"}, {"invert", false}};
  const std::unique_ptr<Tokenizer> tokenizer = load(document);
  const Status status = tokenizer->encode(std::string(3000, 'a') + "c", SpecialTokens::kLeaveOut).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status;
}

TEST(StreamDecoder, NeverGivesTextTwice) {
  const std::unique_ptr<Tokenizer> tokenizer = load(letters({{"a", "b"}}));
  StreamDecoder decoder(*tokenizer);
  std::string text;
  const std::vector<int32_t> tokens = {0, 3, 2, 2, 1};
  for (const int32_t token : tokens) text += decoder.push(token).value();
  text += decoder.finish().value();
  EXPECT_EQ(text, tokenizer->decode(tokens).value());
  EXPECT_EQ(decoder.finish().value(), "");
}

TEST(Unicode, ReplacesEachMaximalWrongPart) {
  constexpr const char* kMark = "\xEF\xBF\xBD";
  const std::string mark = kMark;
  EXPECT_EQ(unicode::replace_invalid("a\xE2\x82z"), "a" + mark + "z");
  EXPECT_EQ(unicode::replace_invalid("\xC0\xAF"), mark + mark);
  EXPECT_EQ(unicode::replace_invalid("\xF0\x9F\x98"), mark);
  EXPECT_EQ(unicode::replace_invalid("\xED\xA0\x80"), mark + mark + mark);
  EXPECT_EQ(unicode::replace_invalid(std::string("a\0b", 3)), std::string("a\0b", 3));
  EXPECT_EQ(unicode::replace_invalid(""), "");
}

}  // namespace
}  // namespace qx::lite
