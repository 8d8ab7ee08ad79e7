#pragma once
// What a GPU driver is given: in-order streams per device, steps on them, waits between steps, and buffers that steps
// allocate and free. The simulator, the replay on hardware and the plots read the same Schedule.

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/core/codec.h"
#include "sim/core/decisions.h"
#include "sim/core/evaluation.h"
#include "sim/core/ids.h"
#include "sim/core/places.h"
#include "sim/core/units.h"
#include "sim/core/updates.h"

namespace plimsoll {

inline constexpr CodecId no_codec{std::numeric_limits<std::uint32_t>::max()};

/// Runs its steps in order, at the same time as the other streams of its device.
struct Stream {
  DeviceId device;
  Way way = way::compute;
};

/// One copy of one storage (of `tensor`), or of a range of it, in one memory, from one allocation to one free.
/// A value that is recomputed, moved or compressed is another buffer.
struct Buffer {
  TensorId tensor;
  std::uint32_t micro_batch = 0;  ///< 0 for parameters, their gradients and states
  std::uint32_t replica = 0;
  MemoryId memory;
  Bytes bytes;               ///< what it occupies
  Bytes range_offset;        ///< which part of the tensor it holds, in bytes of the tensor
  Bytes range_length;        ///< all of the tensor: its bytes
  CodecId codec = no_codec;  ///< packed by it: only unpack, and ops that can do with the packed form, may read it
  bool lossy = false;        ///< holds an approximation of the tensor, at least for a time

  bool is_packed() const { return codec != no_codec; }
};

/// A label for metrics and plots; engines do not read it.
enum class StepKind : std::uint8_t {
  forward,
  backward,
  update,
  recompute,
  offload,
  prefetch,
  send,
  collective,
  pack,
  unpack,
  evaluation
};

inline constexpr OpId no_op{std::numeric_limits<std::uint32_t>::max()};
inline constexpr RouteId no_route{std::numeric_limits<std::uint32_t>::max()};
inline constexpr CollectiveId no_collective{std::numeric_limits<std::uint32_t>::max()};

/// The work of a step. A compute step takes `seconds` on the device. A transfer takes the latency of its route and
/// `seconds`, then `bytes` over the links of `route`.
struct Work {
  Seconds seconds;
  Bytes bytes;
  RouteId route = no_route;

  bool is_transfer() const { return route != no_route; }
};

/// A run of elements in one of the schedule's flat lists.
struct Slice {
  std::uint32_t first = 0, count = 0;
};

struct Step {
  StepKind kind = StepKind::forward;
  StreamId stream;
  OpId op = no_op;                             ///< the op that a compute step runs
  std::uint32_t implementation = 0;            ///< of the op; above 0 one of its alternatives
  std::uint32_t micro_batch = 0, replica = 0;  ///< of an update: which one of the iteration, counted from 0
  CollectiveId collective = no_collective;
  Work work;
  bool memory_bound = false;  ///< a kernel that its device's memory bounds, where copies slow these down otherwise
  Bytes workspace;  ///< live from start to finish: in the memory where the stream computes; a copy's in its device's
  bool measured = false;  ///< `work` and `workspace` were measured: check() does not hold them against the model
  Slice reads;            ///< buffers whose contents it needs
  Slice writes;           ///< existing buffers that it changes (accumulation, update, in-place)
  Slice allocates;        ///< buffers that become live when it starts and that it fills
  Slice frees;            ///< buffers that die when it finishes
  Slice waits;  ///< earlier steps that must have finished before it starts, beside its predecessor on the stream
};

/// From which memory to which; the engine finds the links in the platform.
struct Endpoints {
  MemoryId from, to;
  friend constexpr auto operator<=>(const Endpoints&, const Endpoints&) = default;
};

/// shift: each rank hands what it has on to the next one, and the last one to the first.
enum class CollectiveKind : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast, all_to_all, shift };

/// Steps that together make one collective: every rank reads its inputs and ends with the results. Of several values
/// each is exchanged as it would be alone.
struct Collective {
  CollectiveKind kind = CollectiveKind::all_reduce;
  std::vector<BufferId> inputs;   ///< one a rank and value: all of the first rank, then all of the second
  std::vector<BufferId> outputs;  ///< the same; may equal inputs
  std::uint32_t values = 1;

  std::size_t ranks() const { return inputs.size() / values; }
};

enum class Optimizer : std::uint8_t { none, sgd, momentum, adam };
/// Parameters whose names match the pattern (`*`, `?`, `[a-z]`), which another optimizer updates than the rest.
struct ParameterGroup {
  std::string pattern;
  Optimizer optimizer = Optimizer::none;

  friend bool operator==(const ParameterGroup&, const ParameterGroup&) = default;
};

/// Size of optimizer states. `fp32`: states, and a copy of each narrower parameter, are in fp32 (mixed precision);
/// `as_parameters`: each state has the bytes of its parameter; `by_dtype`: fp32 for parameters narrower than fp32, else
/// as_parameters.
enum class States : std::uint8_t { by_dtype, fp32, as_parameters };
/// How a device launches the updates that --optimizer makes: `fused`, kernels that do all of it for many parameters;
/// `foreach`, kernels that do one operation for many; `single`, a kernel for each update; `megatron`, those of the
/// whole step of Megatron-LM's optimizer in mixed precision.
enum class UpdateKernels : std::uint8_t { fused, foreach, single, megatron };
enum class Gradients : std::uint8_t { fresh, existing };  ///< fresh: appear at the first backward that makes them

struct Schedule {
  std::string trace, platform, strategy;  ///< what it was made for
  std::string trace_from, platform_from;  ///< what --trace and --platform were, paths included; empty: not known
  std::vector<Decisions> decisions;       ///< from which its problem was built, by those of its passes that decide
  std::uint32_t micro_batches = 1;
  std::uint32_t replicas = 1;
  std::optional<Bytes> budget;  ///< of each device; unset: unlimited
  Optimizer optimizer = Optimizer::none;
  std::vector<ParameterGroup> parameter_groups;  ///< the first whose pattern matches; `optimizer` updates the rest
  States states = States::by_dtype;
  UpdateKernels update_kernels = UpdateKernels::fused;
  bool keeps_averages = false;           ///< of trained parameters, among the states of their updates
  bool clips_gradients = false;          ///< updates read gradients that were scaled when the norm of all was known
  std::optional<Evaluation> evaluation;  ///< between iterations: the first steps of devices
  Gradients gradients = Gradients::fresh;
  Updates updates;
  std::uint32_t staleness = 0;  ///< updates that come before a micro-batch's own and that it does not read, at most

  std::vector<Stream> streams;
  std::vector<Buffer> buffers;
  std::vector<Step> steps;  ///< in issue order; waits name earlier steps only
  std::vector<Endpoints> routes;
  std::vector<Collective> collectives;
  std::vector<Codec> codecs;          ///< of packed buffers
  std::vector<TensorId> approximate;  ///< parameter gradients that end as approximations; ascending
  std::vector<BufferId> resident;     ///< live from the start: parameters, states, existing gradients

  std::vector<BufferId> buffer_list;  ///< what reads, writes, allocates and frees point into
  std::vector<StepId> wait_list;      ///< what waits point into

  const Step& operator[](StepId id) const { return steps[id.index]; }
  const Buffer& operator[](BufferId id) const { return buffers[id.index]; }
  const Stream& operator[](StreamId id) const { return streams[id.index]; }
  std::span<const BufferId> buffers_in(Slice s) const { return std::span(buffer_list).subspan(s.first, s.count); }
  std::span<const StepId> waits_of(const Step& s) const {
    return std::span(wait_list).subspan(s.waits.first, s.waits.count);
  }
};

}  // namespace plimsoll
