#pragma once
// Random legal schedules of every kind that the core can carry: chains cut into pipeline parts, micro-batches,
// recomputation, offloads and prefetches, several optimizers. Made from a seed, the same everywhere.

#include <cstdint>

#include "sim/core/schedule.h"
#include "sim/model/problem.h"

namespace plimsoll {

struct RandomPlan {
  Problem problem;
  Schedule schedule;
};

RandomPlan random_plan(std::uint64_t seed);

}  // namespace plimsoll
