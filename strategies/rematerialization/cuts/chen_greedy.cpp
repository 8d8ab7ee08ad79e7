#include "strategies/rematerialization/cuts/chen_greedy.h"

#include <algorithm>
#include <memory>

#include "strategies/api/strategy.h"
#include "strategies/models/best_of_sequences.h"

namespace plimsoll {
namespace {

struct ChenGreedyOptions {
  std::optional<Bytes> size;
};

constexpr std::size_t most_parameters = 1000;

struct ChenGreedy {
  ChainModel model;
  std::vector<Bytes> parameters;
};

SequenceFamily chen_greedy_family(const PartTask& task, const ChenGreedyOptions& options) {
  const ChainPart part = chain_part(task.problem, task.part());
  ChenGreedy planner{chain_model(task.problem, part), {}};
  planner.parameters = !options.size ? greedy_parameters(planner.model) : std::vector{*options.size};
  const auto shared = std::make_shared<const ChenGreedy>(std::move(planner));
  return {.name = "chen_greedy", .count = shared->parameters.size(), .sequence = [shared](std::size_t k) {
            return segments_sequence(greedy_segments(shared->model, shared->parameters[k]).segments);
          }};
}

}  // namespace

GreedySegments greedy_segments(const ChainModel& model, Bytes b) {
  GreedySegments result;
  std::size_t first = 0;
  Bytes inside;
  for (std::size_t i = 0; i + 1 < model.stages(); ++i) {
    inside += model.saved[i];
    if (inside <= b || i + 2 == model.stages()) continue;
    result.segments.push_back({first, i + 1, true});
    result.next = std::min(result.next.value_or(inside), inside);
    first = i + 1;
    inside = {};
  }
  result.segments.push_back({first, model.stages(), false});
  return result;
}

std::vector<Bytes> greedy_parameters(const ChainModel& model) {
  std::vector<Bytes> all;
  for (std::optional<Bytes> b = Bytes{0}; b; b = greedy_segments(model, *b).next) all.push_back(*b);
  if (all.size() <= most_parameters) return all;
  std::vector<Bytes> some;
  for (std::size_t k = 0; k < most_parameters; ++k) {
    some.push_back(all[k * (all.size() - 1) / (most_parameters - 1)]);
  }
  return some;
}

namespace {

constexpr auto chen_greedy_options = options_of<ChenGreedyOptions>(option_of<&ChenGreedyOptions::size>({
    .name = "b",
    .values = "auto or a size, such as 300MB",
    .help = "size of its activations above which a segment is closed; auto: the size whose schedule is the fastest "
            "within the budget",
}));

std::vector<TapeOutcome> chen_greedy_tapes(const PartTask& task, const ChenGreedyOptions& options,
                                           std::span<const std::optional<Bytes>> budgets, const Tape*) {
  return best_of_sequences(task, chen_greedy_family(task, options), budgets);
}

std::vector<Bytes> chen_greedy_candidates(const PartTask& task, const ChenGreedyOptions& options) {
  return budgets_of_sequences(task, chen_greedy_family(task, options));
}

}  // namespace

extern constinit const StrategyInfo chen_greedy_strategy{
    .name = "chen_greedy",
    .family = Family::rematerialization,
    .summary = "cuts the chain wherever a segment's activations exceed a size, and recomputes one segment at a time",
    .source = "Chen, Xu, Zhang, Guestrin, 'Training Deep Nets with Sublinear Memory Cost', 2016, algorithm 3",
    .chains_only = true,
    .options = chen_greedy_options,
    .kind =
        TapeStrategy{
            .tapes = by_options<chen_greedy_tapes>,
            .candidates = by_options<chen_greedy_candidates>,
            .plans_parts = true,
        },
};

}  // namespace plimsoll
