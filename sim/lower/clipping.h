#pragma once
// Clipping by the norm of all gradients (torch.nn.utils.clip_grad_norm_), between the backward and the updates.

#include "sim/lower/gradient_owners.h"
#include "sim/lower/live_copies.h"

namespace plimsoll {

/// On every device, and on every host that has gradients, a step reads all that updates will read there: their norm.
/// When these steps are over, everywhere, others scale every copy of these gradients in place. Updates come after them.
/// The steps take no time: their traffic and launches are the updates' (sim/model/update_launches.h). Throws
/// CannotLower where a gradient is on neither a device nor its host.
void clip_gradients(const Problem&, const GradientOwners&, LiveCopies&);

}  // namespace plimsoll
