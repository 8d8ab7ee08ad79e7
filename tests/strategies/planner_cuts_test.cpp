// Cuts by published planners, on chains: against every cut there is, by what each planner minimises.

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <numeric>

#include "sim/io/input_error.h"
#include "strategies/pipelining/planner_cuts.h"
#include "strategies/plan.h"
#include "strategies/spec.h"
#include "tests/bad_input.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

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

/// The least of one of the times over all cuts into `least` to `most` parts.
double least_of_cuts(const Chain& chain, std::size_t least, std::size_t most, double rate, double CutTimes::*what) {
  double best = std::numeric_limits<double>::infinity();
  const std::size_t n = chain.stages.size();
  for (std::uint32_t mask = 0; mask < 1U << (n - 1); ++mask) {
    std::vector<std::size_t> first{0};
    for (std::size_t i = 1; i < n; ++i) {
      if ((mask >> (i - 1) & 1U) != 0) first.push_back(i);
    }
    if (first.size() >= least && first.size() <= most) best = std::min(best, times_of_cut(chain, first, rate).*what);
  }
  return best;
}

TEST_CASE("cuts by planners are the best of all, by what each minimises", "[pipelining][planners]") {
  struct Case {
    std::string_view planner;
    double CutTimes::*what;
    bool all_devices;
  };
  const Case cases[] = {{"pipedream", &CutTimes::period, true},
                        {"ideals", &CutTimes::longest_with_transfers, false},
                        {"piper", &CutTimes::longest_with_transfers, false},
                        {"alpa", &CutTimes::longest, true},
                        {"madpipe", &CutTimes::period, false}};
  std::size_t planned = 0;
  for (const RandomCase seed : random_cases(1, 80)) {
    Random random(seed);
    const Chain chain = random_small_chain(seed, random.between(1, 8));
    const auto n = static_cast<std::uint32_t>(chain.stages.size());
    const std::uint32_t parts = random.between(1, std::min(n, 4U));
    const double rate = random.between(1, 40);
    const Problem problem =
        problem_of(chain, gpus({.count = parts, .to_peers = BytesPerSecond{rate}}), {.micro_batches = 4});
    std::vector<std::uint32_t> ranks(parts);
    std::iota(ranks.begin(), ranks.end(), 0U);
    for (const Case& each : cases) {
      INFO(each.planner << " on " << parts);
      const double best = least_of_cuts(*problem.chain, each.all_devices ? parts : 1, parts, rate, each.what);
      std::vector<std::size_t> first;
      try {
        first = planner_cut(problem, each.planner, "1f1b", ranks);
      } catch (const InputError&) {  // as good with fewer devices
        CHECK(!each.all_devices);
        CHECK(best == Approx(least_of_cuts(*problem.chain, 1, parts - 1, rate, each.what)).epsilon(1e-9));
        continue;
      }
      REQUIRE(first.size() == parts);
      CHECK(times_of_cut(*problem.chain, first, rate).*each.what == Approx(best).epsilon(1e-9));
      ++planned;
    }
  }
  if (all_cases()) CHECK(planned > 150);
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

}  // namespace
}  // namespace plimsoll
