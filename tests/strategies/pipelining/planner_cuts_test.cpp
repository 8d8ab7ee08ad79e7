// Cuts by published planners, on chains: against every cut there is, by what each planner minimises.

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <numeric>

#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "strategies/pipelining/cuts/cuts.h"
#include "strategies/pipelining/cuts/planner_cuts.h"
#include "tests/bad_input.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "tests/strategies/pipelining/equal_pipelines.h"

namespace plimsoll {
namespace {

constexpr double no_cut = std::numeric_limits<double>::infinity();

struct CutTimes {
  double longest = 0, longest_with_transfers = 0, period = 0;
};

/// Of parts that begin at `first`: compute alone; with transfers over both borders added; of compute or one transfer.
CutTimes times_of_cut(const Chain& chain, std::vector<std::size_t> first, double bytes_per_second) {
  CutTimes times;
  first.push_back(chain.stages.size());
  for (std::size_t p = 0; p + 1 < first.size(); ++p) {
    double compute = 0, sent = 0;
    for (std::size_t i = first[p]; i < first[p + 1]; ++i) {
      compute += chain.stages[i].forward.value + chain.stages[i].backward.value;
    }
    for (const std::size_t border : {first[p], first[p + 1]}) {
      if (border == 0 || border == chain.stages.size()) continue;
      const double transfer = 2 * static_cast<double>(boundary_bytes(chain, border).count) / bytes_per_second;
      sent += transfer;
      times.period = std::max(times.period, transfer);
    }
    times.longest = std::max(times.longest, compute);
    times.longest_with_transfers = std::max(times.longest_with_transfers, compute + sent);
    times.period = std::max(times.period, compute);
  }
  return times;
}

/// The least of one of the times over all cuts into so many parts, of those with parts that fit.
double least_of_cuts(const Chain& chain, std::size_t parts, double rate, double CutTimes::*what,
                     const RangeFits& fits = {}) {
  double best = no_cut;
  const std::size_t n = chain.stages.size();
  for (std::uint32_t mask = 0; mask < 1U << (n - 1); ++mask) {
    std::vector<std::size_t> first{0};
    for (std::size_t i = 1; i < n; ++i) {
      if ((mask >> (i - 1) & 1U) != 0) first.push_back(i);
    }
    if (first.size() != parts) continue;
    bool all_fit = true;
    for (std::size_t g = 0; fits && g < first.size(); ++g) {
      const std::size_t end = g + 1 < first.size() ? first[g + 1] : n;
      all_fit = all_fit && fits(static_cast<std::uint32_t>(first[g]), static_cast<std::uint32_t>(end),
                                static_cast<std::uint32_t>(first.size() - g));
    }
    if (all_fit) best = std::min(best, times_of_cut(chain, first, rate).*what);
  }
  return best;
}

TEST_CASE("cuts by planners are the best of all, by what each minimises", "[pipelining][planners]") {
  struct Case {
    std::string_view planner;
    double CutTimes::*what;
  };
  const Case cases[] = {{"pipedream", &CutTimes::period},
                        {"ideals", &CutTimes::longest_with_transfers},
                        {"piper", &CutTimes::longest_with_transfers},
                        {"alpa", &CutTimes::longest},
                        {"madpipe", &CutTimes::period}};
  std::size_t planned = 0, squeezed = 0, kept_together = 0;
  for (const RandomCase seed : random_cases(1, 80)) {
    Random random(seed);
    const Chain chain = random_small_chain(seed, random.between(1, 8));
    const auto n = static_cast<std::uint32_t>(chain.stages.size());
    const std::uint32_t parts = random.between(1, std::min(n, 4U));
    const double rate = random.between(1, 40);
    const Problem problem =
        problem_of(chain, gpus({.count = parts, .to_peers = BytesPerSecond{rate}}), {.micro_batches = 4});
    // What stages keep, of each micro-batch in flight, and the memory.
    std::vector<std::uint32_t> kept(n);
    for (std::uint32_t& bytes : kept) bytes = random.between(0, 9);
    const std::uint32_t memory = random.between(5, 60);
    const RangeFits fits = [&](std::uint32_t first, std::uint32_t last, std::uint32_t in_flight) {
      return in_flight * std::accumulate(kept.begin() + first, kept.begin() + last, 0U) <= memory;
    };
    for (const Case& each : cases) {
      INFO(each.planner << " on " << parts);
      const double best = least_of_cuts(*problem.chain, parts, rate, each.what);
      const auto cut = planner_cut(problem, {.planner = each.planner, .devices = parts});
      if (std::holds_alternative<std::string>(cut)) {  // layers of no time, which the planner keeps together
        CHECK(each.planner == "ideals");
        ++kept_together;
        continue;
      }
      const auto& made = std::get<StageCut>(cut);
      REQUIRE(made == without_copies(made.first));
      REQUIRE(made.first.size() == parts);
      CHECK(times_of_cut(*problem.chain, made.first, rate).*each.what == Approx(best).epsilon(1e-9));
      ++planned;
      const double fitting = least_of_cuts(*problem.chain, parts, rate, each.what, fits);
      const auto limited = planner_cut(problem, {.planner = each.planner, .devices = parts, .fits = fits});
      const auto* within = std::get_if<StageCut>(&limited);
      REQUIRE(within != nullptr);
      const double time = times_of_cut(*problem.chain, within->first, rate).*each.what;
      CHECK(time == Approx(fitting == no_cut ? best : fitting).epsilon(1e-9));
      if (fitting < no_cut && fitting > best) ++squeezed;
    }
  }
  if (all_cases()) CHECK(planned > 350);
  if (all_cases()) CHECK(squeezed > 30);
  if (all_cases()) CHECK(kept_together < 10);
}

TEST_CASE("cuts by planners are for one part a device", "[pipelining][planners]") {
  const Problem problem = problem_of(random_small_chain(3, 8), gpus({.count = 2}), {.micro_batches = 4});
  const auto complaint = [&](const std::string& spec) {
    return complaint_of([&] { plan(problem, parse_spec(spec, "test"), std::nullopt); });
  };
  CHECK(complaint("interleaved(cut=ideals)") ==
        "interleaved: cut=ideals is for pipelines with one part a device, in their order");
  CHECK(complaint("1f1b(cut=alpa)") == "no complaint");
}

TEST_CASE("a planner's cut within a budget fits with its micro-batches in flight where another does not",
          "[pipelining][planners]") {
  // Four stages of 2 s, of which the first one saves 10 B and the others 1 B. Two parts of two each are fastest and
  // keep 6 x 11 B on the first device; within 60 B the first part is the first stage alone.
  Chain chain = equal_stages(4, {.f = 1, .b = 1, .w = 0}, {.all = 1, .for_weights = 0});
  chain.stages[0].saved = Bytes{10};
  const Problem problem = problem_of(chain, gpus({.count = 2}), {.micro_batches = 6});
  for (const char* planner : {"pipedream", "ideals", "piper", "alpa", "madpipe"}) {
    INFO(planner);
    const std::vector<Pass> passes = parse_spec(std::string("gpipe(cut=") + planner + ",order=fifo)", "test");
    const auto time = [&](const std::vector<Pass>& asked, Bytes budget) -> std::optional<double> {
      const PlanOutcome outcome = plan(problem, asked, budget);
      const Plan* made = std::get_if<Plan>(&outcome);
      return made == nullptr ? std::nullopt : std::optional(made->makespan.value);
    };
    CHECK(time(passes, Bytes{66}) == 4.0 * (6 + 1));
    CHECK(time(passes, Bytes{60}) == 2.0 + 6 * 6.0);
    CHECK(!time(passes, Bytes{59}));
    if (planner != std::string_view("ideals") && planner != std::string_view("madpipe")) continue;  // no copies
    const std::vector<Pass> by_turns = parse_spec(std::string("1f1b(cut=") + planner + ")", "test");
    CHECK(time(by_turns, Bytes{20}) == 2.0 + 6 * 6.0);  // two in flight on the first device
  }
}

}  // namespace
}  // namespace plimsoll
