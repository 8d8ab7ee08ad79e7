// Requests to the allocator that a trace has measured, replayed step by step over schedules.

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <utility>

#include "platforms/platform_file.h"
#include "sim/engine/event/event_engine.h"
#include "sim/memory/replay.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/memory/naive_allocator.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

constexpr std::int64_t mib = 1 << 20;

/// Stages whose backwards do not read their output, nor, but for the loss, their input; of which `output` and `saved`
/// are in MiB.
Chain chain_of(const std::vector<std::pair<std::int64_t, std::int64_t>>& stages) {
  Chain chain;
  chain.name = "ordered";
  chain.input = Bytes{512};
  chain.tensors = {{"x0", Bytes{512}}};
  chain.boundaries = {{0}};
  for (const auto& [output, saved] : stages) {
    Stage stage;
    stage.name = "stage " + std::to_string(chain.stages.size());
    stage.forward = stage.backward = stage.forward_nograd = Seconds{1};
    stage.output = Bytes{output * mib};
    stage.saved = Bytes{(output + saved) * mib};
    stage.input_gradient = chain.stages.empty() ? Bytes{} : chain.stages.back().output;
    stage.keeps_input = stage.keeps_output = false;
    stage.tensors = StageTensors{};
    if (!chain.stages.empty()) stage.tensors->gradients = {static_cast<std::uint32_t>(chain.stages.size())};
    chain.stages.push_back(stage);
    chain.boundaries.emplace_back();
    if (output == 0) {
      chain.stages.back().tensors->kept = {static_cast<std::uint32_t>(chain.tensors.size() - 1)};
      continue;
    }
    chain.boundaries.back() = {static_cast<std::uint32_t>(chain.tensors.size())};
    chain.tensors.push_back({"x" + std::to_string(chain.tensors.size()), Bytes{output * mib}});
  }
  return chain;
}

Problem problem_with(const Chain& chain, ChainAllocations allocations) {
  Problem problem = problem_of(chain, load_platform("ideal"));
  problem.allocations = std::make_shared<const ChainAllocations>(std::move(allocations));
  return problem;
}

ReservedPeak reserved(const Problem& problem, const std::string& spec, std::optional<Bytes> budget = {}) {
  const PlanOutcome outcome = plan(problem, parse_spec(spec, "test"), budget);
  REQUIRE(std::holds_alternative<Plan>(outcome));
  const Schedule& schedule = std::get<Plan>(outcome).schedule;
  const Timeline timeline = simulate_event(schedule, problem.platform);
  const MemoryId own = problem.platform.devices[0].memory;
  return peak_reserved(schedule, timeline, problem.platform, usual(AllocatorKind::cuda),
                       step_orders(problem, schedule))[own.index];
}

/// A stage that makes 12 MiB, saves 5 and needs 30 on the way, freed before or behind the 5; a loss that saves 3.
ChainAllocations two_stages(bool frees_first) {
  const AllocationOrder forward =
      frees_first ? AllocationOrder{12 * mib, 30 * mib, -2, 5 * mib} : AllocationOrder{12 * mib, 30 * mib, 5 * mib, -2};
  StageAllocations first{.forward = {forward, {3}, {{1, 1}}, {}},
                         .forward_nograd = {{12 * mib, 30 * mib, -2}, {}, {{1, 1}}, {}},
                         .backward = {{24 * mib, -1, -2}, {}, {}, {}},
                         .backward_accumulate = {{24 * mib, -1, -2}, {}, {}, {}}};
  StageAllocations loss{.forward = {{3 * mib}, {1}, {}, {}},
                        .forward_nograd = {{3 * mib, -1}, {}, {}, {}},
                        .backward = {{12 * mib, -1}, {}, {{2, 1}}, {}},
                        .backward_accumulate = {{12 * mib, -1}, {}, {{2, 1}}, {}}};
  return {{first, loss}, {}};
}

TEST_CASE("an allocator is asked in the order of each pass, not for one buffer and one workspace", "[memory]") {
  const Chain chain = chain_of({{12, 5}, {0, 3}});
  // 2 MiB for the input, 12, 30, and 20 for the 5 that are saved while the 30 are there; 3 and then 12 for the gradient
  // fit beside the 5, and 24 where the 30 were.
  CHECK(reserved(problem_with(chain, two_stages(false)), "store_all").reserved == Bytes{(2 + 12 + 30 + 20) * mib});
  // 5 and 3 where the 30 were, and the gradient's 12 behind them; 24 do not fit any more.
  CHECK(reserved(problem_with(chain, two_stages(true)), "store_all").reserved == Bytes{(2 + 12 + 30 + 24) * mib});
  // Without orders: 12, 5 and no workspace; 3 and 12 beside the 5.
  Problem plain = problem_with(chain, {});
  plain.allocations.reset();
  CHECK(reserved(plain, "store_all").reserved == Bytes{(2 + 12 + 20) * mib});
}

TEST_CASE("a forward that keeps nothing and one that runs again have their own orders", "[memory]") {
  const Chain chain = chain_of({{12, 5}, {12, 5}, {0, 3}});
  ChainAllocations allocations = two_stages(false);
  allocations.stages.insert(allocations.stages.begin() + 1, allocations.stages[0]);
  allocations.stages[1].forward.tensors = allocations.stages[1].forward_nograd.tensors = {{1, 2}};
  for (PassAllocations* pass : {&allocations.stages[1].backward, &allocations.stages[1].backward_accumulate}) {
    *pass = {{12 * mib, 24 * mib, -1, -3}, {}, {{2, 1}}, {}};
  }
  for (PassAllocations* pass : {&allocations.stages[2].backward, &allocations.stages[2].backward_accumulate}) {
    pass->tensors = {{2, 2}};
  }
  allocations.stages[0].forward_nograd.order = {12 * mib, 100 * mib, -2};
  const Problem problem = problem_with(chain, allocations);
  CHECK(reserved(problem, "store_all").reserved < Bytes{100 * mib});
  CHECK(reserved(problem, "full_recompute").reserved > Bytes{100 * mib});
}

/// What two iterations of a history take, the second in what the first has left.
std::int64_t twice(const std::vector<AllocationOrder>& history) {
  test::NaiveAllocator allocator(CachingSettings{}, std::int64_t{1} << 40);
  for (int iteration = 0; iteration < 2; ++iteration) {
    const auto input = allocator.allocate(512, 0);
    std::vector<std::optional<test::NaiveAllocator::Place>> made;
    for (const AllocationOrder& order : history) {
      for (const std::int64_t n : order) {
        if (n > 0) {
          made.push_back(allocator.allocate(n, 0));
        } else {
          allocator.free(*std::exchange(made[static_cast<std::size_t>(-n) - 1], {}));
        }
      }
    }
    allocator.free(*input);
    for (const auto& place : made) {
      if (place) allocator.free(*place);
    }
  }
  return allocator.reserved();  // nothing goes back
}

TEST_CASE("a recorded history cut into stages reserves what it reserved", "[memory]") {
  for (const RandomCase seed : fewer_cases(1, 40)) {
    Random random(seed);
    const std::size_t stages = 1 + random.below(6);
    Chain chain = chain_of(std::vector<std::pair<std::int64_t, std::int64_t>>(stages - 1, {1, 1}));
    chain.stages.push_back(chain_of({{0, 1}}).stages[0]);
    chain.stages.back().input_gradient = stages > 1 ? Bytes{mib} : Bytes{};
    chain.stages.back().tensors->gradients.clear();
    if (stages > 1) chain.stages.back().tensors->gradients = {static_cast<std::uint32_t>(stages - 1)};
    chain.boundaries.emplace_back();
    for (Stage& stage : chain.stages) stage.backward_released_workspace = Bytes{7};  // unlike that by stage
    PlainAllocations history;
    history.fresh.resize(2 * stages);
    std::int64_t number = 0;
    std::vector<std::int64_t> live;
    for (AllocationOrder& order : history.fresh) {
      for (std::uint32_t k = random.below(30); k > 0; --k) {
        if (live.empty() || random.chance(0.6)) {
          order.push_back(1 + random.below(1U << (6 + random.below(20))));
          live.push_back(++number);
        } else {
          std::swap(live[random.below(static_cast<std::uint32_t>(live.size()))], live.back());
          order.push_back(-live.back());
          live.pop_back();
        }
      }
    }
    history.accumulate = history.fresh;
    const Problem problem = problem_with(chain, {std::vector<StageAllocations>(stages), history});
    REQUIRE(reserved(problem, "store_all").reserved == Bytes{twice(history.fresh)});
  }
}

TEST_CASE("optimizer states appear in what the first iteration has left", "[memory]") {
  // The 15 MiB that the stage saves take the rest of the parameter's segment of 20, so that its gradient needs another
  // one. States that were there first would take 8 of the rest, the 15 a segment of 16, and the gradient what is left.
  Chain chain = chain_of({{0, 15}});
  chain.stages[0].tensors->kept.clear();
  chain.parameters = {{"w", Bytes{4 * mib}}};
  chain.stages[0].parameters = {0};
  ChainAllocations allocations{{{.forward = {{15 * mib}, {1}, {}, {}},
                                 .forward_nograd = {{15 * mib, -1}, {}, {}, {}},
                                 .backward = {{4 * mib, -1}, {}, {}, {{2, 0}}},
                                 .backward_accumulate = {{-1}, {}, {}, {}}}},
                               {}};
  Problem problem = problem_of(chain, load_platform("ideal"), {.optimizer = Optimizer::adam});
  problem.allocations = std::make_shared<const ChainAllocations>(std::move(allocations));
  CHECK(reserved(problem, "store_all").reserved == Bytes{(2 + 20 + 20) * mib});
}

TEST_CASE("the physical memory limits what is reserved, the budget what is live", "[memory]") {
  const Chain chain = chain_of({{12, 5}, {0, 3}});
  Problem problem = problem_with(chain, two_stages(false));
  CHECK(!reserved(problem, "store_all", Bytes{40 * mib}).out_of_memory);  // though 64 MiB are reserved
  problem.platform.memories[problem.platform.devices[0].memory.index].capacity = Bytes{63 * mib};
  const ReservedPeak small = reserved(problem, "store_all", Bytes{40 * mib});
  REQUIRE(small.out_of_memory);
  CHECK(small.out_of_memory->limit == Bytes{63 * mib});
}

}  // namespace
}  // namespace plimsoll
