// The strategy `chen_sqrt`: Chen's segments (chen.h) as a tape.

#include "strategies/api/strategy.h"
#include "strategies/models/best_of_sequences.h"
#include "strategies/models/chain_pass.h"
#include "strategies/rematerialization/cuts/chen.h"

namespace plimsoll {
namespace {

struct ChenSqrtOptions {
  std::optional<std::size_t> segments;
};

constexpr auto chen_sqrt_options = options_of<ChenSqrtOptions>(option_of<&ChenSqrtOptions::segments>({
    .name = "segments",
    .least = 1,
    .most = 1'000'000,
    .none = "sqrt",
    .values = "sqrt or a whole number from 1",
    .help = "number of segments of the chain; sqrt: the square root of the number of stages, rounded",
}));

std::vector<TapeOutcome> chen_sqrt_tapes(const PartTask& task, const ChenSqrtOptions& options,
                                         std::span<const std::optional<Bytes>> budgets, const Tape*) {
  const ChainModel model = chain_model(task.problem, chain_part(task.problem, task.part()));
  const std::size_t segments = options.segments ? *options.segments : chen_segments(model.stages());
  const ChainSequence sequence = without_forbidden_repeats(model, chen_sequence(model.stages(), segments));
  return fixed_sequence(task, sequence, "chen_sqrt", budgets);
}

}  // namespace

extern constinit const StrategyInfo chen_sqrt_strategy{
    .name = "chen_sqrt",
    .family = Family::rematerialization,
    .summary = "keeps the input of each of sqrt(n) segments and recomputes the rest, one segment at a time",
    .source = "Chen, Xu, Zhang, Guestrin, 'Training Deep Nets with Sublinear Memory Cost', 2016, section 4",
    .chains_only = true,
    .options = chen_sqrt_options,
    .kind = TapeStrategy{.tapes = by_options<chen_sqrt_tapes>, .plans_parts = true},
};

}  // namespace plimsoll
