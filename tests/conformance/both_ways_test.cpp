// Pipelines that run both ways over the same devices: slots, micro-batches in flight and idle time as published, and
// copies of parameters that stay equal.

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <optional>
#include <tuple>

#include "sim/engine/simgrid/simgrid_engine.h"
#include "sim/io/input_error.h"
#include "strategies/pipelining/both_ways.h"
#include "tests/strategies/pipelining/equal_pipelines.h"

namespace plimsoll {
namespace {

struct Stages {
  double f = 1, b = 1, w = 1;
  std::int64_t saved = 6, parameters = 0;
};

Problem both_ways(const std::string& spec, std::uint32_t p, std::uint32_t m, const Stages& each,
                  Optimizer optimizer = Optimizer::none) {
  Chain chain = equal_stages(p, {each.f, each.b, each.w}, {each.saved, 0});
  for (std::uint32_t s = 0; each.parameters > 0 && s < p; ++s) {
    chain.stages[s].parameters = {s};
    chain.parameters.push_back({"w" + std::to_string(s), Bytes{each.parameters}});
  }
  return problem_of(chain, gpus({.count = p, .to_peers = BytesPerSecond{8}}),
                    {.micro_batches = m, .optimizer = optimizer, .backward = backward_for(parse_spec(spec, "test"))});
}

/// Judged, and the same time in both engines.
Timeline run_both_ways(const std::string& spec, const Problem& problem, Schedule* schedule = nullptr) {
  const Plan made = std::get<Plan>(plan(problem, parse_spec(spec, "test"), std::nullopt));
  const std::vector<Violation> violations = check(made.schedule, problem.graph, problem.platform);
  if (!violations.empty()) FAIL_CHECK(violations[0].what);
  Timeline timeline = simulate_event(made.schedule, problem.platform);
  CHECK(timeline.makespan == made.makespan);
  CHECK(simulate_simgrid(made.schedule, problem.platform).makespan.value ==
        Approx(timeline.makespan.value).epsilon(1e-9));
  if (schedule != nullptr) *schedule = made.schedule;
  return timeline;
}

TEST_CASE("chimera: 2m + p / pairs - 2 slots of F = B, and the published micro-batches in flight", "[pipelining]") {
  for (const std::uint32_t p : {2U, 4U, 6U, 8U, 12U}) {
    for (const std::uint32_t pairs : {1U, 2U, 3U}) {
      if (p % (2 * pairs) != 0) continue;
      for (const std::uint32_t units : {1U, 2U, 3U}) {
        for (const double unit : {1.0, 0.3}) {
          const std::uint32_t m = p * units;
          INFO("p " << p << ", m " << m << ", pairs " << pairs);
          const std::string spec = "chimera(pairs=" + std::to_string(pairs) + ")";
          const Timeline timeline =
              run_both_ways(spec, both_ways(spec, p, m, {.f = unit, .b = unit / 2, .w = unit / 2}));
          CHECK(timeline.makespan.value == Approx((2.0 * m + p / pairs - 2) * unit).epsilon(1e-12));
          if (units > 1 || pairs > 1) continue;
          for (std::uint32_t r = 0; r < p; ++r) {  // p/2 + 1 at the ends to p in the middle
            CHECK(timeline.peaks[r].bytes == Bytes{6 * std::int64_t{p / 2 + 1 + std::min(r, p - 1 - r)}});
          }
        }
      }
    }
  }
}

TEST_CASE("chimera with any number of micro-batches is legal, and never faster than its work", "[pipelining]") {
  for (const std::uint32_t p : {2U, 4U, 8U}) {
    for (std::uint32_t m = 2; m <= 2 * p + 1; ++m) {
      INFO("p " << p << ", m " << m);
      const Problem problem = both_ways("chimera", p, m, {.f = 2, .parameters = 5});
      CHECK(run_both_ways("chimera", problem).makespan.value >= m * 4);
    }
  }
}

/// When an order ends with free transfers, a forward and the whole backward after it taken as one step where the
/// authors overlap them: what they make is there when both have ended.
double dualpipe_with_pairs(std::uint32_t p, std::uint32_t m, const Stages& each) {
  const PipelineOrder order = dualpipe_order(p, m);
  using Done = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;  // part, micro-batch, piece
  std::map<Done, double> ended;
  std::vector<std::size_t> next(p, 0);
  std::vector<double> clock(p, 0);
  const auto ready = [&](const Turn& turn) -> std::optional<double> {
    const std::uint32_t part = turn.part.index, way = part / p, stage = part % p;
    const auto at = [&](std::uint32_t s, std::uint32_t piece) -> std::optional<double> {
      const auto found = ended.find({way * p + s, turn.micro_batch, piece});
      return found == ended.end() ? std::nullopt : std::optional(found->second);
    };
    if (turn.piece == piece::weights) return 0.0;  // its backward is before it on the rank
    if (turn.piece == piece::forward) return stage == 0 ? 0.0 : at(stage - 1, piece::forward);
    return stage + 1 == p ? at(stage, piece::forward) : at(stage + 1, piece::backward);
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::uint32_t r = 0; r < p; ++r) {
      const std::vector<Turn>& turns = order.turns[r];
      const std::uint32_t h = std::min(r, p - 1 - r), outside = p / 2 - h - 1;
      const std::size_t main = 5 * outside + 2 * (h + 1), pairs = 6 * (m / 2 - p + h + 1), after = main + pairs;
      while (next[r] < turns.size()) {
        const std::size_t k = next[r];
        const bool in_main = k >= main && k < after && (k - main) % 3 == 0 && !(outside == 0 && k == main);
        const bool in_after = k >= after && k < after + 5 * outside && (k - after) % 5 == 2;
        const std::size_t count = in_main || in_after ? 3 : 1;
        std::optional<double> start = clock[r];
        double takes = 0;
        for (std::size_t i = k; i < k + count && start; ++i) {
          const std::optional<double> from = ready(turns[i]);
          start = from ? std::optional(std::max(*start, *from)) : std::nullopt;
          takes += turns[i].piece == piece::forward ? each.f : turns[i].piece == piece::backward ? each.b : each.w;
        }
        if (!start) break;
        clock[r] = *start + takes;
        for (std::size_t i = k; i < k + count; ++i) {
          ended[{turns[i].part.index, turns[i].micro_batch, turns[i].piece}] = clock[r];
        }
        next[r] += count;
        moved = true;
      }
    }
  }
  for (std::uint32_t r = 0; r < p; ++r) REQUIRE(next[r] == order.turns[r].size());
  return *std::ranges::max_element(clock);
}

TEST_CASE("dualpipe: the published idle time where F = W, half of B, and a pair is one step; less where it is not",
          "[pipelining]") {
  for (const std::uint32_t p : {2U, 4U, 6U, 8U}) {
    for (const std::uint32_t m : {2 * p, 2 * p + 2, 4 * p}) {
      for (const Stages& each : {Stages{1, 1, 1}, Stages{3, 2, 2}, Stages{0.5, 0.5, 0.5}}) {
        INFO("p " << p << ", m " << m << ", F " << each.f << ", W " << each.w);
        const Timeline timeline = run_both_ways("dualpipe", both_ways("dualpipe", p, m, each));
        const double whole = each.b + each.w, work = m * (each.f + whole);
        if (each.f == each.w) {  // else the formula is off, too: 6 and not 5 for F = 3, W = 2
          CHECK(dualpipe_with_pairs(p, m, each) - work ==
                Approx((p / 2 - 1) * (each.f + 2 * whole - 3 * each.w)).margin(1e-9));
        }
        CHECK(timeline.makespan.value - work == Approx((p / 2 - 1) * each.f).margin(1e-9));
        Bytes most;
        for (std::uint32_t r = 0; r < p; ++r) most = std::max(most, timeline.peaks[r].bytes);
        CHECK(most == Bytes{6 * std::int64_t{p + 1}});
      }
    }
  }
}

TEST_CASE("gradients of a stage's copies are summed beside the backward, and each copy is updated", "[pipelining]") {
  for (const char* spec : {"chimera", "dualpipe"}) {
    Schedule schedule;
    const Problem problem = both_ways(spec, 4, 8, {.parameters = 8}, Optimizer::momentum);
    const Timeline timeline = run_both_ways(spec, problem, &schedule);
    CHECK(schedule.collectives.size() == 4);
    std::size_t updates = 0;
    Seconds first_sum{INFINITY}, last_backward;
    for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
      const StepKind kind = schedule.steps[s].kind;
      updates += kind == StepKind::update ? 1 : 0;
      if (kind == StepKind::collective) first_sum = std::min(first_sum, timeline.steps[s].start);
      if (kind == StepKind::backward) last_backward = std::max(last_backward, timeline.steps[s].finish);
    }
    CHECK(updates == 8);
    CHECK(first_sum < last_backward);
    // Of two stages on each device: parameters, momentum, and in the end gradients.
    for (std::uint32_t r = 0; r < 4; ++r) CHECK(timeline.peaks[r].bytes >= Bytes{2 * (8 + 8 + 8)});
  }
}

TEST_CASE("what cannot run both ways is refused with the least that can", "[pipelining]") {
  const auto refusal = [](const std::string& spec, std::uint32_t p, std::uint32_t m) -> std::string {
    try {
      plan(both_ways(spec, p, m, {}), parse_spec(spec, "test"), std::nullopt);
    } catch (const InputError& error) {
      return error.what();
    }
    return "nothing";
  };
  CHECK(refusal("chimera", 3, 4) == "chimera: 3 stages, and pairs=1 needs a multiple of 2");
  CHECK(refusal("chimera(pairs=2)", 6, 8) == "chimera: 6 stages, and pairs=2 needs a multiple of 4");
  CHECK(refusal("chimera", 4, 1) == "chimera: 1 micro-batch, and 2 pipelines need at least 2");
  CHECK(refusal("dualpipe", 5, 10) == "dualpipe: 5 stages, and the two ways need an even number");
  CHECK(refusal("dualpipe", 4, 6) == "dualpipe: 6 micro-batches, and 4 stages need an even number of at least 8");
  CHECK(refusal("chimera", 2, 2) == "nothing");
}

}  // namespace
}  // namespace plimsoll
