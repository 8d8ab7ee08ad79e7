// Copies that slow down kernels which the memory bounds otherwise than the others: plans know it, judge and engine
// agree.

#include <catch2/catch.hpp>

#include <algorithm>

#include "platforms/platform_file.h"
#include "sim/engine/event/event_engine.h"
#include "strategies/compose/plan.h"
#include "tests/strategies/judged_plan.h"
#include "traces/models/synthetic.h"

namespace plimsoll {
namespace {

Problem slowed(std::vector<double> products, std::vector<double> memory_bound) {
  Platform platform = load_platform("h100_sxm_8");
  platform.devices.resize(1);
  for (Link& link : platform.links) link.bandwidth.value *= 50;  // else it waits for copies only
  platform.devices[0].overlap_slowdown = std::move(products);
  platform.devices[0].memory_overlap_slowdown = std::move(memory_bound);
  auto made = make_problem(
      synthetic_model("transformer:layers=2,width=1024,heads=16,sequence=256,batch=8,vocabulary=5000,view=graph"),
      std::move(platform), {.optimizer = Optimizer::adam});
  return std::get<Problem>(std::move(made));
}

}  // namespace

TEST_CASE("kernels say that the memory bounds them where copies slow these down otherwise", "[offload]") {
  for (const char* spec : {"store_all", "vdnn(mode=all)", "capuchin", "quantize", "offload_greedy"}) {
    CAPTURE(spec);
    const auto bound = [](const Plan& plan) { return std::ranges::count_if(plan.schedule.steps, &Step::memory_bound); };
    CHECK(bound(judged(slowed({1, 1.09, 1.16}, {}), spec)) == 0);
    const Problem problem = slowed({1, 1.09, 1.16}, {1, 1, 1.02});
    const Plan made = judged(problem, spec);
    CHECK(bound(made) > 20);
    // Products of 2048 x 1024 x 1024 and more compute: 12 a layer, forward and backward twice.
    CHECK(static_cast<std::ptrdiff_t>(made.schedule.steps.size()) - bound(made) > 2 * 12);
  }
}

TEST_CASE("a plan that copies beside kernels takes the longer the more these are slowed down", "[offload]") {
  const char* beside = "vdnn(mode=all)";
  const Plan plain = judged(slowed({1}, {1}), beside);
  const auto simulated = [&](const Problem& problem) {
    return simulate_event(plain.schedule, problem.platform).makespan;
  };
  const Seconds none = simulated(slowed({1}, {1})), memory = simulated(slowed({1}, {1, 1.5})),
                products = simulated(slowed({1, 1.5}, {1})), all = simulated(slowed({1, 1.5}, {1, 1.5}));
  CHECK(none < memory);
  CHECK(none < products);
  CHECK(std::max(memory, products) < all);
  CHECK(all == simulated(slowed({1, 1.5}, {})));
  // Nothing is computed during a copy: nothing is slowed down.
  const char* alone = "save_on_cpu";
  CHECK(judged(slowed({1, 1.5}, {1, 1.3}), alone).makespan == judged(slowed({1}, {}), alone).makespan);
}

}  // namespace plimsoll
