// The pipeline `one_by_one`: a micro-batch goes through all stages and back before the next one begins.
// Equation: with equal stages and free transfers the makespan is m p (F + B), and a stage keeps one micro-batch.

#include "strategies/pipelining/pipeline.h"

namespace plimsoll {
namespace {

constexpr auto one_by_one_options = options_of<LineOptions>(stages_option);

std::vector<PartitionOutcome> one_by_one_partition(const Problem& problem, const LineOptions& options,
                                                   std::span<const std::optional<Bytes>> budgets) {
  PipelineOrder order;
  const std::uint32_t ranks = ranks_of(problem, options, "one_by_one");
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    order.rank_of.push_back(rank);
    std::vector<Turn>& turns = order.turns.emplace_back();
    for (std::uint32_t i = 0; i < problem.micro_batches; ++i) {
      turns.push_back({PartId{rank}, i, piece::forward});
      turns.push_back({PartId{rank}, i, piece::backward});
    }
  }
  return pipeline(problem, options, "one_by_one", order, budgets);
}

}  // namespace

extern constinit const StrategyInfo one_by_one_strategy{
    .name = "one_by_one",
    .family = Family::pipelining,
    .summary = "a pipeline without overlap: each micro-batch goes forward and back before the next one begins",
    .source = "own, as an example",
    .chains_only = true,
    .options = one_by_one_options,
    .kind = PartitionStrategy{.partition = by_options<one_by_one_partition>},
};

}  // namespace plimsoll
