// Values are parsed where they are asked for, in one pass over the text, and skipped with a check where they are not.
// An index of the whole text, as simdjson makes it, was measured and given up: for 300,000 ops (110 MB) it costs 115 MB
// and wins no time, since most of it goes into building the graph.

#include "sim/io/json/json_cursor.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <deque>
#include <limits>
#include <unordered_set>

#include "sim/io/json/json_scanner.h"
#include "sim/io/quantity.h"

namespace plimsoll {

struct JsonText {
  JsonText(std::string text, std::string file, Position origin)
      : scanner(std::move(text), std::move(file), origin), complaints(scanner.complaints()), root(scanner.next()) {}

  JsonScanner scanner;
  Complaints& complaints;
  const char* root;
  std::deque<std::string> escaped_keys;  ///< what `keys` points to where it cannot point into the text
  std::vector<std::string_view> keys;    ///< of the objects that are open, to find repeated ones
  std::int64_t total_bytes = 0;
  int depth = 0;
};

namespace {

constexpr std::int64_t largest_total = std::int64_t{1} << 62;

/// The keys of one object that is being read, among those of the objects around it.
class Keys {
 public:
  explicit Keys(std::vector<std::string_view>& all) : all_(all), first_(all.size()) {}
  ~Keys() { all_.resize(first_); }
  Keys(const Keys&) = delete;
  Keys& operator=(const Keys&) = delete;

  bool add(std::string_view key) {
    constexpr std::size_t few = 48;  // up to here a linear search is faster than hashing
    const auto from = all_.begin() + static_cast<std::ptrdiff_t>(first_);
    if (all_.size() - first_ < few) {
      if (std::find(from, all_.end(), key) != all_.end()) return false;
      all_.push_back(key);
      return true;
    }
    if (many_.empty()) many_.insert(from, all_.end());
    return many_.insert(key).second;
  }

 private:
  std::vector<std::string_view>& all_;
  std::size_t first_;
  std::unordered_set<std::string_view> many_;
};

/// What a number's text says; infinity where that is too large for a double.
double real(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_tiny = text.find("e-") != std::string_view::npos || text.find("E-") != std::string_view::npos;
  if (error == std::errc::result_out_of_range) value = is_tiny ? 0 : std::numeric_limits<double>::infinity();
  return value;
}

}  // namespace

bool JsonCursor::is_word() const {
  return *at_ == '"';
}

bool JsonCursor::is_whole() const {
  const std::string_view word = text_->scanner.word_at(at_);
  return word.find_first_not_of("-0123456789") == std::string_view::npos && !word.empty();
}

bool JsonCursor::is_object() const {
  return *at_ == '{';
}

std::string JsonCursor::found() const {
  constexpr std::size_t longest = 60;
  const std::string_view word = text_->scanner.word_at(at_);
  if (word.empty()) return *at_ == '{' ? "found an object" : "found a list";
  return fmt::format("found {}{}", word.substr(0, longest), word.size() > longest ? "..." : "");
}

void JsonCursor::complain(std::string_view what) const {
  text_->complaints.add(text_->scanner.position(at_), to_string(*path_), what);
}

void JsonCursor::complain_unknown_key(const std::vector<std::string_view>& known) const {
  const std::string what = "unknown key" + suggestion(path_->key, known);
  text_->complaints.add(text_->scanner.position(key_at_), to_string(*path_), what);
}

void JsonCursor::complain_missing_key(std::string_view key) const {
  complain(fmt::format("missing key '{}'", key));
}

/// What is no value at all is an error of the text and not of a type: skipping it says so and throws.
void JsonCursor::complain_type(std::string_view expected) const {
  text_->scanner.go_to(at_);
  text_->scanner.skip_value(text_->depth);
  complain(fmt::format("expected {}, {}", expected, found()));
}

std::string JsonCursor::string() const {
  if (is_word()) {
    text_->scanner.go_to(at_);
    return std::string(text_->scanner.take_string());
  }
  complain_type("a string");
  return {};
}

bool JsonCursor::boolean() const {
  const std::string_view word = text_->scanner.word_at(at_);
  if (word != "true" && word != "false") complain_type("true or false");
  return word == "true";
}

/// A number's text, or a complaint and nothing.
std::string_view JsonCursor::written_number(std::string_view expected) const {
  if (*at_ == '-' || (*at_ >= '0' && *at_ <= '9')) {
    text_->scanner.go_to(at_);
    return text_->scanner.take_number();
  }
  complain_type(expected);
  return {};
}

double JsonCursor::number() const {
  const std::string_view text = written_number("a number");
  if (text.empty()) return 0;
  const double value = real(text);
  if (value >= 0 && std::isfinite(value)) return value;
  complain(fmt::format("{}, {}", *at_ == '-' ? "must not be negative" : "absurdly large", found()));
  return 0;
}

std::int64_t JsonCursor::thousandths() const {
  constexpr std::int64_t most = 4'000'000'000'000'000'000;  // the sum of two still fits
  const std::string_view text = written_number("a number");
  if (text.empty()) return 0;
  std::int64_t value = 0;
  const std::size_t point = text.find('.');
  const bool is_plain = text.find_first_of("eE") == std::string_view::npos;
  std::string digits(text.substr(0, point));
  for (std::size_t i = 1; i <= 3; ++i) {
    const bool written = point != std::string_view::npos && point + i < text.size();
    digits += written ? text[point + i] : '0';
  }
  if (!is_plain) {
    const double number = real(text);
    if (std::abs(number) <= static_cast<double>(most) / 1000) return std::llround(number * 1000);
  } else if (std::from_chars(digits.data(), digits.data() + digits.size(), value).ec == std::errc() && value >= -most &&
             value <= most) {
    return value;
  }
  complain(fmt::format("absurdly large, {}", found()));
  return 0;
}

std::int64_t JsonCursor::whole(std::string_view expected) const {
  const std::string_view text = written_number(expected);
  if (text.empty()) return 0;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return value;
  const bool is_whole = text.find_first_of(".eE") == std::string_view::npos;
  complain(fmt::format("{}, {}", is_whole ? "absurdly large" : fmt::format("expected {}", expected), found()));
  return 0;
}

std::int64_t JsonCursor::integer() const {
  return whole("a whole number");
}

std::uint32_t JsonCursor::index() const {
  constexpr std::int64_t most = 4'294'967'294;  // one less than what stands for nothing
  const std::int64_t value = whole("a whole number");
  if (value >= 0 && value <= most) return static_cast<std::uint32_t>(value);
  complain(fmt::format("expected a whole number from 0 to {}, {}", most, found()));
  return 0;
}

Bytes JsonCursor::bytes() const {
  const std::int64_t value = whole("a whole number of bytes");
  if (value < 0 || value > largest_bytes.count) {
    complain(value < 0 ? fmt::format("must not be negative, {}", found())
                       : fmt::format("absurdly large, expected at most {} bytes, {}", largest_bytes.count, found()));
    return {};
  }
  add_to_sum(value);
  return {value};
}

Bytes JsonCursor::signed_bytes() const {
  const std::int64_t value = whole("a whole number of bytes");
  if (value < -largest_bytes.count || value > largest_bytes.count) {
    complain(
        fmt::format("absurdly large, expected {} to {} bytes, {}", -largest_bytes.count, largest_bytes.count, found()));
    return {};
  }
  add_to_sum(value < 0 ? -value : value);
  return {value};
}

void JsonCursor::add_to_sum(std::int64_t bytes) const {
  if (text_->total_bytes > largest_total - bytes) {
    complain("absurdly large: the sum of all sizes so far does not fit 62 bits");
    text_->complaints.throw_now();
  }
  text_->total_bytes += bytes;
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
  JsonScanner& scanner = text_->scanner;
  scanner.go_to(at_);
  scanner.skip_value(text_->depth);
  std::string text;
  bool in_string = false;
  for (const char* c = at_; c < scanner.next(); ++c) {
    const bool is_space = *c == ' ' || *c == '\n' || *c == '\r' || *c == '\t';
    if (in_string || !is_space) text += *c;
    if (in_string && *c == '\\')
      text += *++c;
    else if (*c == '"')
      in_string = !in_string;
  }
  return text;
}

bool JsonCursor::each_field(FieldVisitor visit, void* context) const {
  JsonScanner& scanner = text_->scanner;
  if (!is_object() || text_->depth == JsonScanner::deepest) {
    complain_type("an object");
    return false;
  }
  ++text_->depth;
  Keys keys(text_->keys);
  scanner.go_to(at_ + 1);
  scanner.skip_space();
  while (scanner.peek() != '}') {
    const char* const key_at = scanner.next();
    std::string_view key = scanner.take_string();
    if (key.data() != key_at + 1) key = text_->escaped_keys.emplace_back(key);
    scanner.skip_space();
    scanner.take(':', "':'");
    scanner.skip_space();
    const char* const value_at = scanner.next();
    const KeyPath path{path_, key};
    if (keys.add(key)) {
      visit(context, key, JsonCursor(text_, value_at, &path, key_at));
    } else {
      text_->complaints.add(scanner.position(key_at), to_string(path), "repeated key");
    }
    if (scanner.next() == value_at) scanner.skip_value(text_->depth);
    scanner.skip_space();
    if (scanner.peek() == '}') break;
    scanner.take(',', "',' or '}'");
    scanner.skip_space();
    if (scanner.peek() == '}') scanner.invalid(scanner.next(), "a comma too many");
  }
  scanner.go_to(scanner.next() + 1);
  --text_->depth;
  return true;
}

bool JsonCursor::each_element(ElementVisitor visit, void* context) const {
  JsonScanner& scanner = text_->scanner;
  if (*at_ != '[' || text_->depth == JsonScanner::deepest) {
    complain_type("a list");
    return false;
  }
  ++text_->depth;
  scanner.go_to(at_ + 1);
  scanner.skip_space();
  for (std::size_t index = 0; scanner.peek() != ']'; ++index) {
    const char* const element_at = scanner.next();
    const KeyPath path{path_, "", index};
    visit(context, JsonCursor(text_, element_at, &path, nullptr));
    if (scanner.next() == element_at) scanner.skip_value(text_->depth);
    scanner.skip_space();
    if (scanner.peek() == ']') break;
    scanner.take(',', "',' or ']'");
    scanner.skip_space();
    if (scanner.peek() == ']') scanner.invalid(scanner.next(), "a comma too many");
  }
  scanner.go_to(scanner.next() + 1);
  --text_->depth;
  return true;
}

JsonDocument::JsonDocument(std::string text, std::string file)
    : text_(new JsonText(std::move(text), std::move(file), {1, 1})) {}

JsonDocument::JsonDocument(std::string text, std::string file, const Within& within)
    : text_(new JsonText(std::move(text), std::move(file), within.origin)), root_path_(within.path) {}

JsonDocument::~JsonDocument() = default;

bool JsonDocument::is_object() const {
  return *text_->root == '{';
}

JsonCursor JsonDocument::root() {
  text_->scanner.go_to(text_->root);
  return {text_.get(), text_->root, &root_path_, nullptr};
}

std::optional<std::string> JsonDocument::peek_string(std::string_view key) {
  JsonScanner& scanner = text_->scanner;
  const char* const value = is_object() ? scanner.find(text_->root, key) : nullptr;
  if (value == nullptr || *value != '"') return std::nullopt;
  scanner.go_to(value);
  return std::string(scanner.take_string());
}

void JsonDocument::finish_reading() {
  JsonScanner& scanner = text_->scanner;
  throw_if_any();
  if (scanner.next() == text_->root) scanner.skip_value(0);
  scanner.skip_space();
  if (!scanner.at_end()) scanner.invalid(scanner.next(), "something follows its end");
}

void JsonDocument::complain(std::string_view path, std::string_view what) {
  const char* place = text_->root;
  for (std::string_view rest = path; !rest.empty();) {
    rest.remove_prefix(rest.front() == '.' || rest.front() == '[' ? 1 : 0);
    const std::string_view part = rest.substr(0, rest.find_first_of(".[]"));
    rest.remove_prefix(part.size());
    if (rest.starts_with(']')) rest.remove_prefix(1);
    const char* const found = text_->scanner.find(place, part);
    if (found == nullptr) break;
    place = found;
  }
  text_->complaints.add(text_->scanner.position(place), path, what);
}

void JsonDocument::throw_if_any() const {
  text_->complaints.throw_if_any();
}

}  // namespace plimsoll
