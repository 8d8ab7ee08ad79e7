#pragma once
// One line of a DTR log: a JSON object whose values are strings, numbers, or lists of these.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/io/input_error.h"

namespace plimsoll {

class LogLine {
 public:
  /// Throws where the text is no such object.
  LogLine(std::string_view text, const std::string& file, std::uint32_t number);

  /// These throw where the key is missing or holds something else.
  const std::string& word(std::string_view key) const;
  const std::vector<std::string>& words(std::string_view key) const;
  std::int64_t whole(std::string_view key) const;  ///< `"17"` or `17`; at least -1
  std::vector<std::int64_t> wholes(std::string_view key) const;

  [[noreturn]] void complain(std::string_view key, std::string_view what) const;

 private:
  struct Field {
    std::string key;
    std::vector<std::string> words;
    bool is_list = false;
    std::size_t at = 0;  ///< of its value
  };

  const Field& field(std::string_view key) const;
  std::int64_t whole_of(const Field&, const std::string& word) const;
  [[noreturn]] void complain_at(std::size_t offset, std::string_view key, std::string_view what) const;

  void expect(char c);
  void skip_spaces();
  std::string read_string();
  std::string read_scalar();
  void read_field();

  std::string_view text_;
  const std::string& file_;
  std::uint32_t number_;
  std::size_t at_ = 0;
  std::vector<Field> fields_;
};

}  // namespace plimsoll
