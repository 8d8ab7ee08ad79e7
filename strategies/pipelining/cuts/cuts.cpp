#include "strategies/pipelining/cuts/cuts.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

/// The least possible time of the longest of `parts` parts. O(stages) a part: the later the first part ends, the longer
/// it is and the shorter what is left, so that it ends where one comes to the other, or a stage before; and not earlier
/// than the first part of one stage more.
double least_longest(const std::vector<double>& until, std::size_t parts) {
  const std::size_t n = until.size() - 1;
  std::vector<double> fewer(n + 1);  // of stages [i, n), by i, in one part less; where there are as many stages
  for (std::size_t i = 0; i < n; ++i) fewer[i] = until[n] - until[i];
  for (std::size_t p = 2; p <= parts; ++p) {
    std::vector<double> least(n + 1);
    std::size_t j = 1;
    for (std::size_t i = 0; i + p <= n; ++i) {
      j = std::max(j, i + 1);
      while (j + p - 1 < n && until[j] - until[i] < fewer[j]) ++j;
      least[i] = std::max(until[j] - until[i], fewer[j]);
      if (j > i + 1) least[i] = std::min(least[i], std::max(until[j - 1] - until[i], fewer[j - 1]));
    }
    fewer = std::move(least);
  }
  return fewer[0];
}

std::vector<std::size_t> balanced(const Chain& chain, std::size_t parts) {
  std::vector<double> until{0};
  for (const Stage& stage : chain.stages) until.push_back(until.back() + stage.forward.value + stage.backward.value);
  const std::size_t n = chain.stages.size();
  const double longest = least_longest(until, parts);
  std::vector<std::size_t> first{0};
  for (std::size_t left = parts - 1; left > 0; --left) {
    std::size_t end = n - left;                                // of this part
    while (until[end] - until[first.back()] > longest) --end;  // what is left fits best where this part is longest
    first.push_back(end);
  }
  return first;
}

/// Takes a whole number of at most five digits from the front of the text.
std::optional<std::uint32_t> take_number(std::string_view& text) {
  std::uint32_t number = 0;
  const char* const begin = text.data();
  const auto [end, error] = std::from_chars(begin, begin + std::min<std::size_t>(text.size(), 5), number);
  if (error != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - begin));
  return number;
}

bool take(std::string_view& text, char c) {
  if (!text.starts_with(c)) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

std::uint32_t StageCut::devices() const {
  return std::accumulate(copies.begin(), copies.end(), 0U);
}

bool StageCut::has_copies() const {
  return std::ranges::any_of(copies, [](std::uint32_t each) { return each > 1; });
}

StageCut without_copies(std::vector<std::size_t> first) {
  std::vector<std::uint32_t> copies(first.size(), 1);
  return {std::move(first), std::move(copies)};
}

std::optional<StageCut> read_cut(std::string_view text) {
  StageCut cut;
  do {
    const std::optional<std::uint32_t> first = take_number(text);
    if (!first || (cut.first.empty() ? *first != 0 : *first <= cut.first.back())) return std::nullopt;
    cut.first.push_back(*first);
    cut.copies.push_back(1);
    if (!take(text, 'x')) continue;
    const std::optional<std::uint32_t> copies = take_number(text);
    if (!copies || *copies == 0 || *copies > 4096) return std::nullopt;
    cut.copies.back() = *copies;
  } while (take(text, ':'));
  return text.empty() ? std::optional(std::move(cut)) : std::nullopt;
}

std::optional<std::vector<std::uint32_t>> read_numbers(std::string_view text) {
  std::vector<std::uint32_t> numbers;
  do {
    const std::optional<std::uint32_t> number = take_number(text);
    if (!number || *number == 0) return std::nullopt;
    numbers.push_back(*number);
  } while (take(text, ':'));
  return text.empty() ? std::optional(std::move(numbers)) : std::nullopt;
}

std::string text_of(const StageCut& cut) {
  std::string text;
  for (std::size_t g = 0; g < cut.first.size(); ++g) {
    text += fmt::format("{}{}", g == 0 ? "" : ":", cut.first[g]);
    if (cut.copies[g] > 1) text += fmt::format("x{}", cut.copies[g]);
  }
  return text;
}

std::vector<std::size_t> cut_stages(const Chain& chain, std::size_t parts, CutRule rule) {
  EXPECTS(parts > 0 && parts <= chain.stages.size());
  if (rule == CutRule::balanced) return balanced(chain, parts);
  std::vector<std::size_t> first{0};
  const std::size_t each = chain.stages.size() / parts, larger = chain.stages.size() % parts;
  for (std::size_t p = 0; p + 1 < parts; ++p) first.push_back(first.back() + each + (p < larger ? 1 : 0));
  return first;
}

std::vector<StageCut> all_cuts(std::size_t stages, std::size_t parts, std::size_t most) {
  EXPECTS(parts > 0 && parts <= stages);
  std::vector<bool> begins(stages - 1, false);  // whether a part begins behind each stage
  std::fill(begins.end() - static_cast<std::ptrdiff_t>(parts - 1), begins.end(), true);
  std::vector<StageCut> cuts;
  do {
    if (cuts.size() == most) return {};
    std::vector<std::size_t> first{0};
    for (std::size_t i = 0; i < begins.size(); ++i) {
      if (begins[i]) first.push_back(i + 1);
    }
    cuts.push_back(without_copies(std::move(first)));
  } while (std::next_permutation(begins.begin(), begins.end()));
  return cuts;
}

std::vector<std::size_t> least_memory_cut(std::uint32_t stages, std::uint32_t parts, const RangeNeeds& needs) {
  // By first stage, what the parts from the next one on need; nothing where the stages cannot be so many parts.
  std::vector<std::optional<Bytes>> behind(stages + 1);
  behind[stages] = Bytes{0};
  std::vector<std::vector<std::uint32_t>> next(parts, std::vector<std::uint32_t>(stages + 1));
  for (std::uint32_t part = parts; part-- > 0;) {
    std::vector<std::optional<Bytes>> here(stages + 1);
    for (std::uint32_t first = part; first < stages && (part > 0 || first == 0); ++first) {
      std::optional<Bytes>& least = here[first];
      for (std::uint32_t last = first + 1; last <= stages; ++last) {
        const std::optional<Bytes>& most = behind[last];
        if (!most || (least && *most >= *least)) continue;
        const std::optional<Bytes> own = needs(first, last, part);
        if (!own || (least && *own >= *least)) continue;
        least = std::max(*own, *most);
        next[part][first] = last;
      }
    }
    behind = std::move(here);
  }
  std::vector<std::size_t> firsts;
  if (!behind[0]) return firsts;
  for (std::uint32_t part = 0, first = 0; part < parts; first = next[part++][first]) firsts.push_back(first);
  return firsts;
}

}  // namespace plimsoll
