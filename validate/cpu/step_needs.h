#pragma once
// What each step of a schedule waits for: its predecessor on its stream, and the steps that it names.

#include <cstdint>
#include <vector>

#include "sim/core/schedule.h"

namespace plimsoll {

struct StepNeeds {
  std::vector<std::uint32_t> missing;           ///< by step: how many steps it waits for
  std::vector<std::vector<StepId>> dependents;  ///< by step: those that wait for it
  std::vector<StepId> ready;                    ///< those that wait for nothing
};

StepNeeds needs_of(const Schedule&);

}  // namespace plimsoll
