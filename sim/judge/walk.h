#pragma once
// What all judges share while they hear of the steps in issue order: the nouns, what follows from them at once, what
// has happened so far. A judge keeps for itself what only its own rules need.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "sim/core/platform.h"
#include "sim/judge/exchange.h"
#include "sim/judge/findings.h"
#include "sim/judge/happens_before.h"
#include "sim/judge/holdings.h"

namespace plimsoll {

/// In an iteration.
std::uint32_t updates_of(const Schedule&);

struct Walk {
  /// Of a schedule whose indices all name something.
  Walk(const Schedule&, const Graph&, const Platform&, Findings&);

  const Schedule& schedule;
  const Graph& graph;
  const Platform& platform;
  Findings& findings;
  std::vector<std::vector<OpId>> makers;  ///< by tensor: who makes a parameter gradient
  std::vector<bool> is_updated;           ///< by storage
  std::vector<StorageId> storages;        ///< by buffer: that of its tensor
  std::uint32_t slices;                   ///< of a sequence: consecutive micro-batches

  HappensBefore before;
  Holdings holdings;
  std::vector<Exchange> exchanges;                              ///< by collective
  std::set<std::pair<TensorId, std::uint32_t>> used_gradients;  ///< by an update (.., replica)

  /// Where a stream's way begins and ends, and its device's host; nothing for a place that the platform has not.
  struct Ends {
    std::optional<MemoryId> from, to, host;
  };
  const Ends& ends_of(const Step& step) const { return ends_[step.stream.index]; }
  /// Where its stream computes, of a copy its device's; nothing for a place that the platform does not have.
  std::optional<MemoryId> own_memory(const Step& step) const;
  /// From the memory of one device to another's, of a stream of one of them.
  bool is_between_devices(const Step& step) const;
  const std::optional<Route>& route(RouteId id);

  bool ordered(StepId earlier, StepId current) const { return earlier == current || before.finished(earlier); }
  bool same_collective(StepId a, StepId b) const {
    return schedule[a].collective != no_collective && schedule[a].collective == schedule[b].collective;
  }
  StorageId storage_of(BufferId b) const { return storages[b.index]; }
  bool is_update(StepId s) const { return graph[schedule[s].op].phase == Phase::update; }
  bool belongs(const Buffer& buffer, const Step& step) const { return belongs(buffer, step, step.micro_batch); }
  bool belongs(const Buffer& buffer, const Step& step, std::uint32_t micro_batch) const {
    return buffer.replica == step.replica &&
           (!per_micro_batch(graph[buffer.tensor].kind) || buffer.micro_batch == micro_batch);
  }
  /// Whether one of these buffers is of the tensor's storage.
  bool fills(const Slice& slice, TensorId t) const;
  /// Whether a buffer of the tensor's storage is live where and for what the step computes.
  bool is_live(TensorId t, const Step& step);

  /// How often an op has run for a micro-batch, or an update, of a replica.
  std::uint32_t& runs_of(OpId op, std::uint32_t micro_batch, std::uint32_t replica) {
    return ran_[first_run_[op.index] + std::size_t{micro_batch} * schedule.replicas + replica];
  }
  std::uint32_t& runs_of(const Step& step) { return runs_of(step.op, step.micro_batch, step.replica); }

  /// The micro-batches whose gradients one update takes.
  std::uint32_t micro_batches_of_update() const;
  std::uint32_t update_of(std::uint32_t micro_batch) const { return micro_batch / micro_batches_of_update(); }
  /// Whether a parameter gradient has every contribution.
  bool is_complete(BufferId b);

  /// Of a copy or conversion: what it reads and what it fills.
  static bool is_pair(const Step& step) {
    return step.reads.count == 1 && step.writes.count + step.allocates.count == 1;
  }
  std::pair<BufferId, BufferId> pair_of(const Step& step) const;
  /// Whether a conversion changes a parameter gradient that is there: then it adds to it.
  bool adds_gradients(const Step& step) const;
  /// Whether it is a pass of clipping: it reads gradients for their norm, or scales them, and has no op.
  bool clips(const Step& step) const;
  /// Whether it is an evaluation between iterations: of its kind, without an op, and the header says that there are
  /// some.
  bool evaluates(const Step& step) const;

 private:
  std::vector<std::size_t> first_run_;  ///< by op: index into ran_ of its first run
  std::vector<std::uint32_t> ran_;      ///< by run of an op: how often it was made
  std::vector<Ends> ends_;              ///< by stream
  std::map<Endpoints, std::optional<Route>> routes_;
  RouteFinder route_finder_;
};

}  // namespace plimsoll
