// Nobody beats a cluster: every strategy by its name, and random compositions, against the answer that it has proven.

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/tolerance.h"
#include "sim/io/input_error.h"
#include "strategies/list.h"
#include "tests/experiments/cluster_asked.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

/// What trains otherwise is no rival: approximate values, other optimizers, updates from older parameters, what needs a
/// file. Nor are those that ask others.
constexpr std::array train_otherwise{
    "adam8bit",  "adafactor",     "galore",    "sparse_update", "seer",     "channel_prune", "patch", "shared_norm",
    "pipedream", "pipedream_2bw", "prune_bsr", "quantize",      "actnn",    "gact",          "alam",  "mesa",
    "blpa",      "acgc",          "fewbit",    "approx_bp",     "wta_crs",  "compress_plan", "pool",  "gist",
    "policy",    "order",         "chain",     "cluster",       "portfolio"};
/// Searches of many seconds, which the experiment asks (experiments/cluster_beaten.py).
constexpr std::array take_long{"exact", "auto"};

bool is_in(std::span<const char* const> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

std::vector<const StrategyInfo*> rivals() {
  std::vector<const StrategyInfo*> made;
  for (const StrategyInfo* each : strategies()) {
    if (!is_in(train_otherwise, each->name) && !is_in(take_long, each->name)) made.push_back(each);
  }
  return made;
}

/// With a short limit where it has one.
std::string quickly(const StrategyInfo& strategy) {
  for (const char* limit : {"time_limit=1", "seconds=1", "nodes=20"}) {
    const std::string_view text = limit;
    if (strategy.options.find(text.substr(0, text.find('='))) == nullptr) continue;
    return std::string(strategy.name) + "(" + limit + ")";
  }
  return std::string(strategy.name);
}

std::string one_of(const std::vector<const StrategyInfo*>& all, std::span<const Family> families, Random& random) {
  std::vector<const StrategyInfo*> some;
  std::ranges::copy_if(all, std::back_inserter(some), [&](const StrategyInfo* each) {
    return std::ranges::find(families, each->family) != families.end();
  });
  return quickly(*some[random.below(static_cast<std::uint32_t>(some.size()))]);
}

/// Passes in an order that can stand: transforms, splits, replicas, a pipeline or a placement, memory, updates.
std::string drawn_composition(const std::vector<const StrategyInfo*>& all, std::uint32_t devices, Random& random) {
  using enum Family;
  std::string text;
  const auto add = [&](const std::string& pass) { text += (text.empty() ? "" : "|") + pass; };
  const auto width = [&] {
    std::uint32_t ranks = 1U << random.between(1, 3);
    while (ranks > devices) ranks /= 2;
    return std::to_string(ranks);
  };
  if (random.chance(0.3)) add("recompute_ops");
  if (random.chance(0.4) && devices > 1) {
    add("megatron(tensor=" + width() + (random.chance(0.5) ? ",sequence=yes)" : ")"));
  }
  if (random.chance(0.5) && devices > 1) {
    constexpr std::array ways{"data_parallel", "zero1", "zero2", "zero3"};
    add(ways[random.below(4)] + ("(ranks=" + width() + ")"));
  }
  if (random.chance(0.6)) add(one_of(all, std::array{pipelining, placement}, random));
  if (random.chance(0.5)) add(one_of(all, std::array{rematerialization}, random));
  if (random.chance(0.4)) add(one_of(all, std::array{offloading}, random));
  return text.empty() ? "store_all" : text;
}

/// What a rival takes within the question's memory; nothing where it cannot, or does not fit.
std::optional<Seconds> time_of_rival(Question question, const ClusterAsked& asked, const std::string& text) {
  try {
    question.strategy = parse_pipeline(text, "test");
    const BudgetedProblem made = budgeted_problem_of(question, asked.trace, asked.platform);
    const Answer found = answer(question, made.problem, std::span(&made.budget, 1)).front();
    if (!found.feasible() || beyond_host_or_disk(made.problem, *found.schedule)) return std::nullopt;
    return found.metrics->makespan;
  } catch (const InputError&) {  // it cannot treat this problem
    return std::nullopt;
  }
}

}  // namespace

TEST_CASE("no strategy and no composition is faster than what a cluster has proven", "[cluster][turn-13]") {
  const std::vector<const StrategyInfo*> all = rivals();
  std::size_t compared = 0, next = 0;
  for (const RandomCase seed : fewer_cases(1, 33, 33)) {
    Random random(seed);
    const std::uint32_t devices = std::array{1U, 2U, 8U, 16U}[seed % 4];
    const ClusterMachine machine{.nodes = devices > 8 ? 2U : 1U,
                                 .in_node = std::min(devices, 8U),
                                 .between_nodes = 1.0 + random.below(10),
                                 .within = 5.0 + random.below(20),
                                 .memory = "10 MB"};
    const std::string model = cluster_model(random.between(1, 2), 32 * random.between(1, 2));
    const Optimizer optimizer = seed % 8 < 4 ? Optimizer::adam : Optimizer::none;
    const bool is_tight = seed % 16 < 8 && devices <= 8;  // so much that what saves memory is chosen
    const std::string options =
        is_tight ? "points=300,saver=none+core+full+rotor+greedy_recompute" +
                       std::string(devices <= 2 ? ",offload=none+offload_greedy" : ",context=auto,copies=auto")
                 : "points=300,context=auto,copies=auto" +
                       std::string(optimizer == Optimizer::adam ? ",updates=device+backward_updates" : "");
    std::optional<Bytes> memory;
    if (is_tight) {
      const ClusterAsked none(model, machine, 8, "points=300,saver=none+core+full+rotor", optimizer, Bytes{1});
      ClusterProblems problems(none.question, none.trace, none.platform);
      const ClusterAnswer found = cluster_search(problems.question(), none.options());
      memory =
          Bytes{static_cast<std::int64_t>((1.1 + random.below(8) / 10.0) * static_cast<double>(found.least->count))};
    }
    const ClusterAsked asked(model, machine, 8, options, optimizer, memory);
    ClusterProblems problems(asked.question, asked.trace, asked.platform);
    const ClusterAnswer found = cluster_search(problems.question(), asked.options());
    REQUIRE(found.best);
    const double best = found.is_proven ? found.rows[*found.best].outcome->makespan->value : found.bound.value;
    for (int k = 0; k < 24; ++k) {
      const std::string rival =
          k % 2 == 0 ? quickly(*all[next++ % all.size()]) : drawn_composition(all, devices, random);
      const std::optional<Seconds> time = time_of_rival(asked.question, asked, rival);
      if (!time) continue;
      ++compared;
      CAPTURE(rival, devices, model, memory.value_or(Bytes{}).count, found.rows[*found.best].as().text,
              found.is_proven);
      CHECK(best <= time->value * (1 + model_tolerance));
    }
  }
  if (every_case()) CHECK(compared > 250U);
}

}  // namespace plimsoll
