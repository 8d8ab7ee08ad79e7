#pragma once
// What a strategy is: a name, a family, options with defaults, and a plain function. Strategies have no state.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "sim/core/partition.h"
#include "sim/core/problem.h"
#include "sim/core/tape.h"

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

/// One option of a strategy. `values` describes what is allowed, in words, for help and messages.
struct OptionInfo {
  std::string_view name, default_value, values, help;
  bool (*allowed)(std::string_view);
};

/// The options of one pass, complete with defaults; every value has passed its `allowed`.
class Options {
 public:
  Options(std::span<const OptionInfo> known, std::map<std::string, std::string, std::less<>> given);

  std::string_view text(std::string_view name) const;
  std::int64_t integer(std::string_view name) const;

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

/// A part of the graph that a memory strategy makes a tape for.
struct PartTask {
  const Problem& problem;
  const Partition& partition;
  PartId part;
  std::uint32_t in_flight = 1;  ///< micro-batches of this part that are alive together, the running one included
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

/// Changes the problem itself, or says in one sentence why that cannot be.
using TransformFunction = std::variant<Problem, std::string> (*)(const Problem&, const Options&);

/// Budgets at which the strategy's answer may change, for the whole front of time against memory; ascending.
using CandidatesFunction = std::vector<Bytes> (*)(const PartTask&, const Options&);

struct StrategyInfo {
  std::string_view name;
  Family family;
  std::string_view summary;  ///< one sentence
  std::string_view source;
  bool chains_only;
  std::span<const OptionInfo> options;
  TapesFunction tapes;               ///< null for a transform
  CandidatesFunction candidates;     ///< null: the answer changes only where it begins to be feasible
  bool needs_updates = false;        ///< refuses a graph without update ops
  bool moves_parameters = false;     ///< of offloading: parameters, gradients or states; else activations
  TransformFunction transform = {};  ///< of a transform
};

/// Every registered strategy, by family and name as on the architecture page.
std::span<const StrategyInfo> strategies();

const StrategyInfo* find_strategy(std::string_view name);

std::string_view name_of(Family);

}  // namespace plimsoll
