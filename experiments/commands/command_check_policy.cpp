// plimsoll check --policy

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <optional>
#include <utility>
#include <vector>

#include "experiments/commands/commands.h"
#include "experiments/export/schedule_policy.h"
#include "experiments/study/planning_watch.h"
#include "experiments/study/summary.h"
#include "sim/bound/iteration_bound.h"
#include "sim/io/input_error.h"
#include "sim/io/json/json.h"
#include "sim/io/quantity.h"

namespace plimsoll {
namespace {

/// What no schedule within the policy's own peak can beat.
struct PolicyBounds {
  Seconds repeating;  ///< that runs ops again and moves nothing
  Seconds copying;
};

PolicyBounds policy_bounds(const Problem& problem, Bytes peak) {
  const DeviceId device{0};
  const auto within = [&](BytesPerSecond out) {
    return IterationBounds(problem, device, {.out = out}).within(peak).time;
  };
  return {within(BytesPerSecond{}), within(ways_out(problem.platform, device))};
}

struct PolicyCounts {
  std::size_t repeated = 0, moved = 0;
};

PolicyCounts policy_counts(const Schedule& schedule) {
  PolicyCounts counts;
  for (const Step& step : schedule.steps) {
    if (step.micro_batch > 0) continue;
    counts.repeated += step.kind == StepKind::recompute ? 1 : 0;
    counts.moved += step.kind == StepKind::offload ? 1 : 0;
  }
  return counts;
}

std::string policy_text_of(const Schedule& schedule, Seconds makespan, Bytes peak, const PolicyCounts& counts,
                           const PolicyBounds& bounds) {
  std::string text =
      fmt::format("legal: {} steps, {}, peak {} B\n", schedule.steps.size(), format_seconds(makespan), peak.count);
  text += fmt::format("  {} ops run again, {} values wait on the host\n", counts.repeated, counts.moved);
  const auto line = [&](std::string_view what, Seconds bound) {
    text += fmt::format("  within that peak {:<36}  {:>9}   the policy is {} above\n", what, format_seconds(bound),
                        fmt::format("{:.1f} %", 100 * (makespan.value / bound.value - 1)));
  };
  if (counts.moved == 0) line("no schedule that only recomputes beats", bounds.repeating);
  line("no schedule that also copies beats", bounds.copying);
  return text;
}

Json policy_json_of(const Schedule& schedule, Seconds makespan, Bytes peak, const PolicyCounts& counts,
                    const PolicyBounds& bounds) {
  const auto above = [&](Seconds bound) { return makespan.value / bound.value - 1; };
  const bool only_repeats = counts.moved == 0;
  return {{"legal", true},
          {"fits", true},
          {"steps", schedule.steps.size()},
          {"makespan_s", makespan.value},
          {"peak_bytes", peak.count},
          {"repeated_ops", counts.repeated},
          {"moved_values", counts.moved},
          {"recomputing_lower_bound_s", only_repeats ? Json(bounds.repeating.value) : Json(nullptr)},
          {"above_recomputing_bound", only_repeats ? Json(above(bounds.repeating)) : Json(nullptr)},
          {"offloading_lower_bound_s", bounds.copying.value},
          {"above_offloading_bound", above(bounds.copying)}};
}

/// A path in which a strategy's text would end.
void refuse_policy_path(const std::string& file) {
  if (file.find_first_of("(),|=") == std::string::npos) return;
  throw InputError(
      fmt::format("--policy: the path '{}' has one of ( ) , | =, which end the options of strategies", file));
}

}  // namespace

int judge_policy(const PolicyArguments& arguments, bool json) {
  refuse_policy_path(arguments.file);
  QuestionArguments words;
  words.trace = arguments.trace;
  words.platform = arguments.platform;
  words.strategy = "policy(file=" + arguments.file + ")";
  words.memory = arguments.memory;
  words.engine = "event";
  const Question question = question_of(words, Asks::strategy);
  std::optional<PlanningWatch> watch("judging " + arguments.file);
  const auto [problem, budget, transform_s] = budgeted_problem_of(question);
  watch->aside([&of = problem] { note_times(of); });
  const Answer made = std::move(answer(question, problem, std::span(&budget, 1)).front());
  watch.reset();
  if (!made.feasible()) {
    if (json) {
      const Json least = made.smallest_feasible ? Json(made.smallest_feasible->count) : Json(nullptr);
      std::cout << json_text(Json{{"legal", true}, {"fits", false}, {"smallest_feasible_bytes", least}}, 2) << '\n';
    }
    std::cerr << infeasibility(question, made) << '\n';
    return exit_no_result;
  }
  const Bytes peak = made.timeline->peaks[problem.platform.devices.front().memory.index].bytes;
  const PolicyCounts counts = policy_counts(*made.schedule);
  const PolicyBounds bounds = policy_bounds(problem, peak);
  const Seconds makespan = made.timeline->makespan;
  if (json) {
    std::cout << json_text(policy_json_of(*made.schedule, makespan, peak, counts, bounds), 2) << '\n';
  } else {
    std::cout << policy_text_of(*made.schedule, makespan, peak, counts, bounds);
  }
  return exit_fine;
}

}  // namespace plimsoll
