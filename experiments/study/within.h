#pragma once
// Plans of which more than the simulated live bytes is to fit: what any timing may need, or what the allocator
// reserves. Planners know live bytes only, so they are asked for less of them until the rest fits.

#include <optional>
#include <span>

#include "experiments/study/run.h"

namespace plimsoll {

/// Makes a feasible answer one that is not, where what is to fit does not fit its budget, or without one the devices.
void refuse_beyond(Within, const Platform&, Answer&);

/// As `answer` of one budget (unset: the device's capacity), but with the question's `within`. Budgets of live bytes
/// fall by what is too much, then halve the distance to the last that was too much; of up to twelve plans the fastest
/// that fits is taken. A gap is proven against all plans with as many live bytes.
Answer answer_within(const Question&, const Problem&, std::optional<Bytes> budget, double transform_s = 0);

/// The same of several budgets, from the smallest on. One that has nothing, or what takes longer than the plan of a
/// smaller one, has that plan: it fits there, too.
void answer_within(const Question&, const Problem&, std::span<const std::optional<Bytes>> budgets, const TakeAnswer&,
                   double transform_s = 0);

}  // namespace plimsoll
