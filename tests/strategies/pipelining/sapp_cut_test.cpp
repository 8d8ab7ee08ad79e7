// cut=sapp on chains: against every cut there is, by SAPP's longest stage, with one and several parts a device.

#include <limits>

#include "strategies/pipelining/cuts/cuts.h"
#include "tests/bad_input.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "tests/strategies/pipelining/equal_pipelines.h"

namespace plimsoll {
namespace {

/// Unlike stages; what they save is all that they take.
Chain chain_for_sapp(Random& random, std::uint32_t stages) {
  Chain chain = equal_stages(stages, {});
  for (Stage& stage : chain.stages) {
    stage.forward = stage.forward_nograd = Seconds{1.0 * random.between(1, 3)};
    stage.backward = Seconds{1.0 * random.between(1, 6)};
    stage.saved = Bytes{random.between(1, 4)};
  }
  return chain;
}

struct SappCase {
  const Chain& chain;
  std::uint32_t devices, chunks, micro_batches;
};

/// SAPP's first level, as its authors write it: pairs of a device's chunks; where m = p, the last chunk is added. The
/// first stage of the chain is the head and the last one the tail, which are no part of a chunk's time.
double longest_of(const SappCase& of, const std::vector<std::size_t>& first) {
  const std::uint32_t p = of.devices, v = of.chunks;
  const std::size_t n = of.chain.stages.size();
  const bool is_short = v > 1 && of.micro_batches == p;
  double longest = 0, last = 0;
  for (std::uint32_t s = 0; s < p; ++s) {
    std::vector<double> f(v, 0), b(v, 0);
    double ends = 0;
    for (std::uint32_t c = 0; c < v; ++c) {
      const std::size_t g = c * p + s, end = g + 1 < first.size() ? first[g + 1] : n;
      for (std::size_t i = first[g]; i < end; ++i) {
        const Stage& stage = of.chain.stages[i];
        if (i == 0 || i + 1 == n) {
          ends += (stage.forward + stage.backward).value;
          continue;
        }
        f[c] += stage.forward.value;
        b[c] += stage.backward.value;
      }
    }
    if (!is_short) {
      longest = std::max(longest, *std::ranges::max_element(f) + *std::ranges::max_element(b) + ends);
      continue;
    }
    for (std::uint32_t c = 0; c + 1 < v; ++c) {
      longest = std::max(longest, b[c] + (s == 0 && c == 0 ? of.chain.stages[0].backward.value : 0));
    }
    const double share = of.micro_batches < 2 * p && 2 * s < p ? 0 : std::abs(1.0 * p - 1 - 2.0 * s) / of.micro_batches;
    const Stage& tail = of.chain.stages.back();
    last = std::max(last,
                    b[v - 1] + share * f[v - 1] + (s + 1 == p ? tail.backward.value + share * tail.forward.value : 0));
  }
  return is_short ? longest + std::max(longest, last) : longest;
}

std::vector<std::size_t> cut_in(const Plan& made, const Problem& problem) {
  std::vector<std::pair<std::size_t, std::size_t>> forwards;  // (stage, stream) of micro-batch 0
  for (const Step& step : made.schedule.steps) {
    if (step.kind != StepKind::forward || step.micro_batch != 0) continue;
    const Op& op = problem.graph[step.op];
    forwards.emplace_back(op.stage, step.stream.index);
  }
  std::ranges::sort(forwards);
  std::vector<std::size_t> first{0};
  for (std::size_t k = 1; k < forwards.size(); ++k) {
    if (forwards[k].second != forwards[k - 1].second) first.push_back(forwards[k].first);
  }
  return first;
}

TEST_CASE("cut=sapp is the best of all cuts, by the longest stage as SAPP counts it", "[pipelining][sapp]") {
  std::size_t squeezed = 0;
  for (const RandomCase seed : fewer_cases(1, 60)) {
    Random random(seed);
    const std::uint32_t p = random.between(2, 3), v = random.between(1, 2);
    const Chain chain = chain_for_sapp(random, random.between(p * v, p * v + 3));
    const std::uint32_t m = random.chance(0.5) ? p : 2 * p;
    const Problem problem = problem_of(chain, gpus({.count = p}), {.micro_batches = m});
    const std::string name = v == 1 ? "1f1b" : "interleaved", sapp = name + "(cut=sapp)";
    const auto within = [&](const std::string& spec, const std::optional<Bytes>& budget) {
      const PlanOutcome outcome = plan(problem, parse_spec(spec, "test"), budget);
      const Plan* made = std::get_if<Plan>(&outcome);
      return made == nullptr ? std::nullopt : std::optional(*made);
    };
    const Plan made = *within(sapp, std::nullopt);
    const double found = longest_of({chain, p, v, m}, cut_in(made, problem));
    double best = std::numeric_limits<double>::infinity();
    const Bytes budget{made.peak.count * 3 / 4};
    bool any_fits = false;
    const std::size_t n = chain.stages.size();
    for (std::uint32_t mask = 0; mask < 1U << (n - 1); ++mask) {
      std::vector<std::size_t> first{0};
      for (std::size_t i = 1; i < n; ++i) {
        if ((mask >> (i - 1) & 1U) != 0) first.push_back(i);
      }
      if (first.size() != std::size_t{p} * v) continue;
      best = std::min(best, longest_of({chain, p, v, m}, first));
      const std::string cut = name + "(cut=" + text_of(without_copies(first)) + ")";
      any_fits = any_fits || within(cut, budget).has_value();
    }
    CHECK(found == Approx(best).epsilon(1e-6));
    if (const std::optional<Plan> less = within(sapp, budget)) {
      CHECK(less->peak <= budget);
      CHECK(any_fits);
      ++squeezed;
    }
  }
  if (all_cases()) CHECK(squeezed >= cases_of(std::size_t{10}));
}

TEST_CASE("cut=sapp within a budget leaves room for what devices need beside what their layers keep",
          "[pipelining][sapp]") {
  Chain chain = equal_stages(6, {});
  const int forward[] = {1, 3, 3, 3, 3, 1}, backward[] = {3, 3, 1, 4, 4, 3}, saved[] = {3, 5, 3, 9, 9, 8};
  for (std::size_t i = 0; i < chain.stages.size(); ++i) {
    Stage& stage = chain.stages[i];
    stage.forward = stage.forward_nograd = Seconds{1.0 * forward[i]};
    stage.backward = Seconds{1.0 * backward[i]};
    stage.saved = Bytes{saved[i]};
  }
  chain.stages[4].backward_workspace = chain.stages[4].backward_accumulate_workspace = Bytes{3};
  const Problem problem = problem_of(chain, gpus({.count = 2}), {.micro_batches = 2});
  for (const Bytes budget : {Bytes{41}, Bytes{43}}) {
    const PlanOutcome made = plan(problem, parse_spec("interleaved(cut=sapp)", "test"), budget);
    REQUIRE(std::holds_alternative<Plan>(made));
    CHECK(std::get<Plan>(made).peak <= budget);
  }
}

// More than twenty unlike stages: the parts that a dynamic program balances, or the integer program's.
TEST_CASE("cut=sapp of many unlike stages is within 1 % of the best of all cuts", "[pipelining][sapp][eleventh-3]") {
  for (const RandomCase seed : random_cases(1, 6)) {
    Random random(seed);
    const std::uint32_t n = random.between(24, 26), m = random.between(3, 6);
    const bool in_proportion = random.chance(0.5);
    Chain chain = equal_stages(n, {});
    for (Stage& stage : chain.stages) {
      stage.forward = stage.forward_nograd = Seconds{1.0 * random.between(10, 90)};
      stage.backward = in_proportion ? 2 * stage.forward : Seconds{1.0 * random.between(10, 180)};
    }
    const Problem problem = problem_of(chain, gpus({.count = 2}), {.micro_batches = m});
    const Plan made = std::get<Plan>(plan(problem, parse_spec("interleaved(cut=sapp)", "test"), std::nullopt));
    double best = std::numeric_limits<double>::infinity();
    for (std::size_t a = 1; a < n; ++a) {
      for (std::size_t b = a + 1; b < n; ++b) {
        for (std::size_t c = b + 1; c < n; ++c) best = std::min(best, longest_of({chain, 2, 2, m}, {0, a, b, c}));
      }
    }
    CHECK(longest_of({chain, 2, 2, m}, cut_in(made, problem)) <= 1.01 * best);
  }
}

TEST_CASE("cut=sapp is for parts on the devices in turn", "[pipelining][sapp]") {
  const Problem problem =
      problem_of(equal_stages(8, {}), gpus({.count = 2}), {.micro_batches = 4, .backward = Backward::split});
  const auto complaint = [&](const std::string& spec) {
    return complaint_of([&] { plan(problem, parse_spec(spec, "test"), std::nullopt); });
  };
  CHECK(complaint("zb_v(cut=sapp)") ==
        "zb_v: cut=sapp is for pipelines whose parts are on the devices in turn, one or several on each");
  CHECK(complaint("zb_h1(cut=sapp)") == "no complaint");
  CHECK(complaint("zb_auto(cut=sapp)") == "no complaint");
}

}  // namespace
}  // namespace plimsoll
