// WordPiece: again and again the longest token that the rest of the word begins with (Song et al. 2021, section 2).
#include "quincunx/lite/generation/tokenizers/subword_model.h"

namespace qx::lite {
namespace {

bool continues_code_point(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

class WordPiece final : public SubwordModel {
 public:
  WordPiece(const Vocabulary& vocabulary, int32_t unknown, std::string continuing_prefix, int32_t max_characters)
      : vocabulary_(vocabulary),
        unknown_(unknown),
        continuing_prefix_(std::move(continuing_prefix)),
        max_characters_(max_characters) {}

  void tokenize(std::string_view word, std::vector<int32_t>& tokens) const override {
    int32_t characters = 0;
    for (const char byte : word) characters += continues_code_point(byte) ? 0 : 1;
    const size_t before = tokens.size();
    bool known = characters <= max_characters_;
    for (size_t begin = 0; known && begin < word.size();) known = append_longest(word, begin, tokens);
    if (known) return;
    tokens.resize(before);
    tokens.push_back(unknown_);
  }

 private:
  // Moves `begin` behind the token that it appends.
  bool append_longest(std::string_view word, size_t& begin, std::vector<int32_t>& tokens) const {
    std::string candidate(begin == 0 ? "" : continuing_prefix_);
    const size_t prefix = candidate.size();
    candidate.append(word.substr(begin));
    for (size_t end = word.size(); end > begin; --end) {
      if (end < word.size() && continues_code_point(word[end])) continue;
      const int32_t id = vocabulary_.find(std::string_view(candidate).substr(0, prefix + end - begin));
      if (id == kNoToken) continue;
      tokens.push_back(id);
      begin = end;
      return true;
    }
    return false;
  }

  const Vocabulary& vocabulary_;
  int32_t unknown_;
  std::string continuing_prefix_;
  int32_t max_characters_;
};

}  // namespace

Result<std::unique_ptr<SubwordModel>> parse_word_piece(const JsonObject& model, const Vocabulary& vocabulary) {
  QX_ASSIGN_OR_RETURN(const std::string unknown, model.text("unk_token"));
  QX_ASSIGN_OR_RETURN(std::string prefix, model.text("continuing_subword_prefix"));
  QX_ASSIGN_OR_RETURN(const int32_t max_characters, model.count("max_input_chars_per_word"));
  const int32_t id = vocabulary.find(unknown);
  if (id == kNoToken) return model.wrong("unk_token", unknown, "a token of the vocabulary");
  return std::unique_ptr<SubwordModel>(std::make_unique<WordPiece>(vocabulary, id, std::move(prefix), max_characters));
}

}  // namespace qx::lite
