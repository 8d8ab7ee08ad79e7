// compress_plan against every way to keep the values of small graphs and chains, and against the methods that know one
// number of bits, recompute or offload alone.

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <limits>
#include <optional>

#include "platforms/platform_file.h"
#include "sim/codec/predicted_error.h"
#include "sim/engine/event/event_engine.h"
#include "sim/judge/check.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "strategies/compression/form_plans.h"
#include "strategies/models/chain_part.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "tests/strategies/compression/compress_plan_oracle.h"
#include "traces/imports/framework_graphs.h"
#include "traces/models/synthetic.h"

namespace plimsoll {
namespace {

Problem small_pictures(std::uint64_t seed, BytesPerSecond to_host = unlimited_bandwidth) {
  Random random(seed);
  Platform platform = gpus({.to_host = to_host});
  platform.devices[0].memory_bandwidth = BytesPerSecond{static_cast<double>(random.between(2000, 20000))};
  return problem_of(as_pictures(random_graph(seed, random.between(2, 6)), seed), std::move(platform));
}

std::string plan_within(double error) {
  return "compress_plan(error=" + std::to_string(error) + ")";
}

/// A chain whose stages list what they save, with a link to the host.
Problem small_chain(std::uint64_t seed, BytesPerSecond to_host) {
  Random random(seed);
  Platform platform = gpus({.to_host = to_host});
  platform.devices[0].memory_bandwidth = BytesPerSecond{static_cast<double>(random.between(2000, 20000))};
  return problem_of(with_saved_tensors(random_small_chain(seed, random.between(1, 3)), seed), std::move(platform),
                    {.inner = Inner::apart});
}

/// Whether the stages list something that may be packed: else the question is refused.
bool lists_pictures(const Problem& problem) {
  return std::ranges::any_of(problem.chain->stages, [](const Stage& stage) {
    return std::ranges::any_of(stage.inner, [](const InnerTensor& inner) { return inner.dtype != "int64"; });
  });
}

/// How much slower than the best of all ways, over budgets at which a way begins to fit.
struct Gaps {
  double sum = 0, worst = 0;
  double proven = 0;             // sum of what it says itself, where it does
  int compared = 0, missed = 0;  // missed: no plan where a way fits

  void add(double gap) {
    sum += gap;
    worst = std::max(worst, gap);
    ++compared;
  }
  double mean() const { return sum / compared; }
};

void compare(const Problem& problem, const std::vector<TriedWay>& ways, const std::string& options, Gaps& gaps) {
  std::vector<std::optional<Bytes>> budgets;
  for (const TriedWay& way : ways) budgets.emplace_back(way.peak);
  std::ranges::sort(budgets);
  budgets.erase(std::unique(budgets.begin(), budgets.end()), budgets.end());
  for (const double error : {0.05, 0.5}) {
    const std::string spec = "compress_plan(error=" + std::to_string(error) + options + ")";
    const std::vector<PlanOutcome> outcomes = plan(problem, parse_spec(spec, "test"), budgets);
    for (std::size_t b = 0; b < budgets.size(); ++b) {
      Seconds best{std::numeric_limits<double>::infinity()};
      for (const TriedWay& way : ways) {
        if (way.error <= error && way.peak <= *budgets[b]) best = std::min(best, way.makespan);
      }
      INFO(spec << ", " << budgets[b]->count << " B");
      const Plan* made = std::get_if<Plan>(&outcomes[b]);
      const bool any = best.value < std::numeric_limits<double>::infinity();
      if (made == nullptr) {
        gaps.missed += any ? 1 : 0;
        continue;
      }
      CHECK(made->peak <= *budgets[b]);
      if (!any) continue;  // what is restored may stay for longer than in these ways
      CHECK(predicted_errors(made->schedule, problem.graph).whole <= error);
      REQUIRE(made->gap);
      CHECK(made->makespan.value <= best.value * (1 + *made->gap) * (1 + 1e-9));  // the bound is below the best
      gaps.add(std::max(0.0, made->makespan / best - 1));
      gaps.proven += *made->gap;
    }
  }
}

TEST_CASE("compress_plan is near the best of all choices of bits", "[compression][compress_plan][eleventh-0]") {
  Gaps gaps;
  for (const RandomCase seed : random_cases(1, 100)) {
    const Problem problem = small_pictures(seed);
    const auto ways = every_way(problem, false, 8, 20'000);
    INFO("seed " << seed);
    if (ways) compare(problem, *ways, ", recompute=no, offload=no", gaps);
  }
  REQUIRE(gaps.compared > 200);
  CHECK(gaps.missed <= gaps.compared / 20);
  CHECK(gaps.mean() < 0.05);
}

TEST_CASE("compress_plan is near the best of all choices of bits and of values that are made again",
          "[compression][compress_plan][turn-26]") {
  for (const bool chains : {false, true}) {
    Gaps gaps;
    for (const RandomCase seed : random_cases(1, 60)) {
      const Problem problem = chains ? small_chain(seed, unlimited_bandwidth) : small_pictures(seed);
      if (chains && !lists_pictures(problem)) continue;
      const auto ways = every_way(problem, true, 8, 20'000);
      INFO((chains ? "chain" : "graph") << ", seed " << seed);
      if (ways) compare(problem, *ways, ", offload=no", gaps);
    }
    INFO((chains ? "chains" : "graphs") << ": mean " << gaps.mean() << ", worst " << gaps.worst << " of "
                                        << gaps.compared << ", missed " << gaps.missed);
    REQUIRE(gaps.compared > 200);
    CHECK(gaps.missed <= gaps.compared / 20);
    CHECK(gaps.mean() < 0.05);
  }
}

// x1 = f1(x), x2 = f2(x1), and the gradient behind f2 reads both last of all: x1 is still there when x2 is made again.
TEST_CASE("what is made again takes no more than what makes it where its inputs are still read", "[compression]") {
  Graph graph;
  graph.name = "two values";
  const auto tensor = [&](const char* name, TensorKind kind) {
    graph.tensors.push_back(
        {.name = name, .kind = kind, .bytes = Bytes{4}, .storage = id_at<StorageId>(graph.storages++)});
    return id_at<TensorId>(graph.tensors.size() - 1);
  };
  using enum TensorKind;
  const TensorId x = tensor("x", input), x1 = tensor("x1", activation), x2 = tensor("x2", activation);
  const TensorId y = tensor("y", activation), loss = tensor("loss", gradient), g = tensor("g", gradient);
  const auto op = [&](const char* name, Phase phase, double seconds, std::vector<TensorId> in, TensorId out) {
    graph.ops.push_back(
        {.name = name, .phase = phase, .duration = Seconds{seconds}, .inputs = std::move(in), .outputs = {out}});
  };
  op("f1", Phase::forward, 5, {x}, x1);
  op("f2", Phase::forward, 3, {x1}, x2);
  op("f3", Phase::forward, 1, {x2}, y);
  op("loss", Phase::backward, 1, {y}, loss);
  op("b2", Phase::backward, 1, {loss, x1, x2}, g);
  const Problem problem = problem_of(graph, gpus({}));
  const Partition partition = one_device(problem.graph, 1, 1);
  const PartTask task{problem, partition, PartId{0}};
  const auto model = std::get<OffloadModel>(offload_model(task, nullptr));
  const std::vector<SavedTensor> saved = saved_tensors(problem.graph, model);
  KeptForms kept_forms(problem.graph, saved, {}, problem.platform.devices[0]);
  kept_forms.offer_recomputation(model, op_model(task));
  const auto again = [&](TensorId t) {
    const std::optional<std::size_t> value = kept_forms.value_of(t);
    REQUIRE(value);
    REQUIRE(kept_forms[*value].forms.back().again);
    return kept_forms[*value].forms.back().time.value;
  };
  CHECK(again(x2) == 3);
  CHECK(again(x1) == 5);
}

TEST_CASE(
    "where the recursion over stages alone has a plan it is near the best of all choices of bits and values made again",
    "[compression][compress_plan][eleventh-2]") {
  constexpr Codec in_4_bits{.kind = CodecKind::quantize, .bits = 4, .group = 256, .group_bytes = 8};
  constexpr Codec in_8_bits{.kind = CodecKind::quantize, .bits = 8, .group = 256, .group_bytes = 8};
  constexpr Codec in_2_bits{.kind = CodecKind::quantize, .bits = 2, .group = 256, .group_bytes = 8};
  const std::array codecs{in_8_bits, in_4_bits, in_2_bits};
  const std::array prices{0.0, 10.0, 1000.0};
  Gaps gaps;
  for (const RandomCase seed : random_cases(1, 60)) {
    const Problem problem = small_chain(seed, unlimited_bandwidth);
    if (!lists_pictures(problem)) continue;
    const auto ways = every_way(problem, true, 8, 20'000);
    if (!ways) continue;
    const Partition partition = one_device(problem.graph, 1, 1);
    const PartTask task{problem, partition, PartId{0}};
    const auto model = std::get<OffloadModel>(offload_model(task, nullptr));
    const std::vector<SavedTensor> saved = saved_tensors(problem.graph, model);
    const KeptForms kept_forms(problem.graph, saved, codecs, problem.platform.devices[0]);
    FormPlans plans(task, model, saved, kept_forms, nullptr, 100);
    plans.allow(100);
    const ChainPart part = chain_part(problem, task.part());
    for (const PackedStages& made : stage_plans(task, model, saved, kept_forms, prices, {})) {
      plans.add(chain_tape(problem, partition, PartId{0}, part, made.sequence), made.forms);
    }
    INFO("seed " << seed);
    for (const TriedWay& at : *ways) {
      Seconds best{std::numeric_limits<double>::infinity()};
      for (const TriedWay& way : *ways) {
        if (way.peak <= at.peak) best = std::min(best, way.makespan);
      }
      const PlannedTape* made = plans.pool().at(at.peak);
      if (made == nullptr) {
        ++gaps.missed;
        continue;
      }
      CHECK(made->makespan.value >= best.value * (1 - 1e-9));
      gaps.add(made->makespan / best - 1);
    }
  }
  INFO("mean " << gaps.mean() << ", worst " << gaps.worst << " of " << gaps.compared << ", missed " << gaps.missed);
  REQUIRE(gaps.compared > 1000);
  CHECK(gaps.missed <= gaps.compared / 4);
  CHECK(gaps.mean() < 0.05);
}

TEST_CASE("compress_plan is near the best of all choices of bits, values that are made again and values on the host",
          "[compression][compress_plan][eleventh-3]") {
  for (const bool chains : {false, true}) {
    Gaps gaps;
    for (const RandomCase seed : random_cases(1, 40)) {
      constexpr std::size_t most_ways = 3000;
      const BytesPerSecond to_host{chains ? 2000.0 : 400.0};
      Problem problem = chains ? small_chain(seed, to_host) : small_pictures(seed, to_host);
      if (chains && !lists_pictures(problem)) continue;
      const auto ways = every_way(problem, true, 6, most_ways);
      if (!ways) continue;
      const auto [least, most] = std::ranges::minmax(*ways, {}, &TriedWay::peak);
      for (const std::int64_t share : {5, 35, 70}) {
        const Bytes budget{least.peak.count + (most.peak - least.peak).count * share / 100};
        auto best = best_with_host(problem, budget, 0.3, most_ways);
        for (const TriedWay& way : *ways) {
          if (way.error > 0.3 || way.peak > budget) continue;
          best->found = std::min(best->found.value_or(way.makespan), way.makespan);
          best->bound = std::min(best->bound, way.makespan);
        }
        const PlanOutcome outcome = plan(problem, parse_spec("compress_plan(error=0.3)", "test"), budget);
        INFO((chains ? "chain" : "graph") << ", seed " << seed << ", " << budget.count << " B");
        const Plan* made = std::get_if<Plan>(&outcome);
        if (made == nullptr) {
          gaps.missed += best->found ? 1 : 0;
          continue;
        }
        CHECK(check(made->schedule, problem.graph, problem.platform, 1).empty());
        CHECK(made->peak <= budget);
        CHECK(made->makespan.value >= best->bound.value * (1 - 1e-9));
        CHECK(predicted_errors(made->schedule, problem.graph).whole <= 0.3);
        if (best->found) {
          gaps.add(std::max(0.0, made->makespan / *best->found - 1));
          REQUIRE(made->gap);
          CHECK(made->makespan.value <= best->found->value * (1 + *made->gap) * (1 + 1e-9));
        }
      }
    }
    INFO((chains ? "chains" : "graphs") << ": mean " << gaps.mean() << ", worst " << gaps.worst << " of "
                                        << gaps.compared << ", missed " << gaps.missed);
    REQUIRE(gaps.compared > 20);
    CHECK(gaps.missed <= gaps.compared / 20);
    CHECK(gaps.mean() < 0.05);
  }
}

TEST_CASE("where nothing gets smaller compress_plan is rotor: 7 s from 22 B on, 8 s from 20 B on",
          "[compression][compress_plan]") {
  Chain chain = worked_example();
  for (Stage& stage : chain.stages) {
    const Bytes inner = stage.saved - stage.output;
    if (inner == Bytes{0}) continue;
    stage.inner.push_back(
        {.name = "x", .bytes = inner, .shape = {inner.count}, .dtype = "fp8", .uses = {{.by = SavedBy::linear}}});
  }
  const Problem problem = problem_of(std::move(chain), gpus({}), {.inner = Inner::apart});
  const std::vector<Pass> passes = parse_spec("compress_plan(offload=no)", "test");
  CHECK(std::get<Plan>(plan(problem, passes, Bytes{22})).makespan == Seconds{7});
  CHECK(std::get<Plan>(plan(problem, passes, Bytes{21})).makespan == Seconds{8});
  CHECK(std::get<Plan>(plan(problem, passes, Bytes{20})).makespan == Seconds{8});
  CHECK(std::get<Infeasible>(plan(problem, passes, Bytes{19})).smallest == Bytes{20});
}

TEST_CASE("compress_plan keeps to budget and error, and more of either is never slower",
          "[compression][compress_plan][eleventh-4]") {
  const Problem problem = problem_of(framework_graph("resnet18:batch=8"), load_platform("h200"));
  double before = std::numeric_limits<double>::infinity();
  for (const double error : {0.005, 0.05, 0.5}) {
    const std::vector<Pass> passes = parse_spec(plan_within(error), "test");
    const Plan free = std::get<Plan>(plan(problem, passes, std::nullopt));
    CHECK(free.schedule.approximate.empty());
    const PlanOutcome none = plan(problem, passes, Bytes{1});
    const Infeasible& infeasible = std::get<Infeasible>(none);
    CHECK_FALSE(infeasible.smallest_is_proven);
    const Bytes least = *infeasible.smallest;
    CHECK(static_cast<double>(least.count) <= before);
    before = static_cast<double>(least.count);
    Seconds slower{std::numeric_limits<double>::infinity()};
    std::vector<std::optional<Bytes>> budgets;
    for (std::int64_t level = 0; level <= 8; ++level) {
      budgets.emplace_back(Bytes{least.count + (free.peak - least).count * level / 8});
    }
    const std::vector<PlanOutcome> outcomes = plan(problem, passes, budgets);
    for (std::size_t b = 0; b < budgets.size(); ++b) {
      const Plan& made = std::get<Plan>(outcomes[b]);
      CHECK(check(made.schedule, problem.graph, problem.platform, 1).empty());
      CHECK(made.peak <= *budgets[b]);
      CHECK(made.makespan <= slower);
      slower = made.makespan;
      CHECK(predicted_errors(made.schedule, problem.graph).whole <= error);
    }
  }
}

/// The makespan within the budget; unset: none fits.
std::vector<std::optional<Seconds>> makespans(const Problem& problem, const std::string& spec,
                                              std::span<const std::optional<Bytes>> budgets) {
  std::vector<std::optional<Seconds>> times;
  for (const PlanOutcome& outcome : plan(problem, parse_spec(spec, "test"), budgets)) {
    const Plan* made = std::get_if<Plan>(&outcome);
    times.push_back(made != nullptr ? std::optional(made->makespan) : std::nullopt);
    if (made == nullptr) continue;
    CHECK(check(made->schedule, problem.graph, problem.platform, 1).empty());
    const Timeline timeline = simulate_event(made->schedule, problem.platform);
    CHECK(timeline.peaks[0].bytes == made->peak);
    CHECK(timeline.makespan.value == Approx(made->makespan.value).epsilon(1e-9));
  }
  return times;
}

void never_slower(const std::vector<std::optional<Seconds>>& made, const std::vector<std::optional<Seconds>>& than) {
  for (std::size_t b = 0; b < made.size(); ++b) {
    if (!than[b]) continue;
    INFO("budget " << b);
    REQUIRE(made[b]);
    CHECK(made[b]->value <= than[b]->value * (1 + 1e-9));
  }
}

TEST_CASE("compress_plan is never slower than a part of its ways, nor with less memory or error",
          "[compression][compress_plan][eleventh-6]") {
  std::size_t faster = 0;
  for (const RandomCase seed : fewer_cases(1, 33)) {
    Random random(seed);
    const BytesPerSecond to_host{static_cast<double>(random.between(200, 4000))};
    const bool is_chain = random.chance(0.5);
    const Problem problem = is_chain ? small_chain(seed, to_host) : small_pictures(seed, to_host);
    INFO("seed " << seed << (is_chain ? ", chain" : ", graph"));
    if (is_chain && !lists_pictures(problem)) continue;
    const Bytes most = std::get<Plan>(plan(problem, parse_spec("store_all", "test"), std::nullopt)).peak;
    std::vector<std::optional<Bytes>> budgets{std::nullopt};
    for (std::int64_t share = 40; share <= 100; share += 5) budgets.emplace_back(Bytes{most.count * share / 100});
    std::vector<std::optional<Seconds>> before;
    for (const char* error : {"0.01", "0.1", "0.3", "1"}) {
      const std::string with_error = std::string("compress_plan(error=") + error;
      const auto all = makespans(problem, with_error + ")", budgets);
      for (const char* less : {", recompute=no)", ", offload=no)", ", recompute=no, offload=no)"}) {
        INFO(with_error << less);
        const auto part = makespans(problem, with_error + less, budgets);
        never_slower(all, part);
        for (std::size_t b = 0; b < budgets.size(); ++b) faster += all[b] && (!part[b] || *all[b] < *part[b]) ? 1 : 0;
      }
      if (!before.empty()) never_slower(all, before);
      before = all;
      for (std::size_t b = 2; b < budgets.size(); ++b) {
        if (all[b - 1]) CHECK(all[b].value_or(Seconds{2 * all[b - 1]->value}) <= *all[b - 1]);
      }
      for (const char* alone : {"greedy_recompute", "offload_greedy", is_chain ? "rotor" : "store_all"}) {
        INFO(with_error << " and " << alone);
        never_slower(all, makespans(problem, alone, budgets));
      }
    }
  }
  if (all_cases()) CHECK(faster > cases_of(55U));
}

TEST_CASE("compress_plan leaves moves to an offloading pass behind it, unless it is told otherwise",
          "[compression][compress_plan][eleventh-0]") {
  std::size_t differ = 0;
  for (const RandomCase seed : fewer_cases(1, 20, 5)) {
    const Problem problem = small_pictures(seed, BytesPerSecond{1000});
    INFO("seed " << seed);
    const Bytes most = std::get<Plan>(plan(problem, parse_spec("store_all", "test"), std::nullopt)).peak;
    std::vector<std::optional<Bytes>> budgets;
    for (std::int64_t share = 40; share <= 90; share += 10) budgets.emplace_back(Bytes{most.count * share / 100});
    const auto left = makespans(problem, "compress_plan(offload=no)|offload_greedy", budgets);
    CHECK(makespans(problem, "compress_plan|offload_greedy", budgets) == left);
    differ += makespans(problem, "compress_plan(offload=yes)|offload_greedy", budgets) != left ? 1 : 0;
  }
  if (all_cases()) CHECK(differ > 0);
}

TEST_CASE("compress_plan of 1,100 ops keeps to budget and error, is never slower with more, and than others alone",
          "[compression][compress_plan][eleventh-5]") {
  for (const char* platform : {"h200"}) {
    const Problem problem = problem_of(
        synthetic_model("transformer:layers=60,width=512,heads=8,sequence=256,batch=4,vocabulary=2048,view=graph"),
        load_platform(platform));
    REQUIRE(problem.graph.ops.size() > 1000);
    const Bytes most = std::get<Plan>(plan(problem, parse_spec("store_all", "test"), std::nullopt)).peak;
    std::vector<std::optional<Bytes>> budgets;
    for (const std::int64_t share : {60, 80, 100}) budgets.emplace_back(Bytes{most.count * share / 100});
    std::vector<std::optional<Seconds>> before;
    for (const char* error : {"0.02", "0.5"}) {
      const std::string spec = std::string("compress_plan(error=") + error + ")";
      INFO(spec << " on " << platform);
      const auto made = makespans(problem, spec, budgets);
      const std::vector<PlanOutcome> outcomes = plan(problem, parse_spec(spec, "test"), budgets);
      for (std::size_t b = 0; b < budgets.size(); ++b) {
        const Plan& each = std::get<Plan>(outcomes[b]);
        CHECK(each.peak <= *budgets[b]);
        CHECK(predicted_errors(each.schedule, problem.graph).whole <= std::stod(error));
        REQUIRE(each.gap);
        CHECK(*each.gap >= 0);
        if (b > 0) CHECK(*made[b] <= *made[b - 1]);
      }
      if (!before.empty()) never_slower(made, before);
      before = made;
      for (const char* alone : {"snapshot", "greedy_recompute", "offload_greedy"}) {
        INFO("beside " << alone);
        never_slower(made, makespans(problem, alone, budgets));
      }
    }
  }
}

TEST_CASE("compress_plan is never slower than one number of bits for all", "[compression][compress_plan][eleventh-6]") {
  const std::uint32_t one = static_cast<std::uint32_t>(turn().value_or(0) / 3 % 2);  // every second of its turns
  const std::vector<const char*> models{"resnet18:batch=8", "deit_ti:batch=4"};
  for (std::size_t m = 0; m < models.size(); ++m) {
    if (!every_case() && m != one) continue;
    const char* model = models[m];
    const Problem problem = problem_of(framework_graph(model), load_platform("h200"));
    for (const char* bits : {"8", "4", "2"}) {
      const Plan same =
          std::get<Plan>(plan(problem, parse_spec(std::string("quantize(bits=") + bits + ")", "test"), std::nullopt));
      const double error = predicted_errors(same.schedule, problem.graph).whole;
      const PlanOutcome made = plan(problem, parse_spec(plan_within(std::min(10.0, error + 1e-5)), "test"), same.peak);
      INFO(model << ", " << bits << " bits");
      REQUIRE(std::holds_alternative<Plan>(made));
      CHECK(std::get<Plan>(made).makespan.value <= same.makespan.value * (1 + 1e-9));
    }
  }
}

}  // namespace
}  // namespace plimsoll
