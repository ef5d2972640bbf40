#include "quincunx/lite/generation/tokenizers/vocabulary.h"

namespace qx::lite {

Result<Vocabulary> Vocabulary::parse(const JsonObject& model) {
  const Json& entries = model.field("vocab");
  if (!entries.is_object() || entries.empty()) {
    return model.wrong("vocab", entries, "an object of at least one token");
  }
  Vocabulary vocabulary;
  vocabulary.ids_.reserve(entries.size());
  vocabulary.tokens_.reserve(entries.size());
  for (const auto& [token, id] : entries.items()) {
    if (!id.is_number_integer() || id < 0 || id >= kMaxTokens) {
      return model.wrong("vocab", id, "ids from 0 to " + std::to_string(kMaxTokens - 1));
    }
    QX_RETURN_IF_ERROR(vocabulary.add(token, id.get<int32_t>()));
  }
  return vocabulary;
}

Status Vocabulary::add(const std::string& token, int32_t id) {
  if (id < 0 || id >= kMaxTokens) {
    return data_loss("tokenizer.json: token '" + token + "' has id " + std::to_string(id) + ", expected 0 to " +
                     std::to_string(kMaxTokens - 1));
  }
  if (id >= size()) tokens_.resize(static_cast<size_t>(id) + 1);
  std::string& place = tokens_[static_cast<size_t>(id)];
  if (!place.empty() && place != token) {
    return data_loss("tokenizer.json: id " + std::to_string(id) + " belongs to '" + place + "' and to '" + token +
                     "', expected one token an id");
  }
  place = token;
  ids_.insert_or_assign(token, id);
  return ok_status();
}

}  // namespace qx::lite
