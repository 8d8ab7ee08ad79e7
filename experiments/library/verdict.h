#pragma once
// What a legal schedule comes to, for check and verify: its time and memory, and which memories it overfills.

#include <cstddef>
#include <string>
#include <vector>

#include "sim/core/platform.h"
#include "sim/core/schedule.h"
#include "sim/core/timeline.h"
#include "sim/judge/check.h"

namespace plimsoll {

/// On the event engine, memory counted by check().
struct Verdict {
  Timeline timeline;
  Bytes peak;                  ///< of the fullest device
  std::vector<Overfull> over;  ///< devices over the schedule's budget, other memories over their capacity
  std::size_t measured = 0;    ///< steps that state their own costs
};

Verdict verdict_on(const Schedule&, const Platform&);

/// `legal: 6 steps, 7.00 s, peak 22 B`, and what is over its limit.
std::string text_of(const Verdict&, const Schedule&, const Platform&);

}  // namespace plimsoll
