#pragma once
// Answers as people read them on a terminal.

#include <span>
#include <string>

#include "experiments/study/run.h"

namespace plimsoll {

/// How far a time is above its bound: `+27.2 %`; `no bound` where that is 0.
std::string percent_above(double value, double bound);

/// Time, memory, what is in memory at the peak, and bounds of one answer that has a schedule.
std::string summary(const Question&, const Problem&, const Answer&);

/// Why a question has no schedule that fits, in one line with the smallest feasible budget.
std::string infeasibility(const Question&, const Answer&);

/// One line a point of the front of time against memory, and one a plan for which the allocator runs out of memory.
/// `plans`: the name of each point's plan, where they are not the question's strategy.
std::string front_table(std::span<const Answer> front, std::span<const Answer> failed,
                        std::span<const std::string> plans = {});

}  // namespace plimsoll
