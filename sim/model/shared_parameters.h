#pragma once
// Parameters of several stages: how autograd sums the contributions to their gradients, and what that takes.
// Within one call for the whole backward it has a buffer of its own, from the first contribution to the last, which
// then becomes the gradient or is added to one that exists. Stage by stage each contribution is added to the gradient
// at once.

#include <optional>
#include <vector>

#include "sim/core/chain.h"

namespace plimsoll {

/// Of the stage's parameters those that are trained.
Bytes trained_bytes(const Chain&, const Stage&);

/// Whether the stage states a gradient that is not as large as its trained parameters: a tensor of its own, of no other
/// stage.
bool own_gradient(const Chain&, const Stage&);

/// Every parameter that several stages train, as Chain::shared says; where that says nothing, out of place.
std::vector<SharedParameter> shared_parameters(const Chain&);

/// Workspaces of a stage's backward within one call of autograd, where they differ from those stage by stage: with new
/// parameter gradients, and with existing ones.
struct ReleasedWorkspaces {
  std::optional<Bytes> fresh, accumulating;
};

/// By stage: as the trace states them; else, what summing the gradients of shared parameters takes, added to those
/// stage by stage.
std::vector<ReleasedWorkspaces> released_workspaces(const Chain&);

}  // namespace plimsoll
