#pragma once
// A sweep's results as tables for a terminal: one a case, a row a budget, a column a strategy.

#include <string>

#include "experiments/sweep/sweep_store.h"

namespace plimsoll {

/// Each cell is the iteration time and how far it is above the time bound; `-` where nothing fits.
std::string report_table(const SweepContents&);

}  // namespace plimsoll
