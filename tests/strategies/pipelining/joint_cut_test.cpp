// cut=joint: its model against all cuts and all numbers in flight there are, its plans against those of every cut.

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <map>
#include <numeric>

#include "sim/engine/event/event_engine.h"
#include "sim/judge/check.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "strategies/pipelining/planners/joint.h"
#include "tests/bad_input.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

constexpr double no_seconds = std::numeric_limits<double>::infinity();

/// Random seconds of every range of layers with every number in flight: more in flight never take less.
struct Table {
  std::uint32_t layers, stages, micro_batches;
  std::vector<double> own, sent, returned;
  std::map<std::vector<std::uint32_t>, double> more;  // by (first, last, in flight)

  double seconds(std::uint32_t first, std::uint32_t last, std::uint32_t k) const {
    return std::accumulate(own.begin() + first, own.begin() + last, 0.0) + more.at({first, last, k});
  }
};

Table random_table(Random& random) {
  Table table{.layers = random.between(1, 7),
              .stages = 1,
              .micro_batches = random.between(1, 5),
              .own = {},
              .sent = {},
              .returned = {},
              .more = {}};
  table.stages = random.between(1, std::min(table.layers, 4U));
  for (std::uint32_t i = 0; i < table.layers; ++i) {
    table.own.push_back(random.between(1, 9));
    table.sent.push_back(i == 0 ? 0 : random.between(0, 4));
    table.returned.push_back(i == 0 ? 0 : random.between(0, 4));
  }
  for (std::uint32_t first = 0; first < table.layers; ++first) {
    for (std::uint32_t last = first + 1; last <= table.layers; ++last) {
      double more = 0;
      for (std::uint32_t k = 1; k <= table.micro_batches; ++k) {
        more += random.chance(0.4) ? random.between(1, 3) : 0;
        if (random.chance(0.06)) more = no_seconds;
        table.more[{first, last, k}] = more;
      }
    }
  }
  return table;
}

/// Of one cut with these numbers in flight.
double iteration(const Table& table, const std::vector<std::uint32_t>& first, const std::vector<std::uint32_t>& k) {
  double latency = 0, period = 0;
  for (std::size_t s = first.size(); s-- > 0;) {
    const std::uint32_t end = s + 1 < first.size() ? first[s + 1] : table.layers;
    const double seconds = table.seconds(first[s], end, k[s]);
    latency += seconds;
    period = std::max(period, seconds);
    if (s + 1 < first.size()) {
      latency += table.sent[end] + table.returned[end];
      period = std::max({period, table.sent[end], table.returned[end]});
    }
    if (k[s] < table.micro_batches) period = std::max(period, latency / k[s]);
  }
  return latency + (table.micro_batches - 1) * period;
}

/// The least over all numbers in flight of a cut, from stage s on.
double least_of(const Table& table, const std::vector<std::uint32_t>& first, std::vector<std::uint32_t>& k) {
  if (k.size() == first.size()) return iteration(table, first, k);
  double best = no_seconds;
  for (std::uint32_t each = 1; each <= table.micro_batches; ++each) {
    k.push_back(each);
    best = std::min(best, least_of(table, first, k));
    k.pop_back();
  }
  return best;
}

std::vector<std::vector<std::uint32_t>> all_cuts(std::uint32_t layers, std::uint32_t parts) {
  std::vector<std::vector<std::uint32_t>> cuts;
  for (std::uint32_t mask = 0; mask < 1U << (layers - 1); ++mask) {
    std::vector<std::uint32_t> first{0};
    for (std::uint32_t i = 1; i < layers; ++i) {
      if ((mask >> (i - 1) & 1U) != 0) first.push_back(i);
    }
    if (first.size() == parts) cuts.push_back(first);
  }
  return cuts;
}

TEST_CASE("the joint model's plan is the best of all cuts and all numbers in flight", "[pipelining][joint]") {
  std::size_t planned = 0;
  for (const RandomCase seed : random_cases(1, 150)) {
    Random random(seed);
    const Table table = random_table(random);
    JointProblem problem{.stages = table.stages,
                         .micro_batches = table.micro_batches,
                         .least = table.own,
                         .sent = table.sent,
                         .returned = table.returned};
    problem.seconds = [&](std::uint32_t first, std::uint32_t last, std::uint32_t,
                          std::uint32_t k) -> std::optional<double> {
      const double seconds = table.seconds(first, last, k);
      return seconds < no_seconds ? std::optional(seconds) : std::nullopt;
    };
    double best = no_seconds;
    for (const std::vector<std::uint32_t>& first : all_cuts(table.layers, table.stages)) {
      std::vector<std::uint32_t> k;
      best = std::min(best, least_of(table, first, k));
    }
    const std::vector<JointPlan> plans = plan_joint(problem);
    REQUIRE(plans.empty() == (best == no_seconds));
    if (plans.empty()) continue;
    ++planned;
    CHECK(plans[0].seconds == Approx(best).epsilon(1e-9));
    CHECK(iteration(table, plans[0].first, plans[0].in_flight) <= plans[0].seconds * (1 + 1e-9));
    // With the numbers of 1F1B, which an order may have fixed.
    for (std::uint32_t s = 0; s < table.stages; ++s) {
      problem.in_flight.push_back(std::min(table.stages - s, table.micro_batches));
    }
    for (const JointPlan& plan : plan_joint(problem)) CHECK(plan.in_flight == problem.in_flight);
  }
  if (all_cases()) CHECK(planned > 100);
}

std::string text_of(const std::vector<std::uint32_t>& first) {
  std::string text;
  for (const std::uint32_t i : first) text += (text.empty() ? "" : ":") + std::to_string(i);
  return text;
}

std::optional<double> makespan(const Problem& problem, const std::string& spec, Bytes budget) {
  const PlanOutcome outcome = plan(problem, parse_spec(spec, "test"), budget);
  const Plan* made = std::get_if<Plan>(&outcome);
  if (made == nullptr) return std::nullopt;
  CHECK(check(made->schedule, problem.graph, problem.platform).empty());
  CHECK(simulate_event(made->schedule, problem.platform).makespan == made->makespan);
  CHECK(made->peak <= budget);
  return made->makespan.value;
}

TEST_CASE("cut=joint is never slower than any other cut and recomputation, and close to the best of all cuts",
          "[pipelining][joint][eleventh-8]") {
  std::size_t asked = 0, best_found = 0, better_than_others = 0;
  for (const RandomCase seed : fewer_cases(1, 60)) {
    Random random(seed);
    const std::uint32_t devices = random.between(2, 3);
    Chain chain = random_small_chain(seed, random.between(devices + 1, 7));
    for (Stage& stage : chain.stages) stage.has_backward = true;
    const Problem problem = problem_of(std::move(chain), gpus({.count = devices, .to_peers = BytesPerSecond{16}}),
                                       {.micro_batches = random.between(2, 6)});
    const auto layers = static_cast<std::uint32_t>(problem.chain->stages.size());
    const std::string memory = random.chance(0.5) ? "|rotor" : "|full_recompute";
    const std::string pipeline = random.chance(0.7) ? "1f1b" : "gpipe";
    const Bytes most = std::get<Plan>(plan(problem, parse_spec(pipeline, "test"), std::nullopt)).peak;
    const Bytes budget{most.count * (40 + random.between(0, 55)) / 100};
    INFO(pipeline << memory << " within " << budget.count);
    double others = no_seconds, all = no_seconds;
    for (const char* cut : {"uniform", "balanced", "pipedream", "ideals", "piper", "alpa", "madpipe"}) {
      std::optional<double> seconds;
      const std::string complaint =
          complaint_of([&] { seconds = makespan(problem, pipeline + "(cut=" + cut + ")" + memory, budget); });
      if (seconds) others = std::min(others, *seconds);
    }
    for (const std::vector<std::uint32_t>& first : all_cuts(layers, devices)) {
      all = std::min(
          all, makespan(problem, pipeline + "(cut=" + text_of(first) + ")" + memory, budget).value_or(no_seconds));
    }
    const double joint = makespan(problem, pipeline + "(cut=joint)" + memory, budget).value_or(no_seconds);
    CHECK(joint <= others);
    if (std::min(others, all) == no_seconds) continue;
    ++asked;
    if (joint <= all) ++best_found;
    if (joint < others) ++better_than_others;
    CHECK(joint <= 1.25 * all);
  }
  if (!all_cases()) return;
  INFO(asked << " asked, " << best_found << " the best, " << better_than_others << " better than others");
  CHECK(asked > cases_of(30U));
  CHECK(best_found * 20 >= asked * 19);
  CHECK(better_than_others * 10 >= asked);
}

TEST_CASE("cut=joint keeps fewer micro-batches in flight where that costs no time", "[pipelining][joint]") {
  // The first device works for 1 s a micro-batch, the second one for 6 s, and what the first one saves is what fills
  // it. 1F1B keeps two micro-batches there, which do not fit. With one in flight each waits for the one before to come
  // back, 1 + 6 s later; recomputing the first stage, for 0.5 s more, takes no_seconds of the second device's time.
  Chain chain;
  chain.name = "unequal";
  for (const double seconds : {1.0, 3.0, 3.0}) {
    Stage& stage = chain.stages.emplace_back();
    stage.name = "s" + std::to_string(chain.stages.size());
    stage.forward = stage.forward_nograd = Seconds{seconds / 2};
    stage.backward = Seconds{seconds / 2};
    stage.saved = Bytes{seconds < 2 ? 100 : 10};
  }
  const Problem problem = problem_of(chain, gpus({.count = 2}), {.micro_batches = 4});
  CHECK(makespan(problem, "1f1b(cut=0:1,in_flight=2:1)", Bytes{200}) == 25.0);
  CHECK(makespan(problem, "1f1b(cut=0:1,in_flight=1:1)", Bytes{100}) == 28.0);
  CHECK(!makespan(problem, "1f1b(cut=0:1)", Bytes{199}));
  const PlanOutcome joint = plan(problem, parse_spec("1f1b(cut=joint)", "test"), Bytes{150});
  REQUIRE(std::holds_alternative<Plan>(joint));
  CHECK(std::get<Plan>(joint).makespan <= Seconds{28});
  CHECK(std::get<Plan>(joint).note.starts_with("cut="));
}

/// That a plan within a budget of nothing names.
Bytes named_smallest(const Problem& problem, const std::string& spec) {
  const PlanOutcome outcome = plan(problem, parse_spec(spec, "test"), Bytes{0});
  return std::get<Infeasible>(outcome).smallest.value();
}

TEST_CASE("cut=joint and cut=madpipe name the smallest budget of all cuts and numbers in flight, and have a plan there",
          "[pipelining][joint][eleventh-7]") {
  for (const RandomCase seed : fewer_cases(1, 30)) {
    Random random(seed);
    const std::uint32_t devices = random.between(2, 3);
    Chain chain = random_small_chain(seed, random.between(devices + 1, 7));
    for (Stage& stage : chain.stages) stage.has_backward = true;
    const Problem problem = problem_of(std::move(chain), gpus({.count = devices, .to_peers = BytesPerSecond{1}}),
                                       {.micro_batches = random.between(2, 6)});
    const auto layers = static_cast<std::uint32_t>(problem.chain->stages.size());
    const std::string one_each = devices == 2 ? ",in_flight=1:1" : ",in_flight=1:1:1";
    for (const char* memory : {"", "|rotor"}) {
      Bytes least = largest_bytes, least_of_gpipe = largest_bytes;
      for (const std::vector<std::uint32_t>& first : all_cuts(layers, devices)) {
        const std::string cut = "(cut=" + text_of(first);
        least = std::min(least, named_smallest(problem, "1f1b" + cut + one_each + ")" + memory));
        least_of_gpipe = std::min(least_of_gpipe, named_smallest(problem, "gpipe" + cut + ")" + memory));
      }
      for (const char* planner : {"1f1b(cut=joint)", "1f1b(cut=madpipe)"}) {
        INFO(planner << memory << ", least " << least.count);
        const bool is_for_plain_training = planner == std::string("1f1b(cut=madpipe)") && *memory != 0;
        if (is_for_plain_training) continue;
        CHECK(named_smallest(problem, planner + std::string(memory)) <= least);
        CHECK(makespan(problem, planner + std::string(memory), least));
      }
      CHECK(named_smallest(problem, std::string("gpipe(cut=joint)") + memory) <= least_of_gpipe);
    }
  }
}

TEST_CASE("cut=joint is for strategies that soon have an order for any cut", "[pipelining][joint]") {
  for (const char* spec : {"zb_ilp(cut=joint)", "interleaved(cut=joint)", "chimera(cut=joint)", "order(cut=joint)"}) {
    CHECK(complaint_of([&] { parse_spec(spec, "test"); }).find("found 'joint'") != std::string::npos);
  }
  for (const char* spec : {"zb_h1(cut=joint)", "zb_h2(cut=joint)", "zb_auto(cut=joint)", "eager_1f1b(cut=joint)"}) {
    const std::vector<Pass> passes = parse_spec(spec, "test");
    const Problem problem = problem_of(with_weight_times(even_chain(5)), gpus({.count = 2}),
                                       {.micro_batches = 4, .backward = backward_for(passes)});
    const PlanOutcome made = plan(problem, passes, std::nullopt);
    REQUIRE(std::holds_alternative<Plan>(made));
    CHECK(check(std::get<Plan>(made).schedule, problem.graph, problem.platform).empty());
  }
}

}  // namespace
}  // namespace plimsoll
