#pragma once
// The grammar of JSON (RFC 8259) over a text in memory: where a string, a number or any value ends, and what it says.
// Everything that breaks the grammar throws, with its place.

#include <string>
#include <string_view>

#include "sim/io/input_error.h"

namespace plimsoll {

class JsonScanner {
 public:
  /// What a text may be: a document, or any value.
  enum class Root { object_or_list, any };

  /// Throws where the text is empty, not UTF-8 or no such root. `origin` is where the text stands in the file.
  JsonScanner(std::string text, std::string file, Position origin = {1, 1}, Root = Root::object_or_list);

  JsonScanner(const JsonScanner&) = delete;
  JsonScanner& operator=(const JsonScanner&) = delete;

  char peek() const { return *next_; }  ///< the next character; 0 at the end of the text
  const char* next() const { return next_; }
  void go_to(const char* at) { next_ = at; }
  void skip_space() {
    while (*next_ == ' ' || *next_ == '\n' || *next_ == '\r' || *next_ == '\t') ++next_;
  }

  /// Takes one character, or throws `expected ',' or '}'`.
  void take(char c, std::string_view expected) {
    if (*next_ != c) refuse(expected);
    ++next_;
  }

  /// Takes a string and returns what it says; valid until the text ends where it has no escapes, else until the next
  /// call.
  std::string_view take_string();

  /// A number as it is written, at the next character or at `at`.
  std::string_view take_number();

  /// Takes any value, checking all of it; `depth` is how deep it stands already.
  void skip_value(int depth);

  /// Where the field or the element (`part` is its index) of an object or a list stands; null where there is none.
  const char* find(const char* container, std::string_view part);

  /// The text from here on that could be one scalar, for messages.
  std::string_view word_at(const char*) const;

  [[noreturn]] void invalid(const char* at, std::string_view what);
  Position position(const char*) const;
  Complaints& complaints() { return complaints_; }
  const char* begin() const { return text_.data(); }
  bool at_end() const { return next_ == text_.data() + text_.size(); }

  static constexpr int deepest = 64;  ///< nesting

 private:
  [[noreturn]] void refuse(std::string_view expected);
  void check_characters();
  void take_digits();
  void take_literal(std::string_view);
  void take_escape(std::string& into);
  unsigned take_hexadecimal();

  std::string text_;
  Position origin_;
  Complaints complaints_;
  const char* next_;
  std::string unescaped_;  ///< of the string that was taken last
};

}  // namespace plimsoll
