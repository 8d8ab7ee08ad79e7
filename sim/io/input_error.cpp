#include "sim/io/input_error.h"

#include <algorithm>
#include <cctype>
#include <numeric>

#include "sim/io/excerpt.h"

namespace plimsoll {
namespace {

/// Damerau-Levenshtein distance (optimal string alignment): insert, delete, replace, swap neighbours; case is free.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (lower(a[i - 1]) != lower(b[j - 1]) ? 1 : 0);
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, replaced});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) now[j] = std::min(now[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[b.size()];
}

/// Letters and digits alone, small.
std::string bare(std::string_view word) {
  std::string made;
  for (const char c : word) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      made += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return made;
}

enum class Stands { at_first, anywhere };

/// The shortest candidate in which the word stands, but for small letters and what is neither letter nor digit.
std::string_view shortest_with(std::string_view word, std::span<const std::string_view> candidates, Stands where) {
  constexpr std::size_t least = 3;
  const std::string wanted = bare(word);
  std::string_view found;
  if (wanted.size() < least) return found;
  for (const std::string_view candidate : candidates) {
    const std::size_t at = bare(candidate).find(wanted);
    if (at == std::string::npos || (where == Stands::at_first && at > 0)) continue;
    if (found.empty() || candidate.size() < found.size()) found = candidate;
  }
  return found;
}

/// With the fewest letters changed, up to a third of them.
std::string_view nearest_spelled(std::string_view word, std::span<const std::string_view> candidates) {
  std::string_view nearest;
  std::size_t least = std::max<std::size_t>(1, (word.size() + 1) / 3) + 1;
  for (const std::string_view candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < least && distance < std::max(word.size(), candidate.size())) {
      least = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace

std::string located(std::string_view file, Position at, std::string_view key, std::string_view what) {
  std::string line(file);
  if (at.line > 0) line.append(":").append(std::to_string(at.line)).append(":").append(std::to_string(at.column));
  if (!line.empty()) line += ": ";
  if (!key.empty()) line.append(key).append(": ");
  line.append(what);
  std::ranges::replace_if(
      line, [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');  // one line it stays
  return line;
}

Position position_of(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const std::size_t newline = before.rfind('\n');
  const std::string_view line = newline == std::string_view::npos ? before : before.substr(newline + 1);
  const auto starts_character = [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; };
  return {static_cast<std::uint32_t>(std::ranges::count(before, '\n') + 1),
          static_cast<std::uint32_t>(std::ranges::count_if(line, starts_character) + 1)};
}

std::string suggestion(std::string_view word, std::span<const std::string_view> candidates) {
  constexpr std::size_t longest = 64;
  if (word.empty() || word.size() > longest) return "";
  // A number says which one is meant: h100 is h100_sxm_8 and not h200.
  const bool has_number = std::ranges::any_of(word, [](unsigned char c) { return std::isdigit(c) != 0; });
  std::string_view nearest;
  if (has_number) nearest = shortest_with(word, candidates, Stands::at_first);
  if (nearest.empty()) nearest = nearest_spelled(word, candidates);
  if (nearest.empty()) nearest = shortest_with(word, candidates, Stands::anywhere);
  return nearest.empty() ? "" : std::string("; did you mean '").append(nearest).append("'?");
}

std::string suggestion(std::string_view word, const std::vector<std::string>& candidates) {
  const std::vector<std::string_view> views(candidates.begin(), candidates.end());
  return suggestion(word, std::span(views));
}

std::string alternatives(std::span<const std::string_view> names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " or " : ", ";
    text += names[i];
  }
  return text;
}

void Complaints::add(Position at, std::string_view key, std::string_view what) {
  std::string line = located(file_, at, key, what);
  if (std::ranges::find(lines_, line) != lines_.end()) return;
  lines_.push_back(std::move(line));
  excerpts_.push_back(excerpt(text_, at));
  if (lines_.size() < most) return;
  lines_.push_back(located(file_, {}, "", "too many errors, not looking further"));
  throw_now();
}

void Complaints::throw_now() const {
  std::string text;
  for (const std::string& line : lines_) text.append(text.empty() ? "" : "\n").append(line);
  throw InputError(text, excerpts_);
}

void Complaints::throw_if_any() const {
  if (any()) throw_now();
}

}  // namespace plimsoll
