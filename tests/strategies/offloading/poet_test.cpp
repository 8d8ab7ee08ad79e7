// poet's integer program against a search over what is on the device and on the host between stages, and its promises.

#include <catch2/catch.hpp>

#include <map>

#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "strategies/models/op_model.h"
#include "strategies/offloading/activations/offload_model.h"
#include "strategies/rematerialization/programs/checkmate_model.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "tests/strategies/judged_plan.h"

namespace plimsoll {
namespace {

/// Stage by stage, all sets of values on the device and on the host, all copies, runs and sets that stay. A stage takes
/// its runs' time, or that of its copies in one direction if that is more.
class StageSearch {
 public:
  StageSearch(const OpModel& model, Bytes budget, double bytes_per_second, double limit)
      : model_(model), budget_(budget - model.resident), bandwidth_(bytes_per_second), limit_(limit) {
    for (std::size_t t = model.ops.size(); t-- > 0;) rest_[t] = rest_[t + 1] + least_time(model.ops[t]);
    std::map<State, double> states{{{0, 0}, 0}};
    for (std::size_t t = 0; t < model.ops.size(); ++t) {
      next_.clear();
      for (const auto& [state, seconds] : states) stage(t, state, seconds);
      states = next_;
    }
    for (const auto& [state, seconds] : states) {
      if (!best_ || seconds < *best_) best_ = seconds;
    }
  }

  std::optional<double> best() const { return best_; }

 private:
  using Set = std::uint32_t;  // of values
  struct State {
    Set device, host;
    auto operator<=>(const State&) const = default;
  };
  struct Run {
    std::size_t op;
    const OpWay* way;
  };

  static double least_time(const ModelOp& op) {
    double least = op.ways.front().time.value;
    for (const OpWay& way : op.ways) least = std::min(least, way.time.value);
    return least;
  }

  static bool has(Set set, std::uint32_t v) { return ((set >> v) & 1U) != 0; }
  Bytes bytes(std::uint32_t v) const { return model_.storages[model_.values[v].storage]; }
  Bytes bytes_of(Set set) const {
    Bytes sum;
    for (std::uint32_t v = 0; v < model_.values.size(); ++v) sum += has(set, v) ? bytes(v) : Bytes{0};
    return sum;
  }
  bool read_later(std::uint32_t v, std::size_t t) const {
    return std::ranges::any_of(model_.values[v].readers, [&](std::uint32_t r) { return r > t || !model_.ops[r].once; });
  }

  void stage(std::size_t t, State at, double seconds) {
    Set movable = at.device & ~at.host;  // never the network's input
    for (std::uint32_t v = 0; v < model_.values.size(); ++v) {
      if (!model_.values[v].maker || bytes(v) == Bytes{0} || !read_later(v, t)) movable &= ~(Set{1} << v);
    }
    for (Set out = movable;; out = (out - 1) & movable) {
      const Set bring = at.host & ~at.device;
      for (Set in = bring;; in = (in - 1) & bring) {
        std::vector<Run> runs;
        choose_runs(t, 0, at, out, in, seconds, runs);
        if (in == 0) break;
      }
      if (out == 0) break;
    }
  }

  void choose_runs(std::size_t t, std::size_t op, State at, Set out, Set in, double seconds, std::vector<Run>& runs) {
    if (op > t) return finish(t, at, out, in, seconds, runs);
    if (op < t) choose_runs(t, op + 1, at, out, in, seconds, runs);
    if (op < t && model_.ops[op].once) return;
    for (const OpWay& way : model_.ops[op].ways) {
      runs.push_back({op, &way});
      choose_runs(t, op + 1, at, out, in, seconds, runs);
      runs.pop_back();
    }
  }

  void finish(std::size_t t, State at, Set out, Set in, double seconds, const std::vector<Run>& runs) {
    Set there = at.device;
    double busy = 0;
    for (const Run& run : runs) {
      for (const std::uint32_t v : model_.ops[run.op].reads) {
        const bool loaded = !model_.values[v].maker && model_.values[v].readers.front() == t;
        if (!has(there, v) && !loaded) return;
        there |= Set{1} << v;
      }
      for (const std::uint32_t v : run.way->makes) there |= Set{1} << v;
      busy += run.way->time.value;
    }
    if (seconds + busy + rest_[t + 1] > limit_) return;
    if ((there & in) != 0) return;
    double copies = 0;
    for (const Set moved : {out, in})
      copies = std::max(copies, static_cast<double>(bytes_of(moved).count) / bandwidth_);
    if (seconds + std::max(busy, copies) + rest_[t + 1] > limit_) return;
    Set may_stay = 0;
    for (std::uint32_t v = 0; v < model_.values.size(); ++v) {
      if (has(there | in, v) && read_later(v, t)) may_stay |= Set{1} << v;
    }
    for (Set stays = may_stay;; stays = (stays - 1) & may_stay) {
      if (fits(at, out, in, stays, runs)) {
        const State next{stays, at.host | out};
        const double time = seconds + std::max(busy, copies);
        const auto [place, fresh] = next_.try_emplace(next, time);
        if (!fresh) place->second = std::min(place->second, time);
      }
      if (stays == 0) break;
    }
  }

  bool fits(State at, Set out, Set in, Set stays, const std::vector<Run>& runs) const {
    Set live = at.device;
    const Bytes coming = bytes_of(in);
    for (std::size_t r = 0; r < runs.size(); ++r) {
      for (const std::uint32_t v : model_.ops[runs[r].op].reads) live |= Set{1} << v;
      for (const std::uint32_t v : runs[r].way->makes) live |= Set{1} << v;
      if (bytes_of(live) + coming + runs[r].way->workspace > budget_) return false;
      for (std::uint32_t v = 0; v < model_.values.size(); ++v) {
        const bool read =
            std::any_of(runs.begin() + static_cast<std::ptrdiff_t>(r) + 1, runs.end(),
                        [&](const Run& run) { return std::ranges::count(model_.ops[run.op].reads, v) > 0; });
        const bool used =
            std::ranges::count(model_.ops[runs[r].op].reads, v) + std::ranges::count(runs[r].way->makes, v) > 0;
        if (used && !read && !has(stays | out, v)) live &= ~(Set{1} << v);
      }
    }
    return true;
  }

  const OpModel& model_;
  Bytes budget_;
  double bandwidth_, limit_;
  std::array<double, 33> rest_{};  // least seconds of the stages from one on
  std::map<State, double> next_;
  std::optional<double> best_;
};

Problem small_problem(std::uint64_t seed, std::size_t stages, double bytes_per_second) {
  Chain chain = random_small_chain(seed, stages);
  for (Stage& stage : chain.stages) {
    stage.parameters.clear();
    stage.parameter_gradient.reset();
  }
  chain.parameters.clear();
  return problem_of(std::move(chain), gpus({.to_host = BytesPerSecond{bytes_per_second}}));
}

TEST_CASE("the program with paging equals a search over sets of values", "[poet]") {
  int compared = 0, paged = 0;
  for (const RandomCase seed : fewer_cases(1, 36, 33)) {
    Random random(seed);
    constexpr std::array bandwidths{2.0, 4.0, 8.0, 16.0};
    const double bandwidth = bandwidths[random.below(4)];
    const Problem problem = small_problem(seed, seed == 12 ? 2 : 1, bandwidth);
    const Partition partition = one_device(problem.graph, 1, 1);
    const PartTask task{problem, partition, PartId{0}, 1};
    const OpModel model = op_model(task);
    const Bytes most = std::get<Plan>(plan_one(problem, "store_all", largest_bytes)).peak;
    const Paging paging{.latency_out = {},
                        .latency_in = {},
                        .seconds_per_byte_out = 1 / bandwidth,
                        .seconds_per_byte_in = 1 / bandwidth};
    for (Bytes budget = most; budget > Bytes{0}; budget -= Bytes{seed == 12 ? 9 : 3}) {
      INFO("seed " << seed << ", budget " << budget.count << ", " << bandwidth << " B/s");
      const CheckmateModel program(model, budget, Formulation::tight, paging);
      const MilpResult found = solve_milp(program.program(), {}, {.seconds = 60});
      REQUIRE(why_stopped(found.end, {}).empty());
      const bool feasible = found.end == MilpResult::End::optimal;
      const double seconds = program.seconds(found.objective).value;
      const double limit = feasible ? seconds * (1 + 1e-6) : std::numeric_limits<double>::infinity();
      if (!feasible && model.ops.size() > 4) break;
      const std::optional<double> expected = StageSearch(model, budget, bandwidth, limit).best();
      REQUIRE(expected.has_value() == feasible);
      if (!expected) break;
      CHECK(*expected == Approx(seconds).epsilon(1e-6));
      ++compared;
      paged += program.paged_in(found.values).empty() ? 0 : 1;
    }
  }
  if (every_case()) CHECK(compared > 30);
  if (every_case()) CHECK(paged > 2);
}

TEST_CASE("poet pages nothing over no link, and its promise is its price", "[poet]") {
  for (const RandomCase seed : random_cases(1, 6)) {
    const Problem slow = small_problem(seed, 2, 1e-6), fast = small_problem(seed, 2, 4);
    const Bytes most = std::get<Plan>(plan_one(slow, "store_all", largest_bytes)).peak;
    for (Bytes budget = most; budget > Bytes{0}; budget -= Bytes{5}) {
      INFO("seed " << seed << ", budget " << budget.count);
      const PlanOutcome best = plan_one(slow, "checkmate", budget), paging = plan_one(slow, "poet", budget);
      if (const auto* plain = std::get_if<Plan>(&best)) {
        CHECK(std::get<Plan>(paging).makespan.value == Approx(plain->makespan.value).epsilon(1e-6));
        CHECK(std::get<Plan>(paging).gap.value() < 1e-6);
        const PlanOutcome faster = plan_one(fast, "poet", budget);
        CHECK(std::get<Plan>(faster).makespan <= (1 + 1e-9) * plain->makespan);
      }
    }
  }
}

TEST_CASE("poet's front reaches from the least budget to where more memory is of no use", "[poet]") {
  const std::vector<Pass> poet = parse_spec("poet", "test");
  for (const RandomCase seed : random_cases(1, 6)) {
    INFO("seed " << seed);
    const Problem problem = small_problem(seed, 2, 2);
    const std::vector<Bytes> front = front_budgets(problem, poet);
    REQUIRE(!front.empty());
    CHECK(std::get<Infeasible>(plan_one(problem, "poet", Bytes{0})).smallest == front.front());
    CHECK(std::holds_alternative<Plan>(plan_one(problem, "poet", front.front())));
    const Seconds fastest = std::get<Plan>(plan_one(problem, "poet", largest_bytes)).makespan;
    CHECK(std::get<Plan>(plan_one(problem, "poet", front.back())).makespan.value == Approx(fastest.value));
  }
}

TEST_CASE("poet's least energy is not its least time", "[poet]") {
  const std::string costly = "poet(objective=energy,power=100,transfer_energy=1000000000)";
  const std::string free_copies = "poet(objective=energy,power=100,transfer_energy=0)";
  int different = 0;
  for (const RandomCase seed : random_cases(1, 6)) {
    const Problem problem = small_problem(seed, 2, 2);
    const Plan all = std::get<Plan>(plan_one(problem, "store_all", largest_bytes));
    for (Bytes budget = all.peak; budget > Bytes{0}; budget -= Bytes{5}) {
      INFO("seed " << seed << ", budget " << budget.count);
      const PlanOutcome fastest = plan_one(problem, "poet", budget);
      const auto* plan = std::get_if<Plan>(&fastest);
      if (plan == nullptr) break;
      const PlanOutcome cheap = plan_one(problem, free_copies, budget);
      CHECK(std::get<Plan>(cheap).makespan >= (1 - 1e-9) * plan->makespan);
      different += std::get<Plan>(cheap).makespan > plan->makespan ? 1 : 0;
      const PlanOutcome in_time =
          plan_one(problem, free_copies.substr(0, free_copies.size() - 1) + ",deadline=110)", budget);
      if (const auto* made = std::get_if<Plan>(&in_time)) CHECK(made->makespan <= 1.1 * all.makespan);
      CHECK(std::holds_alternative<Plan>(plan_one(problem, costly, budget)));
    }
  }
  if (all_cases()) CHECK(different > 0);
}

}  // namespace
}  // namespace plimsoll
