#pragma once
// Text from files and command lines as it may be shown: what is not UTF-8, and what would command a terminal, is
// written as `\xE9`.

#include <cstddef>
#include <streambuf>
#include <string>
#include <string_view>

namespace plimsoll {

/// Bytes that are not UTF-8 are escaped, all else is as it was: what JSON may hold.
std::string as_utf8(std::string_view);

/// Control characters (but newlines and tabs), and marks that turn the direction of writing, are escaped too.
std::string printable(std::string_view);

/// The text, or its beginning and "..." where it has more than `most` bytes; no character is cut in two.
std::string shortened(std::string_view, std::size_t most);

/// While this lives, what is written to `stream` reaches it printable. A character whose bytes come in several writes
/// is kept together.
class PrintableOutput : public std::streambuf {
 public:
  explicit PrintableOutput(std::ostream& stream);
  ~PrintableOutput() override;
  PrintableOutput(const PrintableOutput&) = delete;
  PrintableOutput& operator=(const PrintableOutput&) = delete;

 private:
  int_type overflow(int_type) override;
  std::streamsize xsputn(const char*, std::streamsize) override;
  int sync() override;
  bool pass_on(bool whole);

  std::ostream& stream_;
  std::streambuf* below_;
  std::string waiting_;  ///< the beginning of a character
};

}  // namespace plimsoll
