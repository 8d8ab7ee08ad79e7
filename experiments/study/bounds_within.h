#pragma once
// What no schedule on one device within a budget can beat, and what more of the machine would save of it.

#include <string>

#include "sim/io/json/json.h"
#include "sim/model/problem.h"

namespace plimsoll {

enum class Prices : std::uint8_t { no, shown };

/// For each class of schedules: those that only run ops again, and those that also copy.
Json within_json(const Problem&, Bytes budget, Prices);
std::string within_table(const Problem&, Bytes budget, Prices);

}  // namespace plimsoll
