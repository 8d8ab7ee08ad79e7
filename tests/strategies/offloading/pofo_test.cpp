// pofo against an exhaustive search of its class, its blocks against a walk over every sequence, and its promises.

#include <catch2/catch.hpp>

#include <algorithm>
#include <limits>

#include "sim/measure/lower_bounds.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "strategies/models/chain_part.h"
#include "strategies/offloading/activations/offload_selection.h"
#include "strategies/offloading/pofo/pofo.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "tests/strategies/judged_plan.h"

namespace plimsoll {
namespace {

/// A problem with what planners look at.
struct Case {
  explicit Case(Problem made)
      : problem(std::move(made)),
        partition(one_device(problem.graph, 1, 1)),
        part(chain_part(problem, partition.parts[0])),
        model(chain_model(problem, part)) {}
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;

  PartTask task() const { return {problem, partition, PartId{0}, 1}; }

  OffloadModel offload_of(const ChainSequence& sequence) const {
    const Tape tape = chain_tape(problem, partition, PartId{0}, part, sequence);
    return std::get<OffloadModel>(offload_model(task(), &tape));
  }

  Bytes base() const { return model.resident + model.x[0]; }
  Bytes most() const { return evaluate(model, store_all_sequence(model.stages())).peak; }

  Problem problem;
  Partition partition;
  ChainPart part;
  ChainModel model;
};

Problem chain_at(std::uint64_t seed, std::size_t stages, double bytes_per_second, bool all_kept = false) {
  Chain chain = random_small_chain(seed, stages);
  for (Stage& stage : chain.stages) {
    stage.keeps_input = stage.keeps_input || all_kept;
    stage.keeps_output = stage.keeps_output || all_kept;
  }
  return problem_of(std::move(chain), gpus({.to_host = BytesPerSecond{bytes_per_second}}));
}

ChainSequence joined(std::initializer_list<ChainSequence> parts) {
  ChainSequence all;
  for (const ChainSequence& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

/// Every sequence in which stages i..l run backward from x_i and what a forward sweep stores stays until its backward.
std::vector<ChainSequence> all_blocks(const ChainModel& model, std::size_t i, std::size_t l) {
  std::vector<ChainSequence> all;
  const ChainStep saving{ChainStep::Kind::forward_saving, i}, backward{ChainStep::Kind::backward, i};
  if (i == l) return {{saving, backward}};
  for (const ChainSequence& inner : all_blocks(model, i + 1, l)) all.push_back(joined({{saving}, inner, {backward}}));
  ChainSequence forwards;
  for (std::size_t j = i + 1; j <= l && model.recomputable[j - 1]; ++j) {
    forwards.push_back({ChainStep::Kind::forward, j - 1});
    for (const ChainSequence& late : all_blocks(model, j, l)) {
      for (const ChainSequence& early : all_blocks(model, i, j - 1)) all.push_back(joined({forwards, late, early}));
    }
  }
  return all;
}

/// Least time of the sequence if so many bytes must have come back when it ends, and what is there of them and what
/// it needs never exceed the memory: backwards in time, idling only where it must.
double time_with_returning(const OffloadModel& model, Bytes base, double memory, double returning, double bandwidth) {
  double seconds = 0;
  for (std::size_t p = model.positions(); p-- > 0;) {
    const auto need = static_cast<double>((model.memory[p] - base).count);
    const double wait = std::max(0.0, need + returning - memory);
    if (wait > returning) return std::numeric_limits<double>::infinity();
    seconds += wait / bandwidth + model.time[p].value;
    returning = std::max(0.0, returning - wait - bandwidth * model.time[p].value);
  }
  return seconds;
}

TEST_CASE("a block's backward beside returning values takes the least time of all its sequences", "[pofo]") {
  int finite = 0, idling = 0;
  for (const RandomCase seed : random_cases(1, 60)) {
    Random random(seed);
    constexpr std::array bandwidths{1.0, 2.0, 4.0};
    const double bandwidth = bandwidths[random.below(3)];
    const Case chain(chain_at(seed, random.between(1, 4), bandwidth, true));
    const auto slots = static_cast<std::int32_t>((chain.most() - chain.base()).count);
    const std::size_t last = chain.model.stages() - 1;
    const PofoBlocks up(chain.model, bandwidth, Bytes{1}, slots, SlotRounding::up);
    const PofoBlocks down(chain.model, bandwidth, Bytes{1}, slots, SlotRounding::down);
    std::vector<OffloadModel> sequences;
    for (const ChainSequence& sequence : all_blocks(chain.model, 0, last)) {
      sequences.push_back(chain.offload_of(sequence));
    }
    for (std::int32_t m = slots; m >= 0; m -= 3) {
      double nothing_returns = 0;
      for (std::int32_t d = 0; d <= m; d += 5) {
        INFO("seed " << seed << ", memory " << m << ", returning " << d);
        double expected = std::numeric_limits<double>::infinity();
        for (const OffloadModel& sequence : sequences) {
          expected = std::min(expected, time_with_returning(sequence, chain.base(), m, d, bandwidth));
        }
        CHECK(up.time(0, last, m, d) == Approx(expected).epsilon(1e-6));
        CHECK(down.time(0, last, m, d) == Approx(expected).epsilon(1e-6));
        if (d == 0) nothing_returns = expected;
        if (expected == std::numeric_limits<double>::infinity()) continue;
        ++finite;
        idling += expected > nothing_returns ? 1 : 0;
        ChainSequence found;
        up.append(found, 0, last, m, d);
        CHECK(time_with_returning(chain.offload_of(found), chain.base(), m, d, bandwidth) ==
              Approx(expected).epsilon(1e-6));
      }
    }
  }
  if (all_cases()) CHECK(finite > 1000);
  if (all_cases()) CHECK(idling > 200);
}

TEST_CASE("coarse slots bracket a block's time", "[pofo]") {
  for (const RandomCase seed : random_cases(1, 40)) {
    Random random(seed);
    const Case chain(chain_at(seed, random.between(2, 6), 2.0));
    const Bytes range = chain.most() - chain.base();
    const std::size_t last = chain.model.stages() - 1;
    const auto blocks = [&](std::int64_t slot, SlotRounding rounding) {
      return PofoBlocks(chain.model, 2.0, Bytes{slot}, static_cast<std::int32_t>(range.count / slot + 1), rounding);
    };
    const PofoBlocks exact = blocks(1, SlotRounding::up);
    const PofoBlocks up = blocks(4, SlotRounding::up), down = blocks(4, SlotRounding::down);
    for (std::int64_t m = range.count; m >= 0; m -= 3) {
      for (std::int64_t d = 0; d <= m; d += 7) {
        INFO("seed " << seed << ", memory " << m << ", returning " << d);
        const auto memory = static_cast<double>(m), returning = static_cast<double>(d);
        const double time = exact.time(0, last, memory, returning);
        CHECK(up.time(0, last, memory, returning) >= time * (1 - 1e-6));
        CHECK(down.time(0, last, memory, returning) <= time * (1 + 1e-6));
      }
    }
  }
}

/// Every forward sweep of stages that save and blocks, every sequence of the blocks' backwards, every set of
/// values that leaves; placed and simulated.
class Exhaustive {
 public:
  Exhaustive(const Case& chain, Bytes budget) : chain_(chain), budget_(budget) { sweep(0, {}, {{}}); }

  std::optional<Seconds> fastest() const { return fastest_; }

 private:
  void sweep(std::size_t i, const ChainSequence& forwards, const std::vector<ChainSequence>& backwards) {
    const std::size_t n = chain_.model.stages();
    if (i == n) {
      for (const ChainSequence& backward : backwards) choose(joined({forwards, backward}));
      return;
    }
    const auto before = [&](const std::vector<ChainSequence>& own) {
      std::vector<ChainSequence> all;
      for (const ChainSequence& first : own) {
        for (const ChainSequence& second : backwards) all.push_back(joined({first, second}));
      }
      return all;
    };
    sweep(i + 1, joined({forwards, {{ChainStep::Kind::forward_saving, i}}}),
          before({{{ChainStep::Kind::backward, i}}}));
    ChainSequence block = forwards;
    for (std::size_t j = i; j + 1 < n && chain_.model.recomputable[j]; ++j) {
      block.push_back({ChainStep::Kind::forward, j});
      sweep(j + 1, block, before(all_blocks(chain_.model, i, j)));
    }
  }

  void choose(const ChainSequence& sequence) {
    const OffloadModel model = chain_.offload_of(sequence);
    std::vector<OffloadItem> movable;
    for (const OffloadItem& item : offload_items(model, 1)) {
      const std::vector<std::uint32_t> saved = saved_gaps(model);
      if (std::ranges::find(saved, item.gap) != saved.end()) movable.push_back(item);
    }
    for (std::uint32_t subset = 0; subset < 1U << movable.size(); ++subset) {
      std::vector<OffloadItem> items;
      for (std::size_t k = 0; k < movable.size(); ++k) {
        if ((subset >> k) & 1U) items.push_back(movable[k]);
      }
      const std::optional<PlacedCopies> placed = placed_items(model, items, budget_);
      if (!placed || (fastest_ && placed->makespan >= *fastest_)) continue;
      const auto in_class = [&](const OffloadMove& move) { return move.back >= model.turn; };
      if (!std::ranges::all_of(placed->moves, in_class)) continue;
      fastest_ =
          std::min(fastest_.value_or(placed->makespan), planned_moves(chain_.task(), model, placed->moves)->makespan);
    }
  }

  const Case& chain_;
  Bytes budget_;
  std::optional<Seconds> fastest_;
};

TEST_CASE("pofo is near the exhaustive search of its class, which its bound never exceeds", "[pofo]") {
  double ratio = 0, worst = 0, gaps = 0;
  int cases = 0;
  for (const RandomCase seed : fewer_cases(1, 60)) {
    Random random(seed);
    constexpr std::array bandwidths{0.5, 1.0, 2.0, 4.0};
    const double bandwidth = bandwidths[random.below(4)];
    const Case chain(chain_at(seed, seed == 1 ? 5 : random.between(1, seed % 4 == 0 ? 4 : 3), bandwidth, true));
    const auto slots = static_cast<std::int32_t>(std::max<std::int64_t>(1, (chain.most() - chain.base()).count));
    const PofoBlocks down(chain.model, bandwidth, Bytes{1}, slots, SlotRounding::down);
    const PofoBlocks coarse(chain.model, bandwidth, Bytes{3}, slots / 3 + 1, SlotRounding::down);
    for (Bytes budget = chain.most(); budget > Bytes{0}; budget -= Bytes{seed == 1 ? 14 : 4}) {
      INFO("seed " << seed << ", budget " << budget.count << ", " << bandwidth << " B/s");
      const std::optional<Seconds> best = Exhaustive(chain, budget).fastest();
      if (!best) break;
      const Seconds bound = pofo_bound(down, {bandwidth, bandwidth}, budget, Seconds{1e9});
      CHECK(bound <= (1 + 1e-6) * *best);
      CHECK(pofo_bound(coarse, {bandwidth, bandwidth}, budget, Seconds{1e9}) <= (1 + 1e-6) * *best);
      const PlanOutcome found = plan_one(chain.problem, "pofo(slots=200)", budget);
      REQUIRE(std::holds_alternative<Plan>(found));
      const double quotient = std::get<Plan>(found).makespan / *best;
      ratio += quotient;
      worst = std::max(worst, quotient);
      gaps += *best / bound - 1;
      ++cases;
    }
  }
  if (all_cases()) REQUIRE(cases > cases_of(100));
  INFO("over the exhaustive search: mean " << ratio / cases << ", worst " << worst << " of " << cases
                                           << "; the search over the bound, mean " << gaps / cases);
  if (all_cases()) CHECK(ratio / cases < 1.01);
  if (all_cases()) CHECK(worst < 1.2);
  if (all_cases()) CHECK(gaps / cases < 0.1);
}

std::vector<std::optional<Bytes>> budgets_below(const Problem& problem, Bytes step) {
  const Bytes all = std::get<Plan>(plan_one(problem, "store_all", largest_bytes)).peak;
  std::vector<std::optional<Bytes>> budgets;
  for (Bytes budget = all; budget > Bytes{0}; budget -= step) budgets.emplace_back(budget);
  return budgets;
}

TEST_CASE("pofo is never worse than rotor, offloading alone or one after the other", "[pofo]") {
  int better = 0;
  for (const RandomCase seed : fewer_cases(1, 12, 5)) {
    Random random(seed);
    constexpr std::array bandwidths{0.5, 1.0, 2.0, 4.0, 8.0};
    const Problem problem = chain_at(seed, random.between(2, 9), bandwidths[random.below(5)]);
    const std::vector<std::optional<Bytes>> budgets = budgets_below(problem, Bytes{6});
    const auto plans = [&](const char* spec) { return plan(problem, parse_spec(spec, "test"), budgets); };
    std::vector<std::optional<Seconds>> best(budgets.size());
    for (const char* spec : {"rotor", "rotor|offload_greedy", "save_on_cpu", "offload_greedy", "offload_dp",
                             "offload_fractional", "vdnn", "superneurons", "capuchin"}) {
      const std::vector<PlanOutcome> others = plans(spec);
      for (std::size_t b = 0; b < budgets.size(); ++b) {
        if (const auto* made = std::get_if<Plan>(&others[b]))
          best[b] = std::min(best[b].value_or(made->makespan), made->makespan);
      }
    }
    const std::vector<PlanOutcome> found = plans("pofo");
    for (std::size_t b = 0; b < budgets.size(); ++b) {
      INFO("seed " << seed << ", budget " << budgets[b]->count);
      if (const auto* made = std::get_if<Plan>(&found[b])) {
        CHECK(made->gap.value() >= 0);
        CHECK((!best[b] || made->makespan <= *best[b]));
        better += best[b] && made->makespan < *best[b] ? 1 : 0;
      } else {
        CHECK_FALSE(best[b]);
      }
    }
  }
  if (all_cases()) CHECK(better > cases_of(1));
}

TEST_CASE("at half the memory of plain training pofo takes out most of rotor's overhead, and offloading's",
          "[pofo][eleventh-5]") {
  for (const RandomCase seed : fewer_cases(1, 3)) {
    const Problem problem = chain_at(seed, 24, 0.5);
    const Plan all = std::get<Plan>(plan_one(problem, "store_all", largest_bytes));
    const auto overhead = [&](const char* spec) {
      return std::get<Plan>(plan_one(problem, spec, Bytes{all.peak.count / 2})).makespan / all.makespan - 1;
    };
    INFO("seed " << seed << ": rotor " << overhead("rotor") << ", greedy " << overhead("offload_greedy") << ", pofo "
                 << overhead("pofo"));
    CHECK(overhead("pofo") < 2.0 / 3 * std::min(overhead("rotor"), overhead("offload_greedy")));
  }
}

TEST_CASE("pofo at no bandwidth is rotor or what recomputes single ops, at unlimited bandwidth least memory is free",
          "[pofo]") {
  for (const RandomCase seed : fewer_cases(1, 12)) {
    const Problem slow = chain_at(seed, 2 + seed % 7, 1e-9), fast = chain_at(seed, 2 + seed % 7, 1e300);
    const std::vector<std::optional<Bytes>> budgets = budgets_below(slow, Bytes{7});
    const std::vector<PlanOutcome> pofo = plan(slow, parse_spec("pofo", "test"), budgets);
    std::vector<std::optional<double>> expected(budgets.size());
    for (const char* spec : {"rotor(slots=exact)", "rotor|offload_greedy", "capuchin", "superneurons"}) {
      const std::vector<PlanOutcome> others = plan(slow, parse_spec(spec, "test"), budgets);
      for (std::size_t b = 0; b < budgets.size(); ++b) {
        const auto* other = std::get_if<Plan>(&others[b]);
        if (other != nullptr) {
          expected[b] = std::min(expected[b].value_or(other->makespan.value), other->makespan.value);
        }
      }
    }
    for (std::size_t b = 0; b < budgets.size(); ++b) {
      INFO("seed " << seed << ", budget " << budgets[b]->count);
      if (expected[b]) CHECK(std::get<Plan>(pofo[b]).makespan.value == Approx(*expected[b]).epsilon(1e-12));
    }
    const PlanOutcome greedy = plan_one(fast, "offload_greedy", Bytes{1});
    const Bytes least = *std::get<Infeasible>(greedy).smallest;
    const Seconds work = std::get<Plan>(plan_one(fast, "store_all", largest_bytes)).makespan;
    CHECK(std::get<Plan>(plan_one(fast, "pofo", least)).makespan.value == Approx(work.value).epsilon(1e-9));
  }
}

}  // namespace
}  // namespace plimsoll
