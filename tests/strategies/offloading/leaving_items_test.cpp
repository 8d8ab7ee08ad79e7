// Which values leave between the forward and the backward, whole or in chunks, and what chunks are worth to `snapshot`.

#include "strategies/offloading/snapshot/leaving_items.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "sim/measure/lower_bounds.h"
#include "strategies/compose/spec.h"
#include "strategies/models/op_sequence.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "tests/strategies/judged_plan.h"

namespace plimsoll {
namespace {

/// Position by position: what is there less what of it is away.
Bytes fullest_without(const OffloadModel& model, std::span<const OffloadItem> leaving) {
  std::vector<Bytes> memory = model.memory;
  for (const OffloadItem& item : leaving) {
    for (std::uint32_t p = model.gaps[item.gap].from + 1; p < model.gaps[item.gap].until; ++p) memory[p] -= item.bytes;
  }
  return *std::ranges::max_element(memory);
}

TEST_CASE("as many chunks leave as the budget takes, and the last of them is needed", "[snapshot][property]") {
  constexpr std::array<std::uint32_t, 4> counts{1, 2, 4, 7};
  std::size_t left = 0, finer = 0;
  for (const RandomCase seed : random_cases(1, 200)) {
    Random random(seed);
    const Problem problem = problem_of(random_graph(seed, random.between(2, 12)), gpus({.to_host = BytesPerSecond{4}}));
    const Partition partition = one_device(problem.graph, problem.micro_batches, 1);
    const PartTask task{problem, partition, PartId{0}, 1};
    auto model = std::get<OffloadModel>(offload_model(task, nullptr));
    const Bytes most = fullest_without(model, {}), least = lower_bounds(problem, 1).memory;
    const Bytes budget = least + Bytes{random.below(static_cast<std::uint32_t>((most - least).count + 1))};
    std::map<std::uint32_t, Bytes> sums;
    for (const std::uint32_t chunks : counts) {
      CAPTURE(seed, chunks, budget.count);
      const std::optional<std::vector<OffloadItem>> leaving = leaving_items(model, model.out, budget, chunks);
      if (!leaving) continue;
      std::set<std::pair<std::uint32_t, std::uint32_t>> seen;
      Bytes sum;
      for (const OffloadItem& item : *leaving) {
        CHECK((item.chunk.count == 1 || item.chunk.count == chunks));
        CHECK(item.chunk.index < item.chunk.count);
        CHECK(seen.emplace(item.gap, item.chunk.index).second);
        sum += item.bytes;
      }
      CHECK(fullest_without(model, *leaving) <= budget);
      if (leaving->empty()) continue;
      ++left;
      sums[chunks] = sum;
      CHECK(fullest_without(model, std::span(*leaving).first(leaving->size() - 1)) > budget);
    }
    if (sums.contains(1) && sums.contains(7)) finer += sums[7] < sums[1] ? 1 : 0;
  }
  if (all_cases()) CHECK(left > 100);
  if (all_cases()) CHECK(finer > 10);
}

TEST_CASE("snapshot is never slower with values in chunks, and faster where few are large", "[snapshot][property]") {
  std::size_t faster = 0;
  for (const RandomCase seed : fewer_cases(1, 40)) {
    Random random(seed);
    const Problem problem = problem_of(random_graph(seed, random.between(4, 12)),
                                       gpus({.to_host = BytesPerSecond{static_cast<double>(random.between(1, 9))}}));
    const Bytes least = lower_bounds(problem, 1).memory, most = planned(problem, "store_all").peak;
    for (std::int64_t k = 1; k < 6; ++k) {
      const Bytes budget{least.count + (most - least).count * k / 6};
      CAPTURE(seed, budget.count);
      const PlanOutcome whole = plan(problem, parse_spec("snapshot(chunks=1)", "test"), budget),
                        cut = plan(problem, parse_spec("snapshot(chunks=8)", "test"), budget);
      const Plan *in_one = std::get_if<Plan>(&whole), *in_chunks = std::get_if<Plan>(&cut);
      if (in_one == nullptr) continue;
      REQUIRE(in_chunks != nullptr);
      judge(problem, *in_chunks, budget);
      CHECK(in_chunks->makespan <= in_one->makespan);
      faster += in_chunks->makespan.value < in_one->makespan.value * (1 - 1e-6) ? 1 : 0;
    }
  }
  if (all_cases()) CHECK(faster > cases_of(5U));
}

}  // namespace
}  // namespace plimsoll
