#pragma once
// The words and signs of a text in Graphviz's DOT language, one after the other.

#include <cstdint>
#include <string>
#include <string_view>

#include "sim/io/input_error.h"

namespace plimsoll {

struct DotToken {
  enum class Kind : std::uint8_t { word, sign, end };

  Kind kind = Kind::end;
  std::string text;        ///< of a word without its quotes; of a sign: `{ } [ ] ; , = : + -> --`
  bool is_quoted = false;  ///< no keyword then
  Position place;

  bool is(std::string_view sign) const { return kind == Kind::sign && text == sign; }
  /// Whether the word is this keyword, in lower or upper case.
  bool is_keyword(std::string_view lower) const;
};

/// The text lives as long as this.
class DotScanner {
 public:
  DotScanner(std::string_view text, Complaints& complaints) : text_(text), complaints_(complaints) {}

  /// Throws where a quote or a comment has no end, or a character is none of the language.
  DotToken next();

 private:
  void skip_blanks();
  void pass(std::size_t bytes);
  Position here() const { return {line_, column_}; }
  [[noreturn]] void refuse(Position, std::string_view what);
  DotToken quoted();

  std::string_view text_;
  Complaints& complaints_;
  std::size_t at_ = 0;
  std::uint32_t line_ = 1, column_ = 1;
};

}  // namespace plimsoll
