#pragma once
// Run a part in its own order, evict some values between their forward and their backward use, and make each again,
// with all it takes, when an op first misses it. What was made again stays for later readers, unless it is forgotten.

#include <optional>
#include <vector>

#include "strategies/models/op_model.h"
#include "strategies/models/op_sequence.h"

namespace plimsoll {

/// By value: gone after its last reader among the forwards. Values that cannot be made again stay all the same.
using Evicted = std::vector<bool>;

/// Nothing where ops that overwrite each other's inputs never let a reader have all that it reads. Values of
/// `forgotten` do not stay when they were made again: each reader in the backward makes them for itself.
std::optional<OpSequence> recompute_order(const OpModel&, const Evicted&, const Evicted& forgotten = {});

/// The same for another instant than the end of the forward: evicted values are gone after their last reader up to that
/// op, by its number, whatever phase their makers are of.
std::optional<OpSequence> recompute_order_at(const OpModel&, const Evicted&, std::size_t instant);

/// Whether a value can be evicted: a forward makes it and may run again.
bool can_evict(const OpModel&, std::uint32_t value);

/// Number of the last forward.
std::size_t last_forward(const OpModel&);

}  // namespace plimsoll
