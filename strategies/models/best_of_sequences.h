#pragma once
// A family of plans for a chain, every budget answered by the fastest of them that fits.

#include <cstddef>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "strategies/models/chain_pass.h"

namespace plimsoll {

/// Plan k of a family of `count`; asked for again where it is chosen, so that a large family need not be stored.
struct SequenceFamily {
  std::string_view name;  ///< of the strategy
  std::size_t count = 0;
  std::function<ChainSequence(std::size_t k)> sequence;
};

/// For every budget the fastest plan whose exact peak fits, so that no budget is exceeded and less memory is never
/// faster. Of equally fast ones the smallest, then the first; in a part of a pipeline without a budget the one that
/// runs the fewest ops. Stages that may run only once save instead.
std::vector<TapeOutcome> best_of_sequences(const PartTask&, const SequenceFamily&,
                                           std::span<const std::optional<Bytes>> budgets);

/// The budgets at which the answer changes, ascending.
std::vector<Bytes> budgets_of_sequences(const PartTask&, const SequenceFamily&);

/// The kind of a strategy that is one family for each setting of its options.
template <class Struct, SequenceFamily (*family)(const PartTask&, const Struct&)>
constexpr TapeStrategy best_of_family() {
  TapeStrategy made{.plans_parts = true};
  made.tapes = [](const PartTask& task, const Options& options, std::span<const std::optional<Bytes>> budgets,
                  const Tape*) { return best_of_sequences(task, family(task, options.as<Struct>()), budgets); };
  made.candidates = [](const PartTask& task, const Options& options) {
    return budgets_of_sequences(task, family(task, options.as<Struct>()));
  };
  return made;
}

/// The same for tapes: all their costs are known.
struct TapeFamily {
  std::string_view name;
  std::vector<TapeCost> costs;
  std::function<Tape(std::size_t k)> tape;
};
std::vector<TapeOutcome> best_of_tapes(const PartTask&, const TapeFamily&,
                                       std::span<const std::optional<Bytes>> budgets);
std::vector<Bytes> budgets_of_tapes(const PartTask&, const TapeFamily&);

/// The sequence with every stage that may run only once saved when it first runs, and without the forwards that are of
/// no use then. Legal wherever the sequence is legal but for such stages.
ChainSequence without_forbidden_repeats(const ChainModel&, ChainSequence);

}  // namespace plimsoll
