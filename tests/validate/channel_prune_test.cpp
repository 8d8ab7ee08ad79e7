// Networks with fewer channels: what `channel_prune` makes of a wide one against a narrow one as it is built, and
// trained.

#include <algorithm>
#include <catch2/catch.hpp>

#include "sim/judge/check.h"
#include "strategies/compose/spec.h"
#include "tests/training/training.h"
#include "validate/networks/changed_network.h"
#include "validate/networks/networks.h"

namespace plimsoll {
namespace {

std::string residual(int channels) {
  return "resnet:blocks=3,picture=16,batch=2,classes=5,view=graph,updates=adam,channels=" + std::to_string(channels);
}

Problem pruned_problem(const Problem& whole, const std::string& spec) {
  return transformed(whole, parse_spec(spec, "test"));
}

TEST_CASE("half of a network's channels are the network with half as many", "[validate]") {
  for (const auto& [wide, ratio, narrow] :
       {std::tuple{16, "0.5", 8}, std::tuple{32, "0.75", 8}, std::tuple{20, "0.2", 16}}) {
    INFO(wide << " to " << narrow);
    const Training whole = training_of(residual(wide), one_gpu()), built = training_of(residual(narrow), one_gpu());
    const Problem made =
        pruned_problem(whole.problem, std::string("channel_prune(times=proportional, ratio=") + ratio + ")");
    REQUIRE(made.graph.tensors.size() == built.problem.graph.tensors.size());
    for (std::size_t t = 0; t < made.graph.tensors.size(); ++t) {
      const Tensor &ours = made.graph.tensors[t], &theirs = built.problem.graph.tensors[t];
      INFO(ours.name);
      CHECK(ours.name == theirs.name);
      CHECK(ours.shape == theirs.shape);
      CHECK(ours.bytes == theirs.bytes);
    }
    for (std::size_t o = 0; o < made.graph.ops.size(); ++o) {
      const Op &ours = made.graph.ops[o], &theirs = built.problem.graph.ops[o];
      INFO(ours.name);
      CHECK(ours.bytes_moved == theirs.bytes_moved);
      CHECK(ours.flops->count == Approx(theirs.flops->count));
    }
  }
}

TEST_CASE("a pruned network replayed trains as the narrow one does, bit for bit", "[validate]") {
  for (const std::string then : {"", "|greedy_recompute", "|offload_greedy"}) {
    const Training whole = training_of(residual(32), one_gpu(), {.micro_batches = 2});
    const Training narrow = training_of(residual(16), one_gpu(), {.micro_batches = 2});
    const std::string spec = "channel_prune" + then;
    INFO(spec);
    Problem made = pruned_problem(whole.problem, spec);
    Network network = whole.network.network;
    take_shapes(network.graph, made.graph);
    const Training changed{std::move(made), with_kernels(std::move(network))};
    const PlanOutcome outcome = plan(changed.problem, parse_spec(spec, "test"), std::nullopt);
    const Schedule& schedule = std::get<Plan>(outcome).schedule;
    const Replayed run = replayed(changed, schedule);
    CHECK(recount(schedule, run.timeline, changed.problem.platform)[0] == run.timeline.peaks[0].bytes);
    const PlanOutcome plain = planned(narrow.problem, "store_all");
    const Replayed theirs = replayed(narrow, std::get<Plan>(plain).schedule);
    CHECK(differing(run, theirs).empty());
    CHECK(differing(theirs, run).empty());
    CHECK(run.values.size() > 20);
  }
}

}  // namespace
}  // namespace plimsoll
