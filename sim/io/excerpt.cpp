#include "sim/io/excerpt.h"

#include <algorithm>
#include <vector>

#include "sim/io/printable.h"

namespace plimsoll {
namespace {

constexpr std::size_t most_shown = 100, most_before = 60;  // columns of a terminal

/// One character as it is shown, and its columns there.
struct Shown {
  std::string text;
  std::size_t columns = 1;
};

/// Of one character in UTF-8.
std::size_t columns_of(std::string_view character) {
  std::uint32_t code = 0;
  const auto first = static_cast<unsigned char>(character[0]);
  if (first < 0x80) return 1;
  code = first & (first < 0xE0 ? 0x1FU : first < 0xF0 ? 0x0FU : 0x07U);
  for (const char c : character.substr(1)) code = code << 6U | (static_cast<unsigned char>(c) & 0x3FU);
  struct Range {
    std::uint32_t from, to;
    std::size_t columns;
  };
  // Unicode's combining marks and East Asian wide characters, as far as they are common.
  constexpr Range ranges[] = {{0x0300, 0x036F, 0}, {0x1100, 0x115F, 2}, {0x200B, 0x200D, 0},   {0x2E80, 0xA4CF, 2},
                              {0xAC00, 0xD7A3, 2}, {0xF900, 0xFAFF, 2}, {0xFE00, 0xFE0F, 0},   {0xFE30, 0xFE6F, 2},
                              {0xFF00, 0xFF60, 2}, {0xFFE0, 0xFFE6, 2}, {0x1F300, 0x1FAFF, 2}, {0x20000, 0x3FFFD, 2}};
  for (const Range& range : ranges) {
    if (code >= range.from && code <= range.to) return range.columns;
  }
  return 1;
}

std::vector<Shown> shown_characters(std::string_view line) {
  std::vector<Shown> characters;
  for (std::size_t at = 0; at < line.size();) {
    std::size_t bytes = 1;
    while (at + bytes < line.size() && (static_cast<unsigned char>(line[at + bytes]) & 0xC0U) == 0x80U) ++bytes;
    const std::string_view character = line.substr(at, bytes);
    std::string text = printable(character);
    const std::size_t columns = text == character ? columns_of(character) : text.size();
    characters.push_back({std::move(text), columns});
    at += bytes;
  }
  return characters;
}

std::string_view line_of(std::string_view text, std::uint32_t number) {
  for (std::uint32_t line = 1; line < number; ++line) {
    const std::size_t newline = text.find('\n');
    if (newline == std::string_view::npos) return {};
    text.remove_prefix(newline + 1);
  }
  std::string_view line = text.substr(0, text.find('\n'));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

}  // namespace

std::string excerpt(std::string_view text, Position at) {
  if (at.line == 0 || at.column == 0) return "";
  std::string_view line = line_of(text, at.line);
  if (line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);  // a byte order mark, which no column counts
  if (line.find_first_not_of(" \t") == std::string_view::npos) return "";
  // A place far inside a long line is found without looking at all that follows.
  constexpr std::size_t longest_character = 4;
  const std::vector<Shown> all = shown_characters(line.substr(0, longest_character * (at.column + most_shown)));
  const std::size_t place = std::min<std::size_t>(at.column - 1, all.size());
  std::size_t first = place, before = 0;
  while (first > 0 && before + all[first - 1].columns <= most_before) before += all[--first].columns;
  std::string shown = first > 0 ? "  ..." : "  ", caret = first > 0 ? "     " : "  ";
  std::size_t end = first, used = 0;
  for (; end < all.size() && used + all[end].columns <= most_shown; used += all[end++].columns) {
    shown += all[end].text;
    if (end < place) caret += all[end].text == "\t" ? "\t" : std::string(all[end].columns, ' ');
  }
  return shown + (end < all.size() ? "...\n" : "\n") + caret + "^";
}

}  // namespace plimsoll
