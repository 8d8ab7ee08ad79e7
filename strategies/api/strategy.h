#pragma once
// What a strategy is: a name, a family, options with defaults, and a plain function. Strategies have no state.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "sim/core/decisions.h"
#include "sim/core/partition.h"
#include "sim/core/tape.h"
#include "sim/model/problem.h"
#include "strategies/api/deadline.h"
#include "strategies/api/options.h"

namespace plimsoll {

/// In the order in which they may follow each other in a pass pipeline.
enum class Family : std::uint8_t {
  transform,
  hybrid,
  placement,
  pipelining,
  baseline,
  rematerialization,
  compression,
  offloading
};

/// A part of the graph that a memory strategy makes a tape for.
struct PartTask {
  const Problem& problem;
  const Partition& partition;
  PartId id;                    ///< of the part
  std::uint32_t in_flight = 1;  ///< micro-batches whose forward has begun and whose backward has not ended, at most
  std::uint32_t weights_waiting = 0;  ///< whose backward has ended and whose weight gradients are not made, at most

  const Part& part() const { return partition.parts[id.index]; }
};

/// One of the strategies that another one chooses among, and what it gave.
struct Candidate {
  std::string strategy;             ///< as a pass pipeline
  std::optional<Seconds> makespan;  ///< unset: none, for the reason
  std::string reason;
  bool taken = false;
};

/// A tape and what its maker promises of it, run alone: the peak of the device and the time of an iteration.
struct PlannedTape {
  Tape tape;
  Bytes peak;
  Seconds makespan;
  std::optional<double> gap;  ///< proven relative distance from the best of the strategy's class; 0: optimal there
  std::string note = {};      ///< how it was found, where that is not the whole method: the limit that ended a search
  std::vector<Candidate> candidates = {};  ///< of a strategy that chooses among others
};

/// No tape within the budget.
struct Infeasible {
  std::string reason;
  std::optional<Bytes> smallest;   ///< the least budget for which there is one
  bool smallest_is_proven = true;  ///< false: there is one with that, and with less there may be, if a search went on
};

using TapeOutcome = std::variant<PlannedTape, Infeasible>;

/// Makes tapes of a part for several budgets at once (unset: unlimited). `before` is the tape that the pass before
/// made, or null for the first memory strategy.
using TapesFunction = std::vector<TapeOutcome> (*)(const PartTask&, const Options&,
                                                   std::span<const std::optional<Bytes>> budgets, const Tape* before);

/// Answers to several budgets.
using Asked = std::function<std::vector<TapeOutcome>(std::span<const std::optional<Bytes>>)>;

/// The same for who asks more than once, as long as the task and the tape `before` are there: what does not depend on
/// budgets is made once.
using AskedFunction = Asked (*)(const PartTask&, const Options&, const Tape* before);

/// Which device works on which part of the graph, and in which order on its parts and micro-batches. Outcomes that are
/// the same partition share it.
using PartitionOutcome = std::variant<std::shared_ptr<const Partition>, Infeasible>;

/// Partitions for several budgets of each device at once (unset: unlimited). Throws InputError where there is none for
/// any budget.
using PartitionFunction = std::vector<PartitionOutcome> (*)(const Problem&, const Options&,
                                                            std::span<const std::optional<Bytes>> budgets);

/// Changes the problem itself, or says in one sentence why that cannot be.
using TransformFunction = std::variant<Problem, std::string> (*)(const Problem&, const Options&);

/// Decides how ranks share out the problem, by a search perhaps, which ends in time; the problem is then built from
/// that (strategies/hybrid/built.h). Or says in one sentence why that cannot be.
using DecideFunction = std::variant<Decisions, std::string> (*)(const Problem&, const Options&, const Deadline&);

/// Budgets at which the strategy's answer may change, for the whole front of time against memory; ascending.
using CandidatesFunction = std::vector<Bytes> (*)(const PartTask&, const Options&);

inline constexpr std::size_t no_size_limit = std::numeric_limits<std::size_t>::max();

/// On how much tests try a strategy: so many random problems of at most so many stages and forward ops, each within
/// every `stride`-th byte of budget. Searches and integer programs take too long for all.
struct Trials {
  std::uint64_t problems = 100;
  std::int64_t stride = 1;
  std::uint32_t stages = 9, ops = 12;
};

struct Pass;

/// What is asked of a strategy that takes long, where many are asked.
struct Effort {
  std::size_t stages = no_size_limit,
              ops = no_size_limit;  ///< the largest chain and graph that a portfolio asks it about
  Trials trials = {};
};

/// Makes tapes of parts of the graph: baselines, rematerialization, compression and offloading.
struct TapeStrategy {
  TapesFunction tapes;
  AskedFunction asked = nullptr;            ///< null: all depends on budgets, and `tapes` is asked each time
  CandidatesFunction candidates = nullptr;  ///< null: the answer changes only where it begins to be feasible
  bool packs_stages = false;                ///< of compression: also what the stages of chains list of what they save
  bool plans_parts = false;       ///< plans a part of a pipeline with what other micro-batches keep there; else it is
                                  ///< asked about the part alone
  bool moves_parameters = false;  ///< of offloading: parameters, gradients or states; else activations
};

/// Says which device works on which part, and in which order: placements and pipelines.
struct PartitionStrategy {
  PartitionFunction partition;
  TransformFunction transform = nullptr;              ///< of a pipeline: of what it has cut; null: nothing
  bool (*splits_backward)(const Options&) = nullptr;  ///< whether backwards must be split; null: never
  std::uint32_t (*slices)(const Options&) = nullptr;  ///< micro-batches of what it has cut for each; null: one
};

/// Shares the problem out among ranks, by what it decides or as its options say: hybrids.
struct SplitStrategy {
  DecideFunction decide = nullptr;              ///< null: it has a `transform`
  double (*seconds)(const Options&) = nullptr;  ///< of what decides: limit of the whole search; null: none
  TransformFunction transform = nullptr;
  PartitionFunction partition = nullptr;  ///< of what is also a pipeline
  /// How many ranks its mesh has, where there are so many devices for each rank of the passes before.
  std::uint32_t (*ranks)(const Options&, std::uint32_t devices) = nullptr;
  bool shares_micro_batches = false;                           ///< its ranks each have their own micro-batches
  bool is_cut_on = false;                                      ///< the next pass may cut its ops along another axis
  std::vector<Pass> (*followed_by)(const Options&) = nullptr;  ///< passes that follow it by themselves
};

/// Changes the problem before it is planned.
struct TransformStrategy {
  TransformFunction transform;
};

struct StrategyInfo {
  std::string_view name;
  Family family;
  std::string_view summary;  ///< one sentence
  std::string_view source;
  bool chains_only = false;
  bool needs_updates = false;  ///< refuses a graph without update ops
  bool needs_shapes = false;   ///< refuses chains, and graphs that do not state the shapes of tensors
  OptionSet options = {};
  std::variant<TapeStrategy, PartitionStrategy, SplitStrategy, TransformStrategy> kind;
  Effort effort = {};

  // What the kinds can do. Who calls has asked whether this one can.
  bool makes_tapes() const { return std::holds_alternative<TapeStrategy>(kind); }
  std::vector<TapeOutcome> tapes(const PartTask&, const Options&, std::span<const std::optional<Bytes>> budgets,
                                 const Tape* before) const;
  Asked asked(const PartTask&, const Options&, const Tape* before) const;
  bool names_candidates() const;
  std::vector<Bytes> candidates(const PartTask&, const Options&) const;
  bool partitions() const;
  std::vector<PartitionOutcome> partition(const Problem&, const Options&,
                                          std::span<const std::optional<Bytes>> budgets) const;
  bool transforms() const;
  std::variant<Problem, std::string> transform(const Problem&, const Options&) const;
  bool decides() const;
  bool is_cut_on() const;
  std::variant<Decisions, std::string> decide(const Problem&, const Options&, const Deadline&) const;
  double seconds(const Options&) const;  ///< infinite: no limit

  // What is so of one kind and of no other.
  bool packs_stages() const;
  bool plans_parts() const;
  bool moves_parameters() const;
  bool may_split_backward() const;
  bool splits_backward(const Options&) const;
  std::uint32_t slices(const Options&) const;
  bool shares_micro_batches() const;
  /// One: it has no mesh.
  std::uint32_t ranks(const Options&, std::uint32_t devices) const;
};

std::string_view name_of(Family);

/// Whether the problem that is planned for is another one behind the strategy.
inline bool changes_problem(const StrategyInfo& strategy) {
  return strategy.transforms() || strategy.decides();
}

}  // namespace plimsoll
