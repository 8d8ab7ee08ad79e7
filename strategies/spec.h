#pragma once
// The pass pipeline of the command line: `name(option=value, ...)` joined with `|`.

#include <string>
#include <string_view>
#include <vector>

#include "strategies/passes.h"

namespace plimsoll {

/// The transforms at the head of a pipeline, those that change the problem; none where the text does not begin with
/// one, whatever it says.
std::vector<Pass> transforms_of(std::string_view spec, std::string_view where);

/// Throws InputError, located as `where:1:column`, for what is malformed, unknown or out of range, and for passes that
/// cannot follow each other.
std::vector<Pass> parse_spec(std::string_view spec, std::string_view where);

}  // namespace plimsoll
