#pragma once
// How long an op takes on a device. A trace's times hold on the device it was measured on and on devices that take a
// trace's times as they stand (`ideal`). Anywhere else they are replaced by the roofline of flops and bytes moved:
//   max(flops / peak[dtype], bytes_moved / memory_bandwidth) + launch_overhead
// Where the device has measured efficiencies, kernels of graphs take the time that these say (KernelTimes), and stages
// of chains that of the kernels that they are made of, one after the other.
// Updates move their bytes at the rate of Adam, where the device states one.
// Updates that are made together share launches (sim/model/update_launches.h).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "sim/core/chain.h"
#include "sim/core/graph.h"
#include "sim/core/kernels/gpu_kernel.h"
#include "sim/core/platform.h"
#include "sim/core/schedule.h"

namespace plimsoll {

/// By which figures a kernel's time was found: a table of measured sizes, its border, a share of the bandwidth or the
/// peak, the roofline.
enum class TimedBy : std::uint8_t { table, border, share, roofline };

struct KernelTime {
  Seconds time;
  TimedBy by = TimedBy::roofline;
};

/// How long kernels take on a GPU, and collectives of such GPUs, as measured (sim/ops/efficiency.h).
class KernelTimes {
 public:
  virtual ~KernelTimes() = default;
  /// Nothing where the roofline holds: of sorts of kernels that were not measured, or without the figures that it
  /// needs.
  virtual std::optional<KernelTime> time(const Graph&, const Op&, const Device&) const = 0;

  /// Of one that a stage of a chain is made of, as often as it is there: by the roofline where it was not measured.
  virtual std::optional<KernelTime> time(const StageKernel&, const Source&, const Device&) const = 0;

  /// One after the other, by the figure of the longest. Nothing where there are none, or one has no time.
  std::optional<KernelTime> time(const StageKernels&, const Source&, const Device&) const;

  /// Of a kernel that moves so many bytes.
  virtual Seconds moving(double bytes, const Device&) const = 0;

  /// Of ranks in one node, of so many bytes as sim/mesh/collective_times.h counts them. Nothing where that was not
  /// measured.
  virtual std::optional<Seconds> collective(CollectiveKind, std::uint32_t ranks, double bytes) const = 0;

  std::string name, model;   ///< of the file; the GPU that was measured
  double network_share = 1;  ///< of what a node's network carries: what collectives over several nodes reach
  bool nvls = false;         ///< the switches of its nodes sum all_reduces (NVLink SHARP), as trees of nodes begin with
};

/// What the roofline needs to know of one op.
struct OpCost {
  std::optional<Seconds> measured;
  std::optional<Flops> flops;
  std::optional<Bytes> bytes_moved;
  double launches = 1, traffic = 1;
  std::string_view dtype = {};  ///< what it computes in; empty: the source's
};

/// Whether durations measured on the source's device are taken as they stand on this device.
bool times_hold(const Source&, const Device&);

/// What an op computes in: `fp8` where its first operand has 8 bits a number, or it rounds its operands to so many;
/// else empty, for the source's type.
std::string_view computed_in(const Graph&, const Op&);

/// The duration of an op; nothing if it is unknown: it has no time, or no flops, bytes or device rates to scale by.
std::optional<Seconds> duration(const OpCost&, const Source&, const Device&);

/// The op keeping what it saves, or not (`nograd`), scaled as the whole op is. Updates without a time of their own take
/// the time of their memory traffic, and none on a device that takes the trace's times. An alternative implementation
/// is scaled by its own flops and bytes, or without them as the op is.
enum class Saving { keep, nothing };
std::optional<Seconds> duration(const Graph&, const Op&, const Device&, Saving, std::uint32_t implementation = 0);

/// By which figures the time of an op of a re-scaled graph was found; nothing where it is measured or pinned. Of a
/// stage that of the kernel that takes the longest.
std::optional<TimedBy> timed_by(const Graph&, const Op&, const Device&);

/// Whether its device's memory bounds the kernel: its bytes take at least as long as its flops, by the roofline. Only
/// where the device says that copies slow such kernels down otherwise, and the op says what it moves.
bool is_memory_bound(const Graph&, const Op&, const Device&);

/// Who runs the backward: a caller, stage by stage, who holds each boundary tensor until its last reader is done; or
/// autograd in one call, which frees tensors while an op still runs.
enum class Backprop : std::uint8_t { by_stage, in_one_call };

/// What a duration stage by stage is within one call, where that is measured on such a device; else the same.
Seconds within(Backprop, const Op&, const Source&, const Device&, Seconds by_stage);

/// What of these durations falls away where the network's inputs are there already: it runs again.
Seconds load_on(const Graph&, const Op&, const Device&, Saving);

/// Bytes of workspace of an op. `accumulates`: all parameter gradients that it makes exist already.
Bytes workspace(const Op&, Saving, bool accumulates, std::uint32_t implementation = 0, Backprop = Backprop::by_stage);

/// The chain with the times it has on the device. `refused` says why that cannot be known.
struct ScaledChain {
  Chain chain;
  bool rescaled = false;
  std::string refused;
};
ScaledChain scaled_to(Chain, const Device&);

/// Why the graph's ops have no time on the device, or nothing if they have.
std::optional<std::string> no_times(const Graph&, const Device&);

}  // namespace plimsoll
