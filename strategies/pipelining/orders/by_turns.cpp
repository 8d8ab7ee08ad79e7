#include "strategies/pipelining/orders/by_turns.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/io/input_error.h"
#include "strategies/pipelining/buckets.h"
#include "strategies/pipelining/orders/star_order.h"

namespace plimsoll {
namespace {

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

}  // namespace

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
  return in_buckets(for_budgets(options, budgets, one), options);
}

}  // namespace plimsoll
