#pragma once
// Groups of parameters as people write them: `*norm*=adam, *.bias=sgd`. What is left of a `=` is a pattern
// (`*`, `?`, `[a-z]`) for names of parameters, and what is right of it the optimizer that updates these.

#include <string>
#include <string_view>
#include <vector>

#include "sim/core/schedule.h"
#include "sim/io/quantity.h"

namespace plimsoll {

Parsed<std::vector<ParameterGroup>> parse_parameter_groups(std::string_view);

/// As it is read.
std::string written(const std::vector<ParameterGroup>&);

/// Of a pattern that matches none of the names: `; did you mean '*norm*'?`, with a word of theirs, where one is near.
std::string pattern_suggestion(const std::string& pattern, const std::vector<std::string>& names);

}  // namespace plimsoll
