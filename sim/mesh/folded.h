#pragma once
// Platforms on which one device stands for all ranks of a mesh, which do the same at the same time.

#include <string>
#include <variant>

#include "sim/core/mesh.h"
#include "sim/core/platform.h"

namespace plimsoll {

/// The first device of every mesh stays, so that pipeline stages come to be neighbours; other devices go with their
/// memories. What several ranks share is shared out: the capacity and the rates of a host among its
/// devices, and the bandwidth of a link among the ranks whose copies to their host, or to the same rank of the next or
/// the previous stage, go over it. Along an axis that scatters, each of t ranks sends a t-th of a value over its own
/// links, and the receiving ranks gather the value at G bytes a second, as fast as one of 64 MB: links of bandwidth b
/// to the next and the previous stage, which nothing on the way to hosts uses, get 1 / (1 / (t b) + 1 / G). Or in one
/// sentence why there is none: fewer devices than ranks, or no ring to gather along.
std::variant<Platform, std::string> folded(const Platform&, const Mesh&);

}  // namespace plimsoll
