#pragma once
// What Capuchin evicts, in the order in which it decides: to the host while copies hide, then whatever costs less, a
// copy or running its makers again.

#include "strategies/models/op_model.h"
#include "strategies/models/recompute_order.h"
#include "strategies/offloading/activations/offload_selection.h"

namespace plimsoll {

struct Eviction {
  std::uint32_t gap = 0;
  std::optional<std::uint32_t> recompute;  ///< the storage of the op model whose values are made again; unset: copied
};

/// With the first k evictions, peaks[k] is needed, the memory of recomputation aside.
struct CapuchinChoice {
  std::vector<Eviction> evictions;
  std::vector<Bytes> peaks;
};

/// `starts`: when each position of the measured iteration begins, and its end. `ops` is null where nothing may be
/// recomputed, else the tape is plain training's.
CapuchinChoice choose_evictions(const OffloadModel&, std::span<const Seconds> starts, const OpModel* ops);

}  // namespace plimsoll
