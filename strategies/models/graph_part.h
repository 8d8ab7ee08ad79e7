#pragma once
// A part of a graph as a problem of its own, for strategies that plan whole graphs on one device, and their tapes as
// the part's.

#include "strategies/compose/part_alone.h"

namespace plimsoll {

/// The ops of the part on its device as a graph that nothing else uses. Ops of no time that run once stand for what it
/// receives and sends, where its own order has them. Parameters that other parts use too have no updates here.
PartAlone graph_part_alone(const PartTask&);

/// A tape of the part alone as the part's, with sends and receives.
Tape tape_with_exchanges(const PartAlone&, const Tape&);

}  // namespace plimsoll
