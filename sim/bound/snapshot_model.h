#pragma once
// An iteration on one device as bounds by an instant see it (sim/bound/README.md): ops with the least that a first and
// another run take, and values with the least bytes that keep them.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/measure/lower_bounds.h"
#include "sim/model/problem.h"

namespace plimsoll {

/// What the schedules may do for which a bound is to hold.
struct BoundRules {
  Stays stay = Stays::all;             ///< what stays on the device
  std::span<const Codec> codecs = {};  ///< packed forms that they may use
  BytesPerSecond out = {};             ///< all that values can leave the device by, together; 0: they do not leave
  bool one_call = true;                ///< the backward may be one call of autograd where no op repeats
  bool in_turn = true;                 ///< micro-batches run one after the other
};

struct SnapshotOp {
  std::vector<std::uint32_t> reads, makes;  ///< values
  std::vector<std::uint32_t> after;         ///< ops that must have run before it, ascending
  Seconds first, again;                     ///< the least that its runs take if it runs once; that another one adds
  Bytes workspace;                          ///< the least
  bool once = false;                        ///< may not run again
  bool saves = false;                       ///< makes values that are only saved, and read
  bool is_there = true;                     ///< false: a view, or it runs elsewhere
};

/// Version of a storage of the micro-batch. What an op makes in one storage is one value; bytes that need not be on the
/// device and values of no bytes are left out.
struct SnapshotValue {
  TensorId tensor;                     ///< one of those that it holds
  Bytes bytes;                         ///< of its smallest form
  std::optional<std::uint32_t> maker;  ///< op; unset: the network's input, which its first reader loads
  std::vector<std::uint32_t> readers;  ///< ops, ascending
  bool only_saved = false;             ///< a run of its maker that keeps nothing does not make it
};

struct SnapshotModel {
  const Problem* problem = nullptr;
  BoundRules rules;
  std::vector<SnapshotOp> ops;  ///< by op of the graph
  std::vector<SnapshotValue> values;
  std::vector<std::optional<std::uint32_t>> value_of;  ///< by tensor
  Seconds base;                                        ///< sum of `first` of a micro-batch's ops and of updates
  Seconds updates;                                     ///< of it, those of updates
};

/// The problem must outlive the model.
SnapshotModel snapshot_model(const Problem&, DeviceId, const BoundRules& = {});

/// Where an op stands when the instant's op is about to run for the first time.
enum class Side : std::uint8_t {
  before,  ///< it has run: the instant needs it
  itself,
  after,   ///< it has not begun: it needs the instant
  beside,  ///< either
};

/// The start of the first run of an op; of one that makes values which only the backward needs, of its first run that
/// makes them.
struct Instant {
  OpId op;
  std::vector<Side> side;     ///< by op
  std::vector<bool> counted;  ///< by value: it is in `bytes`, and may be read later for nothing
  Bytes bytes;                ///< what must be live then, whatever else is kept
};
/// Of the first micro-batch that comes so far, or of one that begins when all gradients of parameters are there.
enum class MicroBatch : std::uint8_t { first, later };
Instant instant_at(const SnapshotModel&, OpId, MicroBatch = MicroBatch::first);

}  // namespace plimsoll
