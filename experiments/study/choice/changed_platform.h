#pragma once
// A platform with more of one thing.

#include <set>
#include <string>

#include "sim/core/platform.h"

namespace plimsoll {

/// Kinds of links, as platform files name them, without numbers at the end.
std::set<std::string> link_kinds(const Platform&);

/// All links of a kind with twice the bandwidth, both ways.
Platform with_faster_links(Platform, const std::string& kind);

/// One device more, like the last one and with links to whatever that has links to, and one to it where it has links to
/// other devices.
Platform with_another_device(Platform);

}  // namespace plimsoll
