// Synchronous pipelines with one part a device: `gpipe`, `1f1b` and `eager_1f1b`.

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "sim/io/input_error.h"
#include "strategies/pipelining/pipeline.h"
#include "strategies/pipelining/star_order.h"

namespace plimsoll {
namespace {

struct GpipeOptions : LineOptions {
  BackwardOrder order = BackwardOrder::lifo;
};

std::vector<PartitionOutcome> gpipe_partition(const Problem& problem, const GpipeOptions& options,
                                              std::span<const std::optional<Bytes>> budgets) {
  const std::uint32_t ranks = ranks_of(problem, options, "gpipe");
  return pipeline(problem, options, "gpipe", gpipe_order(ranks, problem.micro_batches, options.order), budgets);
}

constexpr auto gpipe_options = options_of<GpipeOptions>(
    stages_option, joint_cut_option, shared_updates_option, work_conserving_option, backward_option,
    option_of<&GpipeOptions::order>({
        .name = "order",
        .words = "fifo lifo",
        .help = "which micro-batch's backward is first: the first one's or the last one's",
    }));

// What 1f1b and eager_1f1b share: one forward and one backward by turns, stages on one device or several.

/// Forwards before the first backward, by stage.
std::vector<std::uint32_t> warm_up_of(const TurnOptions& options, std::string_view strategy, const StageCut& cut,
                                      std::uint32_t ahead) {
  std::vector<std::uint32_t> warm_up = warm_up_for(cut.copies);
  for (std::uint32_t& forwards : warm_up) forwards *= ahead;
  if (!options.in_flight) return warm_up;
  const std::string& asked = *options.in_flight;
  const std::vector<std::uint32_t> in_flight = *read_numbers(asked);
  if (in_flight.size() != cut.first.size()) {
    throw InputError(fmt::format("{}: in_flight={} is for {} stage{}, and there are {}", strategy, asked,
                                 in_flight.size(), in_flight.size() == 1 ? "" : "s", cut.first.size()));
  }
  for (std::size_t s = 0; s < in_flight.size(); ++s) {
    warm_up[s] = in_flight[s] - 1;
    // What a stage takes ahead of its backward must have left the stage before, which waits for backwards itself.
    if (s > 0 && warm_up[s] * cut.copies[s] >= in_flight[s - 1] * cut.copies[s - 1]) {
      throw InputError(
          fmt::format("{}: in_flight={} lets stage {} take more ahead than stage {} hands on, so that "
                      "both wait for each other",
                      strategy, asked, s, s - 1));
    }
  }
  return warm_up;
}

/// With `ahead` times the forwards to warm up that 1f1b has, unless the option `in_flight` says otherwise.
std::vector<PartitionOutcome> by_turns(const Problem& problem, const TurnOptions& options, std::string_view strategy,
                                       std::uint32_t ahead, std::span<const std::optional<Bytes>> budgets) {
  const std::uint32_t ranks = ranks_of(problem, options, strategy), m = problem.micro_batches;
  std::vector<Waiting> waiting;
  for (std::uint32_t behind = 0; behind < ranks; ++behind) {
    waiting.push_back({.in_flight = std::min(ahead * behind + 1, m), .weights = 0});
  }
  const bool is_star = ahead == 1 && options.cut == star_cut && !options.in_flight;
  const auto one = [&](const std::optional<Bytes>& budget) {
    if (is_star) return star_partition(problem, strategy, ranks, budget);
    const StageCut cut = asked_cut_with_copies(problem, options, strategy, ranks, waiting, budget);
    const std::vector<std::uint32_t> warm_up = warm_up_of(options, strategy, cut, ahead);
    return partition_of(problem, cut, strategy, one_forward_one_backward_order(m, warm_up, cut.copies));
  };
  return with_sends(in_buckets(for_budgets(options, budgets, one), options), options);
}

std::vector<PartitionOutcome> one_forward_one_backward_partition(const Problem& problem, const TurnOptions& options,
                                                                 std::span<const std::optional<Bytes>> budgets) {
  return by_turns(problem, options, "1f1b", 1, budgets);
}

constexpr auto one_forward_one_backward_options =
    options_of<TurnOptions>(stages_option, joint_cut_option, shared_updates_option, work_conserving_option,
                            backward_option, in_flight_option, buckets_option, sends_option);

std::vector<PartitionOutcome> eager_1f1b_partition(const Problem& problem, const TurnOptions& options,
                                                   std::span<const std::optional<Bytes>> budgets) {
  return by_turns(problem, options, "eager_1f1b", 2, budgets);
}

constexpr auto eager_1f1b_options =
    options_of<TurnOptions>(stages_option, joint_cut_option, shared_updates_option, work_conserving_option,
                            backward_option, in_flight_option, buckets_option, sends_option);

}  // namespace

// The strategy `gpipe`: all forwards of an iteration, then all backwards.
// Equation: with equal stages and free transfers the makespan is (m + p - 1)(F + B), and each stage keeps m
// micro-batches.
extern constinit const StrategyInfo gpipe_strategy{
    .name = "gpipe",
    .family = Family::pipelining,
    .summary = "a pipeline: all micro-batches' forwards, then all their backwards",
    .source = "Huang et al., 'GPipe', NeurIPS 2019",
    .chains_only = true,
    .options = gpipe_options,
    .kind =
        PartitionStrategy{.partition = by_options<gpipe_partition>, .splits_backward = by_options<is_backward_split>},
};

// The strategy `1f1b`: after p - s - 1 forwards to warm up, stage s takes one forward and one backward by turns.
// Equation: with equal stages and free transfers the makespan is (m + p - 1)(F + B), and stage s keeps min(p - s, m)
// micro-batches; a transfer time c adds 2c((p - 1)(1 + floor((m - 1) / p)) + max(0, (m - 1) mod p - 1)).
extern constinit const StrategyInfo one_forward_one_backward_strategy{
    .name = "1f1b",
    .family = Family::pipelining,
    .summary =
        "a pipeline: each stage alternates one forward and one backward, so that few micro-batches are in flight",
    .source = "Narayanan et al., 'PipeDream', SOSP 2019 (with a flush); Fan et al., 'DAPPLE', PPoPP 2021",
    .chains_only = true,
    .options = one_forward_one_backward_options,
    .kind = PartitionStrategy{.partition = by_options<one_forward_one_backward_partition>,
                              .splits_backward = by_options<is_backward_split>},
};

// The strategy `eager_1f1b`: 1F1B with twice the forwards to warm up, so that transfers hide behind them.
// Equation: with equal stages and a transfer time c, 2c <= F + B, the makespan is (m + p - 1)(F + B) + 2c(p - 1), and
// stage s keeps min(2(p - s - 1) + 1, m) micro-batches.
extern constinit const StrategyInfo eager_1f1b_strategy{
    .name = "eager_1f1b",
    .family = Family::pipelining,
    .summary = "1f1b with twice the forwards to warm up: keeps more micro-batches and hides transfers",
    .source = "Zhuang et al., 'On optimizing the communication of model parallelism', MLSys 2023",
    .chains_only = true,
    .options = eager_1f1b_options,
    .kind = PartitionStrategy{.partition = by_options<eager_1f1b_partition>,
                              .splits_backward = by_options<is_backward_split>},
};

}  // namespace plimsoll
