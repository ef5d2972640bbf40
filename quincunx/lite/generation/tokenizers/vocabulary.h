// Tokens by id and ids by token.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "quincunx/lite/generation/tokenizers/json_fields.h"
#include "quincunx/lite/generation/tokenizers/tokenizer.h"

namespace qx::lite {

class Vocabulary {
 public:
  // From {"token": id, ...}. Ids may leave gaps, up to kMaxTokens.
  static Result<Vocabulary> parse(const JsonObject& model);

  // Adds a token, or does nothing where it has that id already. Another token of the same id is an error.
  Status add(const std::string& token, int32_t id);

  int32_t find(std::string_view token) const {
    const auto found = ids_.find(token);
    return found == ids_.end() ? kNoToken : found->second;
  }

  // Empty where the id is a gap.
  const std::string& token(int32_t id) const { return tokens_[static_cast<size_t>(id)]; }
  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }

 private:
  static constexpr int32_t kMaxTokens = 1 << 24;

  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> ids_;
  std::vector<std::string> tokens_;
};

}  // namespace qx::lite
