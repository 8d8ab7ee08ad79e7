#pragma once
// What no simulation of a point of `cluster` can beat: in closed form, from the costs of its devices.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/chain.h"
#include "sim/core/partition.h"
#include "sim/measure/rank_costs.h"
#include "strategies/hybrid/cluster/space.h"

namespace plimsoll {

/// A stage that a planner may run again, and what it need not keep of it then.
struct Repeat {
  Bytes frees;
  double seconds_a_byte;
};

/// What one device of a pipeline has of the stages of a rank, for a micro-batch (device_costs.cpp).
struct DeviceCosts {
  Seconds before;        ///< forwards of the stages before its first one
  Seconds behind;        ///< backwards of these
  Seconds behind_input;  ///< the parts of these for inputs
  Seconds forward, backward, weight;
  Seconds again;                       ///< forwards that full_recompute runs again, of its parts at least
  Seconds last_backward, last_weight;  ///< of its longest part
  Seconds updates;                     ///< whole
  Bytes host_moves;                    ///< likewise
  double moves_a_byte, moves_a_state;  ///< of its parameters: the least that a host moves for a byte of them, of states
  Bytes parameters, gradients, states;
  Bytes largest_trained;                 ///< of its parameters
  Bytes trained;                         ///< of the parameters
  Bytes read_again;                      ///< of these what stages have that are neither the model's first nor its last
  Bytes least_gradients, least_trained;  ///< of its parts
  Bytes saved;                           ///< of all its parts
  Bytes least_saved;                     ///< of one of them
  Bytes inputs, least_inputs;            ///< likewise of what enters its stages behind the first of a part
  Bytes read_and_made, made;             ///< while an op of its stages runs: at most
  Bytes left_by_stage;                   ///< that one of its stages leaves beside its output: at most
  Bytes at_repeat;       ///< of the inputs of a part and what a stage of it leaves when it has run again, at most
  Bytes last_trained;    ///< of its last stage
  Seconds longest_pass;  ///< forward, or backward for inputs, of its longest part
  std::vector<Repeat> repeats;  ///< of its stages, those that take least a byte first
};

/// By device, where the model is cut as pipelines cut this chain of it (cut=balanced).
std::vector<DeviceCosts> device_costs(const RankCosts&, const Chain& cut, std::uint32_t stages, std::uint32_t chunks,
                                      PipelineShape);

/// How long the replicas of one device exchange what it has of the model; lower bounds.
struct ReplicaExchange {
  Seconds once;       ///< after the last micro-batch: sums of gradients, and parameters that are handed out
  Seconds each_time;  ///< for every micro-batch: parameters that are gathered, gradients that are summed
};

/// What a device shares with others of the same host, on the platform where it stands for all ranks of its stage.
struct DeviceHost {
  std::uint32_t host;      ///< the same number, the same host
  BytesPerSecond updates;  ///< that the host's processor and memory move for all of its devices; 0: it has none
  BytesPerSecond out, in;  ///< of a lone copy from the device, and to it
};

struct BoundedPoint {
  const ClusterPoint& point;
  const RankCosts& costs;
  const std::vector<DeviceCosts>& devices;     ///< of its stages and chunks
  const std::vector<ReplicaExchange>& shared;  ///< by device
  std::uint32_t micro_batches;                 ///< of each replica
  const std::vector<DeviceHost>& hosts;        ///< by device; empty: there are none, or nothing leaves the devices
  std::optional<Bytes> budget;                 ///< of a device
  bool is_cut_known = true;                    ///< whether `devices` are those of its own cut
  bool has_device_twin = false;                ///< whether the point that updates on devices alone is bounded apart
};

/// A device's memory, by what it consists of.
struct MemoryBound {
  Bytes parameters, gradients, states, activations;
  Bytes exchanged = {};  ///< of the first two what is whole for a while only: gathered, or not yet scattered

  Bytes total() const { return parameters + gradients + states + activations + exchanged; }
};

/// Of the fullest device (memory_bound.cpp).
MemoryBound memory_bound(const BoundedPoint&);

/// What each device would have before its first backward, and before later ones beside its gradients, if nothing were
/// offloaded or made again (memory_bound.cpp). Of points that offload behind known savers, or whose savers plan by
/// stages and that offload nothing, where the cut is known.
struct KeptInFlight {
  Bytes first, later;
  std::uint32_t micro_batches = 0;  ///< in flight; 0: not known
};
KeptInFlight kept_in_flight(const BoundedPoint&, std::uint32_t rank);

/// Of its optimizer states what cannot be on the device within the budget (memory_bound.cpp).
Bytes states_beyond(const BoundedPoint&, std::uint32_t rank);

/// Of the iteration: what devices compute, and what fills and drains a pipeline (computation_bound.cpp).
Seconds computation_bound(const BoundedPoint&);

/// Of the iteration: what replicas exchange beside that (exchange_bound.cpp).
Seconds exchange_bound(const BoundedPoint&);

/// Of the iteration: what does not fit the devices goes to hosts and comes back (copies_bound.cpp).
Seconds copies_bound(const BoundedPoint&);

/// What device r runs again within an iteration since its memory is too small (recomputation_bound.cpp).
Seconds recomputation_bound(const BoundedPoint&, std::uint32_t rank);

/// Of device r's own updates, behind its last backward.
Seconds updates_bound(const ClusterPoint&, const DeviceCosts&);

/// Of both, in the order in which the schedule runs (order_bound.cpp).
struct OrderBound {
  Seconds time;
  MemoryBound memory;
};

/// `of_stages`: the chain of a replica with its times, whose micro-batches are those of a replica; `partition`: what
/// the point's schedule makes of it.
OrderBound order_bound(const BoundedPoint&, const Problem& of_stages, const Partition&);

}  // namespace plimsoll
