#pragma once
// InputError: what is wrong with the user's file or command, as lines
// `file:line:column: key: what, expected, found; did you mean 'x'?`, several at once where a reader found several.

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

/// A place in a text, both counted from 1 (columns in characters); line 0: no place, the whole file is meant.
struct Position {
  std::uint32_t line = 0, column = 0;

  friend constexpr auto operator<=>(Position, Position) = default;
};

class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  /// `excerpts`: for each line of the message the text it is about (sim/io/excerpt.h), empty where there is none.
  InputError(const std::string& message, std::vector<std::string> excerpts)
      : std::runtime_error(message), excerpts_(std::move(excerpts)) {}

  const std::vector<std::string>& excerpts() const { return excerpts_; }

 private:
  std::vector<std::string> excerpts_;
};

/// `file:line:column: key: what`; parts that are empty are left out.
std::string located(std::string_view file, Position, std::string_view key, std::string_view what);

/// The place of the byte at `offset` of a text.
Position position_of(std::string_view text, std::size_t offset);

/// `; did you mean 'bandwidth'?`: the nearest candidate, or where none is near the shortest that contains the word;
/// nothing where there is none.
std::string suggestion(std::string_view word, std::span<const std::string_view> candidates);
std::string suggestion(std::string_view word, const std::vector<std::string>& candidates);

/// `cut, balanced or uniform` for messages.
std::string alternatives(std::span<const std::string_view> names);

/// Gathers what is wrong with one file, so that one run of the program tells the user everything.
class Complaints {
 public:
  /// `text` is the file's, which lives as long as this; without it complaints come without excerpts.
  explicit Complaints(std::string file, std::string_view text = {}) : file_(std::move(file)), text_(text) {}

  /// After `most` complaints the error is thrown without waiting for more.
  void add(Position, std::string_view key, std::string_view what);

  [[noreturn]] void throw_now() const;
  void throw_if_any() const;
  bool any() const { return !lines_.empty(); }
  const std::string& file() const { return file_; }

  static constexpr std::size_t most = 20;

 private:
  std::string file_;
  std::string_view text_;
  std::vector<std::string> lines_, excerpts_;
};

}  // namespace plimsoll
