#pragma once
// What is known at the end of a load line: the largest value that fits, and why the next one does not.

#include <string>
#include <vector>

#include "experiments/load/load_line.h"

namespace plimsoll {

/// Why the next value does not fit.
enum class NextProof : std::uint8_t {
  range_ends,   ///< there is none
  no_schedule,  ///< no schedule that keeps as much on the devices as the strategy does fits
  strategy,     ///< the least memory that the strategy needs is above the budget
  not_found,    ///< the strategy found no plan, and says of no memory that it is the least
  refused,      ///< there is no such model, or the strategy cannot treat it
};
template <>
struct Names<NextProof> {
  static constexpr std::array all{
      std::pair{NextProof::range_ends, "range_ends"}, std::pair{NextProof::no_schedule, "no_schedule"},
      std::pair{NextProof::strategy, "strategy"}, std::pair{NextProof::not_found, "not_found"},
      std::pair{NextProof::refused, "refused"}};
};

struct LoadMark {
  const LoadPoint* largest = nullptr;  ///< null: no value fits
  const LoadPoint* next = nullptr;     ///< the value behind it; null: the range ends, or no value fits
  NextProof proof = NextProof::range_ends;
  std::vector<std::uint32_t> holes;   ///< smaller values that do not fit
  std::vector<std::uint32_t> beyond;  ///< larger values that were tried and do not fit
};
LoadMark mark_of(const LoadQuestion&, const LoadLine&);

/// Why the next value does not fit, or where none fits the first one: `26 needs 87.21 GB`.
std::string sentence_on_next(const LoadQuestion&, const LoadLine&, const LoadMark&);

/// The point with the least memory of the range's first value, over all lines; null where no strategy says one.
struct LeastLoad {
  const LoadLine* line = nullptr;
  const LoadPoint* point = nullptr;
};
LeastLoad least_load(const LoadQuestion&, const LoadAnswer&);

}  // namespace plimsoll
