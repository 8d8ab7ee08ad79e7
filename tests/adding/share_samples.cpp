// The split `share_samples`: every op that loops over samples is cut along them, so that each rank computes a share of
// the batch; all others are whole on every rank. Sums of the weights' gradients follow from the cuts.

#include "sim/ops/op_loop.h"
#include "strategies/api/strategy.h"
#include "strategies/hybrid/on_mesh.h"

namespace plimsoll {
namespace {

/// As `loop` in traces names samples.
constexpr std::string_view samples = "b";

std::variant<Problem, std::string> share_samples_ranks(const Problem& problem, const Options&) {
  SplitPlan plan{{{{"samples", devices_left(problem), false, CollectiveWay::ring}}}, {}};
  for (std::size_t o = 0; o < problem.graph.ops.size(); ++o) {
    std::optional<std::uint8_t>& cut = plan.cuts.emplace_back(1).front();
    if (problem.graph.ops[o].phase == Phase::update) continue;
    const std::variant<OpLoop, std::string> found = loop_of(problem.graph, id_at<OpId>(o));
    const OpLoop* loop = std::get_if<OpLoop>(&found);
    const std::optional<std::uint8_t> dim = loop == nullptr ? std::nullopt : loop->dim(samples);
    if (dim && loop->dims[*dim].cuttable) cut = dim;
  }
  return on_mesh(problem, std::move(plan));
}

}  // namespace

extern constinit const StrategyInfo share_samples_strategy{
    .name = "share_samples",
    .family = Family::hybrid,
    .summary = "cuts every op along its samples",
    .source = "own, as an example",
    .kind = SplitStrategy{.transform = share_samples_ranks,
                          .ranks = [](const Options&, std::uint32_t devices) { return devices; }},
};

}  // namespace plimsoll
