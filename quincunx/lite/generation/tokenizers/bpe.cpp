// Byte pair encoding: of all neighbours that may merge, always the pair that was learned first, the leftmost of equals
// (Sennrich et al. 2016). A heap of candidates over a linked list makes it O(n log n) in the length of a word.
#include <array>
#include <queue>
#include <tuple>

#include "quincunx/lite/generation/tokenizers/subword_model.h"

namespace qx::lite {
namespace {

struct Merge {
  int32_t rank = 0;
  int32_t result = 0;
};

uint64_t pair_key(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

using MergeTable = std::unordered_map<uint64_t, Merge>;

struct Symbol {
  int32_t token = kNoToken;  // kNoToken once it has been merged into its left neighbour
  int64_t previous = -1;
  int64_t next = -1;
};

struct Candidate {
  Merge merge;
  int64_t position = 0;
  // The queue gives the greatest first.
  bool operator<(const Candidate& other) const {
    return std::tie(other.merge.rank, other.position) < std::tie(merge.rank, position);
  }
};

class Merger {
 public:
  Merger(const MergeTable& table, std::vector<Symbol> symbols) : table_(table), symbols_(std::move(symbols)) {
    for (size_t index = 0; index < symbols_.size(); ++index) {
      symbols_[index].previous = static_cast<int64_t>(index) - 1;
      symbols_[index].next = index + 1 < symbols_.size() ? static_cast<int64_t>(index) + 1 : -1;
    }
    for (size_t index = 0; index < symbols_.size(); ++index) consider(static_cast<int64_t>(index));
  }

  void run(std::vector<int32_t>& tokens) {
    while (!queue_.empty()) {
      const Candidate top = queue_.top();
      queue_.pop();
      apply(top);
    }
    for (const Symbol& symbol : symbols_) {
      if (symbol.token != kNoToken) tokens.push_back(symbol.token);
    }
  }

 private:
  Symbol& at(int64_t position) { return symbols_[static_cast<size_t>(position)]; }

  void consider(int64_t position) {
    if (position < 0 || at(position).next < 0) return;
    const auto found = table_.find(pair_key(at(position).token, at(at(position).next).token));
    if (found != table_.end()) queue_.push({found->second, position});
  }

  void apply(const Candidate& candidate) {
    Symbol& left = at(candidate.position);
    if (left.token == kNoToken || left.next < 0) return;
    Symbol& right = at(left.next);
    const auto found = table_.find(pair_key(left.token, right.token));
    // An earlier merge may have changed either neighbour.
    if (found == table_.end() || found->second.result != candidate.merge.result) return;
    left.token = candidate.merge.result;
    right.token = kNoToken;
    left.next = right.next;
    if (left.next >= 0) at(left.next).previous = candidate.position;
    consider(left.previous);
    consider(candidate.position);
  }

  const MergeTable& table_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Candidate> queue_;
};

std::string byte_token(unsigned byte) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  return std::string("<0x") + kDigits[byte >> 4] + kDigits[byte & 15] + ">";
}

class Bpe final : public SubwordModel {
 public:
  explicit Bpe(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}

  Status parse(const JsonObject& model) {
    QX_RETURN_IF_ERROR(parse_options(model));
    const Json& merges = model.field("merges");
    if (!merges.is_array()) return model.wrong("merges", merges, "an array");
    merges_.reserve(merges.size());
    int32_t rank = 0;
    for (const Json& merge : merges) QX_RETURN_IF_ERROR(add_merge(model, merge, rank++));
    return ok_status();
  }

  void tokenize(std::string_view word, std::vector<int32_t>& tokens) const override {
    if (ignore_merges_) {
      if (const int32_t id = vocabulary_.find(word); id != kNoToken) return tokens.push_back(id);
    }
    std::vector<Symbol> symbols;
    symbols.reserve(word.size());
    bool after_unknown = false;
    for (size_t begin = 0; begin < word.size();) {
      size_t end = begin + 1;
      while (end < word.size() && (static_cast<unsigned char>(word[end]) & 0xC0) == 0x80) ++end;
      after_unknown = append_character(word.substr(begin, end - begin), after_unknown, symbols);
      begin = end;
    }
    Merger(merges_, std::move(symbols)).run(tokens);
  }

 private:
  Status parse_options(const JsonObject& model) {
    for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      QX_ASSIGN_OR_RETURN(const std::string affix, model.text_or_empty(name));
      if (!affix.empty()) {
        return unimplemented("tokenizer.json: model." + std::string(name) + " is '" + affix +
                             "', expected none with a BPE model");
      }
    }
    const Json& dropout = model.field("dropout");
    if (!dropout.is_null() && dropout != 0) {
      return unimplemented("tokenizer.json: model.dropout is " + dropout.dump() + ", expected null");
    }
    QX_ASSIGN_OR_RETURN(const std::string unknown, model.text_or_empty("unk_token"));
    QX_ASSIGN_OR_RETURN(fuse_unknown_, model.flag("fuse_unk", false));
    QX_ASSIGN_OR_RETURN(ignore_merges_, model.flag("ignore_merges", false));
    QX_ASSIGN_OR_RETURN(const bool byte_fallback, model.flag("byte_fallback", false));
    unknown_ = vocabulary_.find(unknown);
    if (!unknown.empty() && unknown_ == kNoToken) {
      return model.wrong("unk_token", unknown, "a token of the vocabulary");
    }
    bytes_.fill(kNoToken);
    for (unsigned byte = 0; byte_fallback && byte < bytes_.size(); ++byte) {
      bytes_[byte] = vocabulary_.find(byte_token(byte));
    }
    return ok_status();
  }

  // ["a", "b"], or "a b" in older files.
  Status add_merge(const JsonObject& model, const Json& merge, int32_t rank) {
    std::string left;
    std::string right;
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    } else if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      const size_t space = text.find(' ');
      left = text.substr(0, space);
      right = space == std::string::npos ? "" : text.substr(space + 1);
    }
    const int32_t left_id = vocabulary_.find(left);
    const int32_t right_id = vocabulary_.find(right);
    const int32_t result = vocabulary_.find(left + right);
    if (left_id == kNoToken || right_id == kNoToken || result == kNoToken) {
      return model.wrong("merges", merge, "two tokens of the vocabulary that make a third");
    }
    merges_.insert_or_assign(pair_key(left_id, right_id), Merge{rank, result});
    return ok_status();
  }

  // Whether the character is an unknown token that a following one may be fused with.
  bool append_character(std::string_view character, bool after_unknown, std::vector<Symbol>& symbols) const {
    if (const int32_t id = vocabulary_.find(character); id != kNoToken) {
      symbols.push_back({id});
      return false;
    }
    if (append_bytes(character, symbols)) return false;
    if (unknown_ == kNoToken) return false;  // such characters are left out
    if (!after_unknown || !fuse_unknown_) symbols.push_back({unknown_});
    return true;
  }

  bool append_bytes(std::string_view character, std::vector<Symbol>& symbols) const {
    for (const char byte : character) {
      if (bytes_[static_cast<unsigned char>(byte)] == kNoToken) return false;
    }
    for (const char byte : character) symbols.push_back({bytes_[static_cast<unsigned char>(byte)]});
    return true;
  }

  const Vocabulary& vocabulary_;
  MergeTable merges_;
  std::array<int32_t, 256> bytes_ = {};
  int32_t unknown_ = kNoToken;
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;
};

}  // namespace

Result<std::unique_ptr<SubwordModel>> parse_bpe(const JsonObject& model, const Vocabulary& vocabulary) {
  auto bpe = std::make_unique<Bpe>(vocabulary);
  QX_RETURN_IF_ERROR(bpe->parse(model));
  return std::unique_ptr<SubwordModel>(std::move(bpe));
}

}  // namespace qx::lite
