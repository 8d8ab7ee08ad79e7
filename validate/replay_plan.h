#pragma once
// A schedule made ready to run: which kernels each step calls on which address ranges, what it copies, what it loads.
// Every backend executes the same plan.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "sim/core/schedule.h"
#include "sim/memory/addresses.h"
#include "sim/model/problem.h"
#include "validate/networks/step_program.h"

namespace plimsoll {

/// Room for one form of one storage in one memory: the value, what a codec packed it to, or what that restores. Buffers
/// that hold ranges of it lie in it at their offsets, so that a kernel finds the whole in one piece; only what buffers
/// occupy counts as used.
struct Region {
  MemoryId memory;
  Bytes bytes;
  std::optional<Bytes> at = {};  ///< in its memory's block, of a run from blocks; below 0 where only a later part is
};
using RegionId = Id<struct RegionTag>;

struct Address {
  std::optional<RegionId> region;  ///< unset: in the step's workspace
  Bytes offset;
};

struct PlannedCall {
  OpId op;  ///< of the network's graph, or of that on a slice
  std::vector<Address> inputs, outputs;
  Bytes scratch;                            ///< offset in the workspace
  bool accumulates = false;                 ///< adds to its outputs, which are parameter gradients that exist
  std::optional<RegionId> statistics;       ///< running statistics that this call moves along
  std::optional<Codec> packed = {};         ///< the first input is packed by it, and read as it is
  std::optional<std::uint32_t> slice = {};  ///< which of Network::slices it is of
};

/// Data that appears in a region when the step begins: an input of the network.
struct PlannedLoad {
  RegionId region;
  std::uint32_t micro_batch = 0;
};

/// An update that leaves the version of a parameter before it: what is there is copied, and the copy updated.
struct PlannedVersion {
  RegionId from, to;
};

/// An all-reduce of fp32 gradients: the flows carry them, and the last one to arrive writes the sums, in the order of
/// the ranks, to all of them.
struct PlannedSum {
  struct Value {
    std::vector<RegionId> ranks;
    Bytes offset, bytes;
  };
  std::vector<Value> values;
  std::uint32_t flows = 0;
};

struct PlannedCopy {
  RegionId from, to;
  Bytes offset, bytes;
  std::optional<std::uint32_t> sum = {};  ///< of a flow: of which sum; it carries its step's bytes from the largest
                                          ///< value that it reads, and writes nothing
};

/// A value becomes its packed form, or that what it restores, each in a region of its own.
struct PlannedConversion {
  Codec codec;
  TensorId tensor;  ///< of the scheduled graph
  RegionId from, to;
  bool packs = false;
};

/// A gradient's fp32 numbers that another device has sent are added to those that are here.
struct PlannedAddition {
  RegionId from, to;
  Bytes offset, bytes;
};

/// Nothing of all this: the step only frees.
struct PlannedStep {
  std::vector<PlannedCall> calls;
  std::vector<PlannedLoad> loads;
  std::vector<PlannedVersion> versions;
  std::optional<PlannedCopy> copy;
  std::optional<PlannedConversion> conversion;
  std::optional<PlannedAddition> addition;
  Bytes workspace = {};  ///< that its kernels take: of a rank's, more than the schedule says may be needed
  std::optional<Bytes> workspace_at = {};  ///< in its memory's block
};

struct ReplayPlan {
  std::vector<Region> regions;
  std::vector<RegionId> region_of;  ///< by buffer
  std::vector<PlannedStep> steps;
  std::vector<PlannedSum> sums;              ///< by collective
  std::vector<std::optional<Bytes>> blocks;  ///< by memory: its size, where all that is in it lies in one
};

/// Why a schedule cannot be replayed, in one line that names step and buffer where there is one.
struct ReplayFailure {
  std::string what;
};

/// Buffers that are there when everything has run, by index.
std::vector<BufferId> left_at_end(const Schedule&);

/// The plan of a schedule that check() has passed. The problem's graph is that of the network, or of its chain; that of
/// a rank of a mesh is the network's own, op by op. `addresses`: judged (wrong_address); null: memory comes piece by
/// piece.
std::variant<ReplayPlan, ReplayFailure> replay_plan(const Problem&, const Schedule&, const Network&,
                                                    const Addresses* addresses = nullptr);

}  // namespace plimsoll
