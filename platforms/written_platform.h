#pragma once
// A platform file with efficiencies written out in it, so that one file is all that other commands need.

#include <string>
#include <string_view>

#include "sim/ops/efficiency.h"

namespace plimsoll {

/// The text of the platform that `reference` names, with its comments, and the efficiencies for all of its devices. The
/// new name is that of the efficiencies; `source` joins the platform's own. Throws InputError where the reference has
/// options, or the platform has efficiencies.
std::string platform_with_efficiency(std::string_view reference, const Efficiency&, const std::string& source);

}  // namespace plimsoll
