// compress_plan against every choice of bits on small graphs, and against the methods that know one number of bits.

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <optional>

#include "platforms/platform_file.h"
#include "sim/core/check.h"
#include "sim/core/lowering.h"
#include "sim/core/predicted_error.h"
#include "strategies/compression/packing.h"
#include "strategies/offloading/activations/offload_moves.h"
#include "strategies/plan.h"
#include "strategies/spec.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "traces/framework_graphs.h"

namespace plimsoll {
namespace {

Problem small_pictures(std::uint64_t seed) {
  Random random(seed);
  Platform platform = gpus({});
  platform.devices[0].memory_bandwidth = BytesPerSecond{static_cast<double>(random.between(2000, 20000))};
  return problem_of(as_pictures(random_graph(seed, random.between(2, 6)), seed), std::move(platform));
}

Codec in_bits(std::uint32_t bits) {
  return {.kind = CodecKind::quantize, .bits = bits, .group = 256, .group_bytes = 8};
}

std::string plan_within(double error) {
  return "compress_plan(error=" + std::to_string(error) + ")";
}

/// What every choice comes to: all bits, signs alone for those who can do with them, or 8, 4, 2 bits.
struct Tried {
  Bytes peak;
  Seconds makespan;
  double error = 0;
};

std::optional<std::vector<Tried>> all_choices(const Problem& problem, std::size_t most_values) {
  const Partition partition = one_device(problem.graph, problem.micro_batches, 1);
  const PartTask task{problem, partition, PartId{0}, 1};
  const std::variant<OffloadModel, std::string> made = offload_model(task, nullptr);
  const auto& model = std::get<OffloadModel>(made);
  const std::vector<SavedTensor> saved = saved_tensors(problem.graph, model);
  if (saved.empty() || saved.size() > most_values) return std::nullopt;
  std::vector<Tried> tried;
  std::vector<std::uint32_t> choice(saved.size(), 0);
  for (bool more = true; more;) {
    const auto codec_of = [&](const SavedTensor& tensor, const SavedUse& use) -> std::optional<Codec> {
      const std::uint32_t way = choice[static_cast<std::size_t>(&tensor - saved.data())];
      if (way > 0 && use.by == SavedBy::relu && use.is_result) return Codec{.kind = CodecKind::mask, .bits = 1};
      return way < 2 ? std::nullopt : std::optional(in_bits(32U >> way));
    };
    Tape tape = packed_tape(problem.graph, model, saved, codec_of);
    const std::variant<Schedule, std::string> schedule = lower(problem, partition, std::span<const Tape>(&tape, 1));
    const double error = predicted_errors(std::get<Schedule>(schedule), problem.graph).whole;
    const PlannedTape planned = *simulated_tape(task, model, std::move(tape));
    tried.push_back({planned.peak, planned.makespan, error});
    more = false;
    for (std::uint32_t& digit : choice) {
      digit = (digit + 1) % 5;
      if (digit > 0) {
        more = true;
        break;
      }
    }
  }
  return tried;
}

TEST_CASE("compress_plan is near the best of all choices of bits", "[compression][compress_plan]") {
  double worse = 0;
  int compared = 0, missed = 0;
  for (const RandomCase seed : random_cases(1, 60)) {
    const Problem problem = small_pictures(seed);
    const std::optional<std::vector<Tried>> all = all_choices(problem, 4);
    if (!all) continue;
    for (const double error : {0.05, 0.5}) {
      for (const Tried& at : *all) {  // its peak is the budget
        if (at.error > error || compared >= 4000) continue;
        Seconds best{std::numeric_limits<double>::infinity()};
        for (const Tried& other : *all) {
          if (other.error <= error && other.peak <= at.peak) best = std::min(best, other.makespan);
        }
        const PlanOutcome outcome = plan(problem, parse_spec(plan_within(error), "test"), at.peak);
        INFO("seed " << seed << ", error " << error << ", " << at.peak.count << " B");
        ++compared;
        const Plan* made = std::get_if<Plan>(&outcome);
        if (made == nullptr) {
          ++missed;
          continue;
        }
        CHECK(made->makespan.value >= best.value * (1 - 1e-9));
        CHECK(predicted_errors(made->schedule, problem.graph).whole <= error);
        worse += made->makespan / best - 1;
      }
    }
  }
  REQUIRE(compared > 200);
  CHECK(missed <= compared / 20);
  CHECK(worse / (compared - missed) < 0.05);
}

TEST_CASE("compress_plan keeps to budget and error, and more of either is never slower",
          "[compression][compress_plan]") {
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
    for (std::int64_t level = 0; level <= 8; ++level) {
      const Bytes budget{least.count + (free.peak - least).count * level / 8};
      const Plan made = std::get<Plan>(plan(problem, passes, budget));
      CHECK(check(made.schedule, problem.graph, problem.platform, 1).empty());
      CHECK(made.peak <= budget);
      CHECK(made.makespan <= slower);
      slower = made.makespan;
      CHECK(predicted_errors(made.schedule, problem.graph).whole <= error);
    }
  }
}

TEST_CASE("compress_plan is never slower than one number of bits for all", "[compression][compress_plan]") {
  for (const char* model : {"resnet18:batch=8", "deit_ti:batch=4"}) {
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
