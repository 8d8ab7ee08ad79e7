#pragma once
// Where each parameter update of an iteration runs, and the copies that this takes, as a tape that begins with another
// one: gradients leave as soon as they are complete, new parameters come back after the backward.

#include <cstdint>
#include <span>
#include <vector>

#include "strategies/api/strategy.h"

namespace plimsoll {

enum class UpdateSite : std::uint8_t {
  device,    ///< on the device, with the states in its memory
  host,      ///< on the host's processor; states and a copy of the parameters live in its memory
  disk,      ///< the same, but states and that copy live on a disk and are in the host's memory for the update only
  streamed,  ///< on the device; the states live in the host's memory and are on the device for the update only
};

/// Updates that share a fate; a streamed group comes in as a whole when the streamed group before it has been updated.
struct UpdateGroup {
  std::vector<OpId> ops;
  UpdateSite site = UpdateSite::device;
};

struct UpdateCopies {
  bool overlaps_backward = false;  ///< updates on the host begin when their gradient is there; else after the backward
  bool takes_turns = false;        ///< the device updates only while the host waits
  std::uint32_t on_host_at_once = 2;  ///< updates from a disk whose values may be in the host's memory together
};

/// Every update of the part's graph, without what ranks exchange around them, in the order in which the backward
/// completes their gradients. Parameter gradients are completed by the last op of the tape that makes them.
std::vector<OpId> updates_by_gradient(const Problem&, const Tape&);

/// The tape with all its updates placed, and what ranks exchange around them: sums before gradients leave, parameters
/// that are at home elsewhere handed out when they have been updated; the groups name each update once, in the order in
/// which a site takes them. Parameters that the tape streams (their home is not the device) do not come back after an
/// update at their home.
Tape with_updates(const Problem&, Tape, std::span<const UpdateGroup>, const UpdateCopies&);

/// The tape with each update in the last micro-batch, right after the last op that adds to its gradient or reads its
/// parameter; a new gradient dies then.
Tape with_updates_in_backward(const Problem&, Tape);

/// The tape of the pass before or of plain training. Throws InputError where parameters and updates cannot leave the
/// device: no host memory, no update rate of the host, no disk (asked for with `disk`), several parts.
Tape tape_to_update(const PartTask&, const Tape* before, std::string_view strategy, bool disk);

/// The tape with every new parameter gradient on its way to the host once it is complete, where there are no updates.
Tape with_gradients_on_host(const Problem&, Tape);

/// What the tape comes to on the platform, by the event engine.
PlannedTape simulated(const PartTask&, Tape);

/// Bytes of the parameters that the update changes.
Bytes parameter_bytes(const Problem&, OpId update);

}  // namespace plimsoll
