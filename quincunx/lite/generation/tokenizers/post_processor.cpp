#include "quincunx/lite/generation/tokenizers/post_processor.h"

namespace qx::lite {
namespace {

Status append_ids(const JsonObject& template_object, const std::string& name, std::vector<int32_t>& tokens) {
  QX_ASSIGN_OR_RETURN(const JsonObject known, template_object.object("special_tokens"));
  QX_ASSIGN_OR_RETURN(const JsonObject token, known.object(name.c_str()));
  const Json& ids = token.field("ids");
  if (!ids.is_array()) return token.wrong("ids", ids, "an array of token ids");
  for (const Json& id : ids) {
    if (!id.is_number_integer() || id < 0 || id > INT32_MAX) return token.wrong("ids", ids, "an array of token ids");
    tokens.push_back(id.get<int32_t>());
  }
  return ok_status();
}

Result<SurroundingTokens> parse_template(const JsonObject& object) {
  SurroundingTokens tokens;
  const Json& items = object.field("single");
  const std::string expected = "an array with one {\"Sequence\": {\"id\": \"A\"}} and any {\"SpecialToken\": ...}";
  if (!items.is_array()) return object.wrong("single", items, expected);
  int num_texts = 0;
  for (const Json& item : items) {
    QX_ASSIGN_OR_RETURN(const JsonObject entry, JsonObject::make(item, object.part() + ".single[]"));
    if (!entry.field("Sequence").is_null()) {
      ++num_texts;
      continue;
    }
    QX_ASSIGN_OR_RETURN(const JsonObject special, entry.object("SpecialToken"));
    QX_ASSIGN_OR_RETURN(const std::string name, special.text("id"));
    QX_RETURN_IF_ERROR(append_ids(object, name, num_texts == 0 ? tokens.before : tokens.after));
  }
  if (num_texts != 1) return object.wrong("single", items, expected);
  return tokens;
}

// {"cls": ["[CLS]", 101], "sep": ["[SEP]", 102]}
Result<int32_t> token_of_pair(const JsonObject& object, const char* name) {
  const Json& pair = object.field(name);
  if (pair.is_array() && pair.size() == 2 && pair[1].is_number_integer() && pair[1] >= 0 && pair[1] <= INT32_MAX) {
    return pair[1].get<int32_t>();
  }
  return object.wrong(name, pair, "a token and its id");
}

Result<SurroundingTokens> parse_pair(const JsonObject& object) {
  QX_ASSIGN_OR_RETURN(const int32_t before, token_of_pair(object, "cls"));
  QX_ASSIGN_OR_RETURN(const int32_t after, token_of_pair(object, "sep"));
  return SurroundingTokens{{before}, {after}};
}

Result<SurroundingTokens> parse_sequence(const JsonObject& object) {
  const Json& members = object.field("processors");
  if (!members.is_array()) return object.wrong("processors", members, "an array");
  SurroundingTokens tokens;
  for (const Json& member : members) {
    // A sequence inside a sequence would let a hostile file nest without end.
    if (member.is_object() && member.contains("type") && member["type"] == "Sequence") {
      return unimplemented("tokenizer.json: " + object.part() + " holds a Sequence, expected a flat list");
    }
    QX_ASSIGN_OR_RETURN(const SurroundingTokens one, parse_post_processor(member, object.part() + "[]"));
    tokens.before.insert(tokens.before.begin(), one.before.begin(), one.before.end());
    tokens.after.insert(tokens.after.end(), one.after.begin(), one.after.end());
  }
  return tokens;
}

}  // namespace

Result<SurroundingTokens> parse_post_processor(const Json& value, const std::string& part) {
  if (value.is_null()) return SurroundingTokens{};
  QX_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::make(value, part));
  QX_ASSIGN_OR_RETURN(const std::string type, object.text("type"));
  if (type == "TemplateProcessing") return parse_template(object);
  if (type == "BertProcessing" || type == "RobertaProcessing") return parse_pair(object);
  if (type == "ByteLevel") return SurroundingTokens{};  // it trims offsets, which are not kept here
  if (type == "Sequence") return parse_sequence(object);
  return unimplemented("tokenizer.json: " + part + " has type '" + type +
                       "', expected TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel or Sequence");
}

}  // namespace qx::lite
