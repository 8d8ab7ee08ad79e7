// The strategy `expert`: replicas that share out the experts of mixtures, whole ones. Each sends its tokens to the
// ranks that have their experts, and gets back what these make of them.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sim/mesh/shared_experts.h"
#include "strategies/hybrid/built.h"
#include "strategies/hybrid/on_mesh.h"

namespace plimsoll {
namespace {

struct ExpertOptions : DataOptions {
  double imbalance = 1;
};

constexpr auto expert_options = options_of<ExpertOptions>(
    replicas_option,
    option_of<&ExpertOptions::imbalance>({
        .name = "imbalance",
        .least = 1,
        .most = 1000,
        .help = "tokens of the rank with the most, in multiples of the mean; also the factor of a capacity",
    }),
    gradient_buckets_option, gradient_overlap_option, collectives_option);

std::variant<Problem, std::string> expert_ranks(const Problem& problem, const ExpertOptions& options) {
  if (problem.chain) return no_operators(*problem.chain);
  const std::variant<bool, std::string> beside = overlaps(options, Sharded::nothing);
  if (const std::string* why = std::get_if<std::string>(&beside)) return *why;
  const Axis axis{"expert", replicas(options, devices_left(problem)), true, options.collectives};
  if (problem.mesh && std::ranges::any_of(problem.mesh->axes, &Axis::shares_micro_batches)) {
    return "it stands before what trains replicas: all that they sum is known then";
  }
  std::variant<Problem, std::string> made = with_outer_axis(problem, axis);
  if (std::holds_alternative<std::string>(made)) return made;
  Problem& of_rank = std::get<Problem>(made);
  std::variant<SharedExperts, std::string> shared =
      with_shared_experts(std::move(of_rank.graph), axis, axis.ranks > 1 ? options.imbalance : 1);
  if (std::string* why = std::get_if<std::string>(&shared)) return std::move(*why);
  SharedExperts& experts = std::get<SharedExperts>(shared);
  if (axis.ranks == 1) {
    of_rank.graph = problem.graph;
    return made;
  }
  std::variant<Graph, std::string> graph = trained_together(std::move(experts.graph), axis,
                                                            {.sharded = Sharded::nothing,
                                                             .bucket = options.buckets.value_or(Bytes{}),
                                                             .overlaps = std::get<bool>(beside),
                                                             .unlike = std::move(experts.gradients)});
  if (std::string* why = std::get_if<std::string>(&graph)) return std::move(*why);
  of_rank.graph = std::get<Graph>(std::move(graph));
  return made;
}

}  // namespace

extern constinit const StrategyInfo expert_strategy{
    .name = "expert",
    .family = Family::hybrid,
    .summary = "Expert parallelism: replicas share out the experts of mixtures, and exchange tokens before and behind.",
    .source =
        "Lepikhin et al., GShard: Scaling Giant Models with Conditional Computation and Automatic Sharding, ICLR "
        "2021; Rajbhandari et al., DeepSpeed-MoE, ICML 2022",
    .options = expert_options,
    .kind =
        SplitStrategy{
            .transform = by_options<expert_ranks>,
            .ranks = by_options<replicas>,
            .shares_micro_batches = true,
        },
};

}  // namespace plimsoll
