#pragma once
// The JSON scanner against nlohmann-json: both take a text or refuse it, and find the same in it.

#include <charconv>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "sim/io/json/json_scanner.h"

namespace plimsoll {

/// What a reader comes to: a bracket, a key, a word, a number or a literal.
struct JsonEvent {
  char kind = 0;
  std::string text = {};
  double number = 0;

  friend bool operator==(const JsonEvent&, const JsonEvent&) = default;
};

/// Walks a text with our scanner.
class ScannerEvents {
 public:
  explicit ScannerEvents(const std::string& text) : scanner_(text, "text", {1, 1}, JsonScanner::Root::any) {}

  std::vector<JsonEvent> all() {
    value();
    scanner_.skip_space();
    if (!scanner_.at_end()) scanner_.invalid(scanner_.next(), "something follows its end");
    return events_;
  }

 private:
  void value() {
    const char* const at = scanner_.next();
    scanner_.skip_value(0);  // all of its grammar, then what it says
    const char* const behind = scanner_.next();
    scanner_.go_to(at);
    if (*at == '{' || *at == '[') {
      within(*at == '{');
    } else if (*at == '"') {
      events_.push_back({'s', std::string(scanner_.take_string())});
    } else if (*at == 't' || *at == 'f' || *at == 'n') {
      events_.push_back({*at});
    } else {
      const std::string_view written = scanner_.take_number();
      JsonEvent event{'1'};
      const auto [end, error] = std::from_chars(written.data(), written.data() + written.size(), event.number);
      if (error == std::errc::result_out_of_range) event.number = 0;  // too small: the other rounds to 0
      events_.push_back(event);
    }
    scanner_.go_to(behind);
  }

  void within(bool is_object) {
    const char close = is_object ? '}' : ']';
    events_.push_back({is_object ? '{' : '['});
    scanner_.go_to(scanner_.next() + 1);
    for (scanner_.skip_space(); scanner_.peek() != close; scanner_.skip_space()) {
      if (is_object) {
        events_.push_back({'k', std::string(scanner_.take_string())});
        scanner_.skip_space();
        scanner_.take(':', "':'");
        scanner_.skip_space();
      }
      value();
      scanner_.skip_space();
      if (scanner_.peek() == ',') scanner_.take(',', "','");
    }
    events_.push_back({close});
  }

  JsonScanner scanner_;
  std::vector<JsonEvent> events_;
};

/// What nlohmann-json tells.
class LibraryEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<JsonEvent> events;
  bool too_large = false;  ///< a number that no double holds: no matter of grammar, and the end for the library

  bool null() override { return add({'n'}); }
  bool boolean(bool value) override { return add({value ? 't' : 'f'}); }
  bool number_integer(number_integer_t value) override { return add({'1', {}, static_cast<double>(value)}); }
  bool number_unsigned(number_unsigned_t value) override { return add({'1', {}, static_cast<double>(value)}); }
  bool number_float(number_float_t value, const string_t&) override { return add({'1', {}, value}); }
  bool string(string_t& value) override { return add({'s', value}); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return add({'{'}); }
  bool key(string_t& value) override { return add({'k', value}); }
  bool end_object() override { return add({'}'}); }
  bool start_array(std::size_t) override { return add({'['}); }
  bool end_array() override { return add({']'}); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    constexpr int out_of_range = 406;
    too_large = error.id == out_of_range;
    return false;
  }

 private:
  bool add(JsonEvent event) {
    events.push_back(std::move(event));
    return true;
  }
};

/// In which way the two differ about the text, if they do. Nesting deeper than ours takes is refused here only; a zero
/// byte ends the text for the library, so such texts are none for this.
inline std::optional<std::string> json_disagreement(const std::string& text) {
  if (text.find('\0') != std::string::npos) return std::nullopt;
  LibraryEvents library;
  const bool taken = nlohmann::json::sax_parse(text, &library);
  std::vector<JsonEvent> ours;
  try {
    ours = ScannerEvents(text).all();
  } catch (const InputError& error) {
    const std::string what = error.what();
    if (!taken || what.find("nested deeper than") != std::string::npos) return std::nullopt;
    return "only we refuse it: " + what;
  }
  if (library.too_large) return std::nullopt;
  if (!taken) return "only the library refuses it";
  if (ours != library.events) return "we find something else in it";
  return std::nullopt;
}

}  // namespace plimsoll
