// simdjson's On-Demand parser: the text is indexed once, then values are parsed where they are asked for.

#include "sim/io/json_cursor.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <charconv>
#include <cmath>
#include <optional>
#include <unordered_set>

#include "sim/io/quantity.h"

namespace plimsoll {

namespace ondemand = simdjson::ondemand;

struct JsonText {
  JsonText(std::string t, std::string file) : text(std::move(t)), complaints(std::move(file)) {}

  std::string text;
  Complaints complaints;
  ondemand::parser parser;
  ondemand::document document;
  std::vector<std::string_view> keys;  ///< of the objects that are open, to find repeated ones
  std::int64_t total_bytes = 0;
  int depth = 0;

  Position position(const char* at) const { return position_of(text, static_cast<std::size_t>(at - text.data())); }
};

struct JsonValue {
  ondemand::value value;
  bool is_root = false;
};

const std::size_t JsonDocument::spare = simdjson::SIMDJSON_PADDING;

namespace {

/// The deepest nesting that is read.
constexpr int deepest = 64;
constexpr std::int64_t largest_total = std::int64_t{1} << 62;

[[noreturn]] void invalid(JsonText& json, const char* at, std::string_view what) {
  json.complaints.add(json.position(at), "", fmt::format("not valid JSON: {}", what));
  json.complaints.throw_now();
}

/// Where simdjson stopped.
[[noreturn]] void broken_structure(JsonText& json, simdjson::error_code error) {
  const char* const end = json.text.data() + json.text.find_last_not_of(" \t\r\n") + 1;
  if (error == simdjson::INCOMPLETE_ARRAY_OR_OBJECT) invalid(json, end, "the text ends too early");
  const char* at = end;
  const bool known = json.document.current_location().get(at) == simdjson::SUCCESS;
  invalid(json, known ? std::min(at, end) : end, "a comma, colon, quote or bracket is missing or too many");
}

/// Stage one of the parser says only that some string is wrong: find it.
[[noreturn]] void broken_string(JsonText& json) {
  const char* start = nullptr;
  const char* const end = json.text.data() + json.text.size();
  for (const char* c = json.text.data(); c < end; ++c) {
    if (*c == '"') start = start == nullptr ? c : nullptr;
    if (start == nullptr) continue;
    if (*c == '\\')
      ++c;
    else if (static_cast<unsigned char>(*c) < 0x20)
      invalid(json, c, "a line break or control character in a string");
  }
  invalid(json, start == nullptr ? end : start, "a string that does not end");
}

[[noreturn]] void broken_characters(JsonText& json) {
  for (std::size_t i = 0; i < json.text.size();) {
    const auto lead = static_cast<unsigned char>(json.text[i]);
    const std::size_t length = lead < 0x80 ? 1 : lead >> 5U == 6 ? 2 : lead >> 4U == 14 ? 3 : lead >> 3U == 30 ? 4 : 0;
    if (length == 0 || !simdjson::validate_utf8(json.text.data() + i, std::min(length, json.text.size() - i))) {
      invalid(json, json.text.data() + i, "not UTF-8");
    }
    i += length;
  }
  invalid(json, json.text.data(), "not UTF-8");
}

void open(JsonText& json) {
  const std::size_t first = json.text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) invalid(json, json.text.data(), "the file is empty");
  if (json.text[first] != '{' && json.text[first] != '[') {
    invalid(json, json.text.data() + first, "expected an object, which begins with '{'");
  }
  const simdjson::padded_string_view view(json.text.data(), json.text.size(), json.text.capacity());
  switch (const simdjson::error_code error = json.parser.iterate(view).get(json.document); error) {
    case simdjson::SUCCESS:
      return;
    case simdjson::UTF8_ERROR:
      broken_characters(json);
    case simdjson::UNCLOSED_STRING:
    case simdjson::UNESCAPED_CHARS:
      broken_string(json);
    case simdjson::CAPACITY:
      invalid(json, json.text.data(), "larger than 4 GiB");
    default:
      invalid(json, json.text.data(), simdjson::error_message(error));
  }
}

/// simdjson gives a document up at some errors; another walk through it begins anew.
void revive(JsonText& json) {
  if (!json.document.is_alive()) open(json);
}

/// Errors after which the rest cannot be understood.
bool is_structural(simdjson::error_code error) {
  return error != simdjson::SUCCESS && error != simdjson::INCORRECT_TYPE && error != simdjson::NUMBER_ERROR &&
         error != simdjson::NUMBER_OUT_OF_RANGE && error != simdjson::NO_SUCH_FIELD &&
         error != simdjson::INDEX_OUT_OF_BOUNDS;
}

/// The text of a scalar, as written.
std::string_view token_at(const JsonText& json, const char* at) {
  const std::string_view rest(at, static_cast<std::size_t>(json.text.data() + json.text.size() - at));
  if (rest.empty() || rest.front() != '"') return rest.substr(0, rest.find_first_of(" \t\r\n,:[]{}\""));
  std::size_t end = 1;
  while (end < rest.size() && rest[end] != '"') end += rest[end] == '\\' ? 2 : 1;
  return rest.substr(0, end + 1);
}

}  // namespace

const char* JsonCursor::at() const {
  if (value_->is_root) {
    const std::size_t first = text_->text.find_first_not_of(" \t\r\n");
    return text_->text.data() + (first == std::string::npos ? 0 : first);
  }
  return value_->value.raw_json_token().data();
}

std::string JsonCursor::found() const {
  constexpr std::size_t longest = 60;
  const std::string_view token = token_at(*text_, at());
  if (token.empty()) return *at() == '{' ? "found an object" : *at() == '[' ? "found a list" : "found nothing";
  return fmt::format("found {}{}", token.substr(0, longest), token.size() > longest ? "..." : "");
}

void JsonCursor::complain(std::string_view what) const {
  text_->complaints.add(text_->position(at()), to_string(*path_), what);
}

void JsonCursor::complain_unknown_key(const std::vector<std::string_view>& known) const {
  const std::string what = "unknown key" + suggestion(path_->key, known);
  text_->complaints.add(text_->position(key_at_), to_string(*path_), what);
}

void JsonCursor::complain_missing_key(std::string_view key) const {
  complain(fmt::format("missing key '{}'", key));
}

/// Something that begins no value, such as a bracket that closes, is an error of the text and not of a type.
void JsonCursor::complain_type(std::string_view expected) const {
  const std::string_view token = token_at(*text_, at());
  const char first = *at();
  const bool begins_value = first == '{' || first == '[' || first == '"' || token == "true" || token == "false" ||
                            token == "null" || first == '-' || (first >= '0' && first <= '9');
  if (!begins_value) {
    if (token.empty()) invalid(*text_, at(), "a comma, colon, quote or bracket is missing or too many");
    invalid(*text_, at(), fmt::format("'{}' is no value", token.substr(0, 60)));
  }
  complain(fmt::format("expected {}, {}", expected, found()));
}

/// A number that was not taken: none at all, of the wrong kind, or beyond what 64 bits hold.
void JsonCursor::complain_number(std::string_view expected) const {
  const std::string_view token = token_at(*text_, at());
  const char first = token.empty() ? ' ' : token.front();
  if (first != '-' && (first < '0' || first > '9')) return complain_type(expected);
  double value = 0;
  const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), value);
  const bool leading_zero = parse_integer(token).fine() && token.find_first_not_of("-0") > token.find('0');
  if (end != token.data() + token.size() || (leading_zero && token.size() > 1)) {
    invalid(*text_, at(), fmt::format("'{}' is no number", token.substr(0, 60)));
  }
  const bool too_large = error == std::errc::result_out_of_range || std::abs(value) >= 0x1p63;
  complain(fmt::format("{}, {}", too_large ? "absurdly large" : fmt::format("expected {}", expected), found()));
}

bool JsonCursor::is_word() const {
  return *at() == '"';
}

bool JsonCursor::is_object() const {
  return *at() == '{';
}

std::string JsonCursor::string() const {
  std::string_view text;
  const simdjson::error_code error = value_->is_root ? simdjson::INCORRECT_TYPE : value_->value.get_string().get(text);
  if (error == simdjson::SUCCESS) return std::string(text);
  if (error == simdjson::STRING_ERROR) invalid(*text_, at(), "a bad escape in a string");
  if (is_structural(error)) broken_structure(*text_, error);
  complain_type("a string");
  return {};
}

bool JsonCursor::boolean() const {
  bool value = false;
  const simdjson::error_code error = value_->is_root ? simdjson::INCORRECT_TYPE : value_->value.get_bool().get(value);
  if (is_structural(error)) broken_structure(*text_, error);
  if (error != simdjson::SUCCESS) complain_type("true or false");
  return value;
}

double JsonCursor::number() const {
  double value = 0;
  const simdjson::error_code error = value_->is_root ? simdjson::INCORRECT_TYPE : value_->value.get_double().get(value);
  if (is_structural(error)) broken_structure(*text_, error);
  if (error != simdjson::SUCCESS) {
    complain_number("a number");
    return 0;
  }
  if (!std::isfinite(value) || value < 0) {
    complain(fmt::format("{}, {}", value < 0 ? "must not be negative" : "absurdly large", found()));
    return 0;
  }
  return value;
}

std::int64_t JsonCursor::integer() const {
  std::int64_t value = 0;
  const simdjson::error_code error = value_->is_root ? simdjson::INCORRECT_TYPE : value_->value.get_int64().get(value);
  if (is_structural(error)) broken_structure(*text_, error);
  if (error != simdjson::SUCCESS) complain_number("a whole number");
  return value;
}

std::uint32_t JsonCursor::index() const {
  const std::int64_t value = integer();
  if (value >= 0 && value < 0xFFFFFFFF) return static_cast<std::uint32_t>(value);
  complain(fmt::format("expected a whole number from 0 to 4294967294, {}", found()));
  return 0;
}

Bytes JsonCursor::bytes() const {
  std::int64_t value = 0;
  const simdjson::error_code error = value_->is_root ? simdjson::INCORRECT_TYPE : value_->value.get_int64().get(value);
  if (is_structural(error)) broken_structure(*text_, error);
  if (error != simdjson::SUCCESS) {
    complain_number("a whole number of bytes");
    return {};
  }
  if (value < 0 || value > largest_bytes.count) {
    complain(value < 0 ? fmt::format("must not be negative, {}", found())
                       : fmt::format("absurdly large, expected at most {} bytes, {}", largest_bytes.count, found()));
    return {};
  }
  if (text_->total_bytes > largest_total - value) {
    complain("absurdly large: the sum of all sizes so far does not fit 62 bits");
    text_->complaints.throw_now();
  }
  text_->total_bytes += value;
  return {value};
}

Seconds JsonCursor::seconds() const {
  const double value = number();
  if (value <= longest_seconds.value) return {value};
  complain(fmt::format("absurdly large, expected at most {:.0f} seconds, {}", longest_seconds.value, found()));
  return {};
}

Flops JsonCursor::flops() const {
  constexpr double most = 1e24;
  const double value = number();
  if (value <= most) return {value};
  complain(fmt::format("absurdly large, expected at most {:.0e} operations, {}", most, found()));
  return {};
}

std::string JsonCursor::compact() const {
  const char first = *at();
  if (first == '{') {
    std::string text = "{";
    object([&](std::string_view, JsonCursor value) {
      const std::string_view key = token_at(*value.text_, value.key_at_);
      text.append(text.size() > 1 ? "," : "").append(key).append(":").append(value.compact());
    });
    return text + "}";
  }
  if (first == '[') {
    std::string text = "[";
    array([&](JsonCursor element) { text.append(text.size() > 1 ? "," : "").append(element.compact()); });
    return text + "]";
  }
  const std::string token(token_at(*text_, at()));
  if (first == '"') {
    string();
  } else if (first == 't' || first == 'f') {
    boolean();
  } else if (token == "null") {
    return token;
  } else {
    double value = 0;
    const simdjson::error_code error = value_->value.get_double().get(value);
    if (is_structural(error)) broken_structure(*text_, error);
    if (error != simdjson::SUCCESS) complain_type("a value");
  }
  return token;
}

bool JsonCursor::each_field(FieldVisitor visit, void* context) const {
  ondemand::object object;
  const simdjson::error_code not_object =
      value_->is_root ? text_->document.get_object().get(object) : value_->value.get_object().get(object);
  if (is_structural(not_object)) broken_structure(*text_, not_object);
  if (not_object != simdjson::SUCCESS) {
    complain_type("an object");
    return false;
  }
  if (++text_->depth > deepest) invalid(*text_, at(), fmt::format("nested deeper than {}", deepest));
  const std::size_t first_key = text_->keys.size();
  std::unordered_set<std::string_view> many;  // instead of `keys` where a linear search would be slow
  constexpr std::size_t few = 48;
  for (auto item : object) {
    ondemand::field field;
    if (const simdjson::error_code error = std::move(item).get(field)) broken_structure(*text_, error);
    const char* const key_at = field.key().raw() - 1;
    std::string_view key;
    if (field.unescaped_key().get(key) != simdjson::SUCCESS) invalid(*text_, key_at, "a bad escape in a key");
    JsonValue value{field.value()};
    const KeyPath path{path_, key};
    auto& keys = text_->keys;
    bool repeated = false;
    if (keys.size() - first_key < few) {
      repeated = std::find(keys.begin() + static_cast<std::ptrdiff_t>(first_key), keys.end(), key) != keys.end();
      if (!repeated) keys.push_back(key);
    } else {
      if (many.empty()) many.insert(keys.begin() + static_cast<std::ptrdiff_t>(first_key), keys.end());
      repeated = !many.insert(key).second;
    }
    if (repeated) {
      text_->complaints.add(text_->position(key_at), to_string(path), "repeated key");
    } else {
      visit(context, key, JsonCursor(text_, &value, &path, key_at));
    }
  }
  text_->keys.resize(first_key);
  --text_->depth;
  return true;
}

bool JsonCursor::each_element(ElementVisitor visit, void* context) const {
  ondemand::array array;
  const simdjson::error_code not_array =
      value_->is_root ? text_->document.get_array().get(array) : value_->value.get_array().get(array);
  if (is_structural(not_array)) broken_structure(*text_, not_array);
  if (not_array != simdjson::SUCCESS) {
    complain_type("a list");
    return false;
  }
  if (++text_->depth > deepest) invalid(*text_, at(), fmt::format("nested deeper than {}", deepest));
  std::size_t index = 0;
  for (auto item : array) {
    JsonValue element;
    if (const simdjson::error_code error = std::move(item).get(element.value)) broken_structure(*text_, error);
    const KeyPath path{path_, "", index++};
    visit(context, JsonCursor(text_, &element, &path, nullptr));
  }
  --text_->depth;
  return true;
}

JsonDocument::JsonDocument(std::string text, std::string file)
    : text_(new JsonText(std::move(text), std::move(file))), root_(new JsonValue) {
  if (text_->text.starts_with("\xEF\xBB\xBF")) text_->text.erase(0, 3);  // a byte order mark
  text_->text.reserve(text_->text.size() + spare);
  open(*text_);
  root_->is_root = true;
}

JsonDocument::~JsonDocument() = default;

std::optional<std::string> JsonDocument::peek_string(std::string_view key) {
  revive(*text_);
  std::string_view text;
  const simdjson::error_code error = text_->document.at_pointer(std::string("/").append(key)).get_string().get(text);
  if (is_structural(error)) broken_structure(*text_, error);
  if (error != simdjson::SUCCESS) return std::nullopt;
  return std::string(text);
}

bool JsonDocument::is_object() const {
  return text_->text[text_->text.find_first_not_of(" \t\r\n")] == '{';
}

JsonCursor JsonDocument::root() {
  revive(*text_);
  text_->document.rewind();
  return {text_.get(), root_.get(), &root_path_, nullptr};
}

void JsonDocument::finish_reading() {
  const char* at = nullptr;
  const bool more = text_->document.current_location().get(at) == simdjson::SUCCESS;
  if (more && !text_->complaints.any()) invalid(*text_, at, "something follows its end");
  throw_if_any();
}

void JsonDocument::complain(std::string_view path, std::string_view what) {
  std::string pointer = "/";
  for (const char c : path) {
    if (c == '[' || c == '.')
      pointer += '/';
    else if (c != ']')
      pointer += c;
  }
  const char* place = text_->text.data() + std::min(text_->text.find_first_not_of(" \t\r\n"), text_->text.size());
  while (pointer.size() > 1) {
    revive(*text_);
    ondemand::value value;
    if (text_->document.at_pointer(pointer).get(value) == simdjson::SUCCESS) {
      place = value.raw_json_token().data();
      break;
    }
    pointer.resize(pointer.rfind('/'));
  }
  text_->complaints.add(text_->position(place), path, what);
}

void JsonDocument::throw_if_any() const {
  text_->complaints.throw_if_any();
}

}  // namespace plimsoll
