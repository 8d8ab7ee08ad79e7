// offload_exact against an exhaustive search by the letter, and the other strategies and the fluid bound against it.

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>

#include "sim/core/lowering.h"
#include "sim/engine/event/event_engine.h"
#include "strategies/offloading/offload_bound.h"
#include "strategies/offloading/offload_placement.h"
#include "strategies/offloading/offload_search.h"
#include "strategies/plan.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"

namespace plimsoll {
namespace {

/// All subsets, all positions by which a value is gone and before which it comes back, first in first out both ways;
/// the time of each by the engine, its memory by counting what is not away at each position.
class Exhaustive {
 public:
  Exhaustive(const PartTask& task, const OffloadModel& model, std::vector<OffloadItem> items)
      : task_(task), model_(model), items_(std::move(items)) {
    for (std::uint32_t subset = 0; subset < 1U << items_.size(); ++subset) {
      moves_.clear();
      for (std::size_t i = 0; i < items_.size(); ++i) {
        if ((subset >> i) & 1U) moves_.push_back({items_[i], gap(items_[i]).made, 0, 0, {}, {}});
      }
      std::ranges::stable_sort(moves_, {}, [&](const OffloadMove& m) { return gap(m.item).until; });
      choose_back(0, 0);
    }
  }

  std::optional<Seconds> fastest(Bytes budget) const {
    std::optional<Seconds> best;
    for (const auto& [memory, time] : best_) {
      if (memory <= budget && (!best || time < *best)) best = time;
    }
    return best;
  }

 private:
  const OffloadGap& gap(const OffloadItem& item) const { return model_.gaps[item.gap]; }

  void choose_back(std::size_t m, std::uint32_t least) {
    if (m == moves_.size()) {
      std::vector<OffloadMove> leaving = moves_;
      std::ranges::stable_sort(leaving, {}, [&](const OffloadMove& move) { return gap(move.item).made; });
      return choose_gone(leaving, 0, 0);
    }
    for (std::uint32_t p = std::max(least, gap(moves_[m].item).from + 1); p <= gap(moves_[m].item).until; ++p) {
      moves_[m].back = p;
      choose_back(m + 1, p);
    }
  }

  void choose_gone(std::vector<OffloadMove>& leaving, std::size_t m, std::uint32_t least) {
    if (m == leaving.size()) return measure(leaving);
    for (std::uint32_t p = std::max(least, gap(leaving[m].item).from + 1); p <= leaving[m].back; ++p) {
      leaving[m].gone = p;
      choose_gone(leaving, m + 1, p);
    }
  }

  void measure(const std::vector<OffloadMove>& leaving) {
    std::vector<Bytes> memory = model_.memory;
    for (const OffloadMove& move : leaving) {
      for (std::uint32_t p = move.gone; p < move.back; ++p) memory[p] -= move.item.bytes;
    }
    // Prefetches of one position are issued in the order in which they are needed.
    std::vector<OffloadMove> moves = leaving;
    const Tape tape = offload_tape(model_, moves);
    const std::variant<Schedule, std::string> made = lower(task_.problem, task_.partition, std::span(&tape, 1));
    const Seconds time = simulate_event(std::get<Schedule>(made), task_.problem.platform).makespan;
    const auto [place, fresh] = best_.try_emplace(*std::ranges::max_element(memory), time);
    if (!fresh) place->second = std::min(place->second, time);
  }

  const PartTask& task_;
  const OffloadModel& model_;
  std::vector<OffloadItem> items_;
  std::vector<OffloadMove> moves_;  // in the order in which they come back
  std::map<Bytes, Seconds> best_;   // by the memory that is needed
};

Problem chain_at(std::uint64_t seed, std::size_t stages, double bytes_per_second) {
  return problem_of(random_small_chain(seed, stages), gpus({.to_host = BytesPerSecond{bytes_per_second}}));
}

double bandwidth_of(Random& random) {
  constexpr std::array bandwidths{0.5, 1.0, 2.0, 4.0, 8.0};
  return bandwidths[random.below(bandwidths.size())];
}

TEST_CASE("offload_exact equals an exhaustive search on chains of up to 6 stages", "[offload]") {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Random random(seed);
    const std::size_t stages = random.between(1, 6);
    const Problem problem = chain_at(seed, stages, bandwidth_of(random));
    const Partition partition = one_device(problem.graph, 1, 1);
    const PartTask task{problem, partition, PartId{0}, 1};
    const OffloadModel model = std::get<OffloadModel>(offload_model(task, nullptr));
    std::vector<OffloadItem> items = offload_items(model, 1);
    while (items.size() > (stages > 4 ? 2U : 3U))
      items.erase(items.begin() + random.below(static_cast<std::uint32_t>(items.size())));
    const Exhaustive all(task, model, items);
    for (Bytes budget = *std::ranges::max_element(model.memory); budget > Bytes{0}; budget -= Bytes{2}) {
      INFO("seed " << seed << ", " << stages << " stages, budget " << budget.count);
      const std::optional<Seconds> expected = all.fastest(budget);
      const std::optional<BestMoves> found = best_moves(model, items, budget, Seconds{0});
      REQUIRE(found.has_value() == expected.has_value());
      if (!found) break;
      CHECK(found->makespan.value == Approx(expected->value).epsilon(1e-9));
      CHECK(planned_moves(task, model, found->moves)->makespan.value == Approx(expected->value).epsilon(1e-9));
    }
  }
}

// A heuristic's plan for a larger budget may need less by the luck of its copies' dates; offload_exact's memory holds
// whatever copies take.
TEST_CASE("no offloading of whole values beats offload_exact, and nothing the fluid bound", "[offload]") {
  double greedy_over_exact = 0;
  int cases = 0, compared = 0, lucky = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Random random(seed);
    const Problem problem = chain_at(seed, random.between(1, 6), bandwidth_of(random));
    const Partition partition = one_device(problem.graph, 1, 1);
    const PartTask task{problem, partition, PartId{0}, 1};
    const OffloadModel model = std::get<OffloadModel>(offload_model(task, nullptr));
    if (offload_items(model, 1).size() > 10) continue;
    const auto plan_of = [&](const char* spec, Bytes budget) {
      const std::optional<Bytes> limit = budget;
      return std::move(plan(problem, parse_spec(spec, "test"), std::span(&limit, 1)).front());
    };
    for (Bytes budget = *std::ranges::max_element(model.memory); budget > Bytes{0}; budget -= Bytes{5}) {
      INFO("seed " << seed << ", budget " << budget.count);
      const PlanOutcome exact = plan_of("offload_exact", budget);
      if (std::holds_alternative<Infeasible>(exact)) break;
      const double best = std::get<Plan>(exact).makespan.value;
      CHECK(std::get<Plan>(exact).gap == 0.0);
      CHECK(best >= fluid_bound(model, budget)->value * (1 - 1e-12));
      for (const char* spec : {"vdnn", "save_on_cpu", "superneurons(recompute=off)", "capuchin(recompute=off)",
                               "offload_greedy(chunks=1)", "offload_dp(chunks=1)", "offload_fractional(chunks=1)"}) {
        const PlanOutcome other = plan_of(spec, budget);
        if (!std::holds_alternative<Plan>(other)) continue;
        INFO(spec);
        CHECK(std::get<Plan>(other).makespan.value >= fluid_bound(model, budget)->value * (1 - 1e-9));
        ++compared;
        lucky += std::get<Plan>(other).makespan.value < best * (1 - 1e-9) ? 1 : 0;
      }
      for (const char* spec : {"offload_greedy", "offload_dp", "offload_fractional"}) {
        const PlanOutcome chunked = plan_of(spec, budget);
        if (!std::holds_alternative<Plan>(chunked)) continue;
        INFO(spec);
        CHECK(std::get<Plan>(chunked).gap.value() >= 0);
        CHECK(std::get<Plan>(chunked).makespan.value >= fluid_bound(model, budget)->value * (1 - 1e-9));
      }
      const PlanOutcome greedy = plan_of("offload_greedy(chunks=1)", budget);
      if (!std::holds_alternative<Plan>(greedy)) continue;
      greedy_over_exact += std::get<Plan>(greedy).makespan.value / best;
      ++cases;
    }
  }
  INFO("offload_greedy(chunks=1) over offload_exact, mean of " << cases << ": " << greedy_over_exact / cases);
  CHECK(greedy_over_exact / cases < 1.01);
  INFO(lucky << " of " << compared);
  CHECK(500 * lucky < compared);
}

}  // namespace
}  // namespace plimsoll
