// Fields of a JSON object, checked: an error names the part of the document, the field and what was expected.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "quincunx/base/status.h"

namespace qx::lite {

using Json = nlohmann::json;

// An object whose errors are told as "document: part.field".
class JsonObject {
 public:
  static Result<JsonObject> make(const Json& value, std::string part, std::string document = "tokenizer.json") {
    if (value.is_object()) return JsonObject(value, std::move(part), std::move(document));
    return data_loss(document + ": " + part + " is a " + value.type_name() + ", expected an object");
  }

  const std::string& part() const { return part_; }

  // Null where the field is missing.
  const Json& field(const char* name) const {
    static const Json kNull;
    const auto found = value_->find(name);
    return found == value_->end() ? kNull : *found;
  }

  Result<std::string> text(const char* name) const {
    const Json& value = field(name);
    if (value.is_string()) return value.get<std::string>();
    return wrong(name, value, "a string");
  }

  // An empty string where the field is missing or null.
  Result<std::string> text_or_empty(const char* name) const {
    return field(name).is_null() ? Result<std::string>(std::string()) : text(name);
  }

  Result<bool> flag(const char* name, bool otherwise) const {
    const Json& value = field(name);
    if (value.is_null()) return otherwise;
    if (value.is_boolean()) return value.get<bool>();
    return wrong(name, value, "true or false");
  }

  // 0 to 2^31 - 1.
  Result<int32_t> count(const char* name) const {
    const Json& value = field(name);
    if (value.is_number_integer() && value >= 0 && value <= INT32_MAX) return value.get<int32_t>();
    return wrong(name, value, "a whole number from 0 to 2147483647");
  }

  Result<JsonObject> object(const char* name) const { return make(field(name), part_ + "." + name, document_); }

  Status wrong(const char* name, const Json& value, const std::string& expected) const {
    std::string shown = value.dump(-1, ' ', true, Json::error_handler_t::replace);
    if (constexpr size_t kLongest = 60; shown.size() > kLongest) shown = shown.substr(0, kLongest) + "...";
    return data_loss(document_ + ": " + part_ + "." + name + " is " + shown + ", expected " + expected);
  }

 private:
  JsonObject(const Json& value, std::string part, std::string document)
      : value_(&value), part_(std::move(part)), document_(std::move(document)) {}

  const Json* value_;
  std::string part_;
  std::string document_;
};

}  // namespace qx::lite
