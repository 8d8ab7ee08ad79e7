#pragma once
// Lists and ranges of values inside a word of an experiment: `rotor(slots={100, 200})`, `uniform:{8..64 factor 2}`.

#include <string>
#include <string_view>
#include <vector>

#include "sim/io/quantity.h"

namespace plimsoll {

/// More words than this of one word are refused.
inline constexpr std::size_t most_values = 10'000;

/// The words that a word with braces stands for, each of them in turn, the last braces turning fastest; the word itself
/// where it has none. In braces stand values (`{a, b}`), whole numbers from one to another (`{1..8}`), numbers at equal
/// distances (`{8..64 step 8}`), or at equal ratios (`{1..64 factor 2}`); the last is at most the end.
Parsed<std::vector<std::string>> words_meant_by(std::string_view word);

}  // namespace plimsoll
