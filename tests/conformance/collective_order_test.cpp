// Ranks of a group that begin two of its collectives in opposite orders wait for each other: the judge says so.

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "sim/judge/check.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/conformance/loose.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

struct Planned {
  Problem problem;
  Schedule schedule;
};

/// Stages of unequal times, each with parameters of its own, which several devices train.
Planned planned(const char* spec, std::uint32_t devices, std::uint64_t seed) {
  const std::vector<Pass> passes = parse_spec(spec, "test");
  Chain chain = random_small_chain(seed, 2 * devices);
  chain.parameters.clear();
  chain.shared.clear();
  for (Stage& stage : chain.stages) {
    stage.parameters = {static_cast<std::uint32_t>(chain.parameters.size())};
    stage.parameter_gradient.reset();
    chain.parameters.push_back({"w" + std::to_string(chain.parameters.size()), Bytes{8}});
  }
  const Gpus machine{.count = devices, .to_peers = BytesPerSecond{16}, .peer_latency = Seconds{0.25}};
  Problem problem =
      problem_of(with_weight_times(std::move(chain)), gpus(machine),
                 {.micro_batches = 2 * devices, .optimizer = Optimizer::sgd, .backward = backward_for(passes)});
  Plan made = std::get<Plan>(plan(problem, passes, std::nullopt));
  return {std::move(problem), std::move(made.schedule)};
}

/// Moves a step behind a later one; false where something between them waits for it.
bool move_behind(Loose& loose, std::size_t from, std::size_t to) {
  for (std::size_t s = from + 1; s <= to; ++s) {
    if (std::ranges::find(loose.steps[s].waits, id_at<StepId>(from)) != loose.steps[s].waits.end()) return false;
  }
  std::rotate(loose.steps.begin() + static_cast<std::ptrdiff_t>(from),
              loose.steps.begin() + static_cast<std::ptrdiff_t>(from) + 1,
              loose.steps.begin() + static_cast<std::ptrdiff_t>(to) + 1);
  for (Loose::LooseStep& s : loose.steps) {
    for (StepId& wait : s.waits) {
      if (wait.index == from) {
        wait = id_at<StepId>(to);
      } else if (wait.index > from && wait.index <= to) {
        --wait.index;
      }
    }
  }
  return true;
}

/// By group and rank, the places of the first flows that it sends: pairs of those that follow each other.
std::vector<std::pair<std::size_t, std::size_t>> neighbours(const Schedule& schedule) {
  std::map<std::pair<std::set<MemoryId>, StreamId>, std::size_t> last;
  std::set<std::pair<CollectiveId, StreamId>> begun;
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    const Step& step = schedule.steps[s];
    if (step.collective == no_collective || !begun.insert({step.collective, step.stream}).second) continue;
    std::set<MemoryId> ranks;
    for (const BufferId b : schedule.collectives[step.collective.index].inputs) ranks.insert(schedule[b].memory);
    const auto [place, is_first] = last.try_emplace({std::move(ranks), step.stream}, s);
    if (!is_first) pairs.emplace_back(std::exchange(place->second, s), s);
  }
  return pairs;
}

TEST_CASE("collectives that two ranks begin in opposite orders are reported, all of them", "[conformance]") {
  std::size_t mutants = 0;
  for (const RandomCase seed : random_cases(1, 30)) {
    const bool in_pairs = seed % 2 == 1;
    const Planned made = planned(in_pairs ? "chimera" : "chimera(pairs=2)", 4, seed);
    REQUIRE(check(made.schedule, made.problem.graph, made.problem.platform).empty());
    for (const auto& [first, second] : neighbours(made.schedule)) {
      Loose loose(made.schedule);
      if (!move_behind(loose, first, second)) continue;
      ++mutants;
      const std::vector<Violation> found = check(loose.packed(), made.problem.graph, made.problem.platform);
      const auto names_both = [&](const Violation& each) {
        return each.rule == Rule::collective && each.step && each.what.find("in opposite orders") != std::string::npos;
      };
      INFO("seed " << seed << ", step " << first << " behind " << second);
      CHECK(std::ranges::any_of(found, names_both));
    }
  }
  if (all_cases()) CHECK(mutants > 100);
}

}  // namespace
}  // namespace plimsoll
