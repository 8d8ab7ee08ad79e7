#include "strategies/pipelining/cuts.h"

#include <algorithm>
#include <limits>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

/// The least possible time of the longest of `parts` parts. O(stages^2) a part.
double least_longest(const std::vector<double>& until, std::size_t parts) {
  const std::size_t n = until.size() - 1;
  constexpr double impossible = std::numeric_limits<double>::infinity();
  std::vector<double> fewer(n + 1, impossible);  // of stages [i, n), by i, in one part less
  fewer[n] = 0;
  for (std::size_t p = 1; p <= parts; ++p) {
    std::vector<double> least(n + 1, impossible);
    for (std::size_t i = 0; i + p <= n; ++i) {
      for (std::size_t j = i + 1; j + p - 1 <= n && until[j] - until[i] < least[i]; ++j) {
        least[i] = std::min(least[i], std::max(until[j] - until[i], fewer[j]));
      }
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

}  // namespace

std::vector<std::size_t> cut_stages(const Chain& chain, std::size_t parts, CutRule rule) {
  EXPECTS(parts > 0 && parts <= chain.stages.size());
  if (rule == CutRule::balanced) return balanced(chain, parts);
  std::vector<std::size_t> first{0};
  const std::size_t each = chain.stages.size() / parts, larger = chain.stages.size() % parts;
  for (std::size_t p = 0; p + 1 < parts; ++p) first.push_back(first.back() + each + (p < larger ? 1 : 0));
  return first;
}

}  // namespace plimsoll
