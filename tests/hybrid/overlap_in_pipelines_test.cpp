// What replicas exchange behind pipelines: dates by hand, and more beside the computation is never slower.

#include <catch2/catch.hpp>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "sim/core/collective_op.h"
#include "sim/engine/event/event_engine.h"
#include "sim/mesh/collective_times.h"
#include "sim/model/stage_exchanges.h"
#include "tests/generate/random.h"
#include "tests/hybrid/judged_plan.h"
#include "tests/hybrid/transformer_ranks.h"

using namespace plimsoll;

namespace {

/// A device, and a link that carries one exchange at a time, over one backward of a chain of stages: a stage begins
/// when the device and all that the link was to do by then are through.
Seconds backward_by_hand(const std::vector<Stage>& plain, const std::vector<StageExchanges>& exchanges) {
  const std::size_t last = plain.size() - 1;
  Seconds now, link = exchanges[last].backward_gather;
  now = std::max(plain[last].forward, link);  // gathered while the last forward runs
  for (std::size_t i = last + 1; i-- > 0;) {
    link = now;
    if (i > 0) link += exchanges[i - 1].backward_gather;
    if (i < last) link += exchanges[i + 1].sum;
    now = std::max(now + plain[i].backward, link);
  }
  return now + exchanges[0].sum - plain[last].forward;
}

}  // namespace

TEST_CASE("the backward of stages that exchange beside it takes as long as by hand", "[hybrid]") {
  Random random(4307);
  for (int round = 0; round < 200; ++round) {
    const std::size_t count = 1 + random.below(6);
    Chain chain;
    std::vector<StageExchanges> exchanges(count);
    for (std::size_t i = 0; i < count; ++i) {
      const auto seconds = [&] { return Seconds{static_cast<double>(random.below(9))}; };
      Stage stage;
      stage.forward = stage.forward_nograd = seconds();
      stage.backward_weight = seconds();
      stage.backward = stage.backward_weight + seconds();
      chain.stages.push_back(stage);
      exchanges[i].forward_gather = seconds();
      exchanges[i].backward_gather = seconds();
      exchanges[i].sum = seconds();
    }
    Chain beside = chain, exposed = chain;
    add_exchanges(beside, exchanges, true);
    add_exposed_exchanges(exposed, exchanges);
    Seconds sum;
    for (std::size_t i = 0; i < count; ++i) {
      const Stage &one = beside.stages[i], &other = exposed.stages[i];
      sum += one.backward;
      // Without overlap a sum goes behind the gradients of the weights, and a gathering in front of all.
      CHECK(other.backward_weight == chain.stages[i].backward_weight + exchanges[i].sum);
      CHECK(other.backward == chain.stages[i].backward + exchanges[i].backward_gather + exchanges[i].sum);
      CHECK(one.forward <= other.forward);
      CHECK(one.backward_weight <= other.backward_weight);
      CHECK(one.backward - one.backward_weight <= other.backward - other.backward_weight);
    }
    CHECK(sum.value == Approx(backward_by_hand(chain.stages, exchanges).value));
  }
}

// With given cuts and orders: balanced cuts, and orders that a heuristic finds, follow the times.
TEST_CASE("behind pipelines more overlap is never slower", "[hybrid][eleventh-5]") {
  const std::string graph = graph_of({.layers = 4, .h = 512, .a = 8, .s = 64, .b = 2, .v = 512});
  const std::string chain = "transformer:layers=4,width=512,heads=8,sequence=64,batch=2,vocabulary=4000";
  for (const std::string& trace : {chain, graph}) {
    for (const char* pipeline :
         {"gpipe(stages=2,cut=uniform)", "1f1b(stages=4,cut=uniform)", "1f1b(stages=2,cut=uniform,sends=blocking)",
          "1f1b(stages=2,cut=uniform)|rotor", "interleaved(stages=2,cut=uniform)", "zb_h1(stages=4,cut=uniform)",
          "v_half(stages=2,cut=uniform)", "dualpipe_v(stages=2,cut=uniform)", "chimera(stages=2,cut=uniform)"}) {
      for (const char* replicas : {"data_parallel", "zero1", "zero2", "zero3"}) {
        CAPTURE(trace, pipeline, replicas);
        const auto seconds = [&](const std::string& overlap) {
          const std::string spec = std::string(replicas) + "(ranks=2,overlap=" + overlap + ")|" + pipeline;
          return judged_plan(problem_on(trace, "a100_sxm_8", 8, spec), spec).makespan;
        };
        CHECK(seconds("yes") <= (1 + 1e-9) * seconds("none"));
      }
    }
  }
}

// Without overlap each device sums its gradients when its last backward is over, and then updates nothing here.
TEST_CASE("replicas of a pipeline sum gradients behind each device's last backward", "[hybrid]") {
  const std::string trace = "transformer:layers=4,width=512,heads=8,sequence=64,batch=2,vocabulary=4000";
  const char *alone = "1f1b(stages=4,cut=uniform)",
             *together = "data_parallel(ranks=2,overlap=none,buckets=off)|1f1b(stages=4,cut=uniform)";
  const Problem plain = problem_on(trace, "h100_sxm_8", 4, alone, Optimizer::none),
                shared = problem_on(trace, "h100_sxm_8", 8, together, Optimizer::none);
  const Plan of_one = judged_plan(plain, alone);
  const Timeline timeline = simulate_event(of_one.schedule, plain.platform);
  auto times_or_why = CollectiveTimes::on(plain.platform, Mesh{{{"data", 2, true, CollectiveWay::ring}}});
  CollectiveTimes& times = std::get<CollectiveTimes>(times_or_why);
  constexpr std::uint32_t axis = 0;
  std::vector<Seconds> last(plain.platform.devices.size()), sums(last.size());
  std::set<StorageId> seen;
  for (std::size_t s = 0; s < of_one.schedule.steps.size(); ++s) {
    const Step& step = of_one.schedule.steps[s];
    if (step.kind != StepKind::backward) continue;
    const std::size_t device = of_one.schedule[step.stream].device.index;
    last[device] = std::max(last[device], timeline.steps[s].finish);
    for (const TensorId t : plain.graph[step.op].outputs) {
      const Tensor& made = plain.graph[t];
      if (made.kind != TensorKind::parameter_gradient || !seen.insert(made.storage).second) continue;
      sums[device] += times.seconds(CollectiveKind::all_reduce, made.bytes, std::span(&axis, 1));
    }
  }
  Seconds end;
  for (std::size_t d = 0; d < last.size(); ++d) end = std::max(end, last[d] + sums[d]);
  CHECK(seen.size() >= 5);
  CHECK(judged_plan(shared, together).makespan.value == Approx(end.value).epsilon(1e-9));
}
