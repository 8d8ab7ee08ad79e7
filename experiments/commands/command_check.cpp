// plimsoll check, plimsoll bounds

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <memory>
#include <utility>

#include "experiments/commands/commands.h"
#include "experiments/export/addresses_file.h"
#include "experiments/library/verdict.h"
#include "experiments/study/bounds_within.h"
#include "experiments/study/planning_watch.h"
#include "platforms/platform_file.h"
#include "sim/io/json/json.h"
#include "sim/io/quantity.h"
#include "sim/io/schedule/schedule_file.h"
#include "sim/judge/check.h"

namespace plimsoll {
namespace {

struct CheckArguments {
  std::string schedule, policy, trace, platform, memory, addresses;
  bool json = false;
};

struct BoundsArguments {
  QuestionArguments question;
  std::string schedule;
  bool json = false, prices = false;
};

Json violation_json(const Violation& violation) {
  Json object{{"rule", name_of(violation.rule)}};
  object["step"] = violation.step ? Json(violation.step->index) : Json(nullptr);
  object["buffer"] = violation.buffer ? Json(violation.buffer->index) : Json(nullptr);
  object["what"] = violation.what;
  return object;
}

Json json_of(const std::optional<Verdict>& verdict, const Schedule& schedule, const Platform& platform,
             const std::vector<Violation>& violations) {
  Json object{{"legal", violations.empty()}, {"steps", schedule.steps.size()}, {"violations", Json::array()}};
  for (const Violation& violation : violations) object["violations"].push_back(violation_json(violation));
  object["makespan_s"] = verdict ? Json(verdict->timeline.makespan.value) : Json(nullptr);
  object["peak_bytes"] = verdict ? Json(verdict->peak.count) : Json(nullptr);
  object["fits"] = verdict ? Json(verdict->over.empty()) : Json(nullptr);
  object["measured_steps"] = verdict ? Json(verdict->measured) : Json(nullptr);
  object["over"] = Json::array();
  if (!verdict) return object;
  for (const Overfull& memory : verdict->over) {
    object["over"].push_back({{"memory", platform[memory.memory].name},
                              {"peak_bytes", memory.peak.count},
                              {"limit_bytes", memory.limit.count}});
  }
  return object;
}

int run_check(const CheckArguments& arguments) {
  if (!arguments.policy.empty()) {
    if (arguments.trace.empty() || arguments.platform.empty()) {
      throw InputError("--policy: needs --trace and --platform, which a policy does not name");
    }
    return judge_policy({arguments.policy, arguments.trace, arguments.platform, arguments.memory}, arguments.json);
  }
  if (arguments.schedule.empty()) throw InputError("check: expected --schedule FILE or --policy FILE");
  const Schedule schedule = read_schedule(arguments.schedule);
  const Problem problem = problem_of_file(
      schedule, arguments.schedule, question_of(schedule, arguments.schedule, arguments.trace, arguments.platform));
  const std::vector<Violation> violations = check(schedule, problem.graph, problem.platform);
  std::optional<Verdict> verdict;
  std::optional<Addresses> addresses;
  if (violations.empty()) {
    verdict = verdict_on(schedule, problem.platform);
    if (!arguments.addresses.empty()) addresses = read_addresses(arguments.addresses, schedule, problem.platform);
  }
  const std::string beyond = addresses ? beyond_block(schedule, problem.platform, *addresses) : std::string();
  if (arguments.json) {
    Json object = json_of(verdict, schedule, problem.platform, violations);
    if (addresses) object["blocks"] = blocks_json(problem.platform, *addresses);
    std::cout << json_text(object, 2) << '\n';
  } else if (verdict) {
    std::cout << text_of(*verdict, schedule, problem.platform);
    if (addresses) std::cout << fmt::format("addresses: {}; they hold by any timing\n", largest_block(*addresses));
  }
  report_violations(arguments.schedule, violations);
  if (!beyond.empty()) std::cerr << "infeasible: " << beyond << '\n';
  return verdict && verdict->over.empty() && beyond.empty() ? exit_fine : exit_no_result;
}

/// What a bound holds for: schedules that keep at least this on the devices.
struct BoundedSchedules {
  Stays stays;
  std::string_view words;
};
constexpr std::array bounded_schedules{BoundedSchedules{Stays::all, "parameters, gradients, optimizer states"},
                                       BoundedSchedules{Stays::parameters, "parameters"},
                                       BoundedSchedules{Stays::nothing, "nothing"}};

std::string largest_working_set(const Problem& problem, const LowerBounds& bounds) {
  return bounds.memory_by ? problem.graph[*bounds.memory_by].name : "(resident)";
}

Json bounds_json(const Problem& problem, std::size_t devices, Stays stays) {
  const LowerBounds one = lower_bounds(problem, 1, stays), all = lower_bounds(problem, devices, stays);
  return {{"stays", written(stays)},
          {"lower_bound_s", one.time().value},
          {"work_s", one.work.value},
          {"critical_path_s", one.critical_path.value},
          {"lower_bound_bytes", one.memory.count},
          {"largest_working_set", largest_working_set(problem, one)},
          {"devices", devices},
          {"all_devices_lower_bound_s", all.time().value},
          {"all_devices_lower_bound_bytes", all.memory.count}};
}

/// A row for each kind of schedules.
std::string bounds_table(const Problem& problem, std::size_t devices, std::string_view memory) {
  std::string text = fmt::format("  {:<40}  {:>13}  {:>15}\n", "what stays there", "time at least", memory);
  for (const BoundedSchedules& kind : bounded_schedules) {
    const LowerBounds bounds = lower_bounds(problem, devices, kind.stays);
    text +=
        fmt::format("  {:<40}  {:>13}  {:>15}", kind.words, format_seconds(bounds.time()), format_bytes(bounds.memory));
    if (devices == 1) text += fmt::format("   the working set of '{}'", largest_working_set(problem, bounds));
    text += '\n';
  }
  return text;
}

/// Of a schedule file the question that it answers.
Question bounded_question(const BoundsArguments& arguments, const std::optional<Schedule>& schedule) {
  const QuestionArguments& words = arguments.question;
  if (!schedule) return question_of(words, Asks::problem);
  return question_of(*schedule, arguments.schedule, words.trace, words.platform);
}

/// The problem, and of the budget that is stated, in bytes.
std::pair<Problem, std::optional<Bytes>> bounded_problem(const Question& question, const std::string& file,
                                                         const std::optional<Schedule>& schedule) {
  if (schedule) return {problem_of_file(*schedule, file, question), schedule->budget};
  const PlanningWatch watch("deciding with " + question.strategy.text);
  BudgetedProblem made = budgeted_problem_of(question);
  return {std::move(made.problem), made.budget};
}

int run_bounds(const BoundsArguments& arguments) {
  std::optional<Schedule> schedule;
  if (!arguments.schedule.empty()) schedule = read_schedule(arguments.schedule);
  const Question question = bounded_question(arguments, schedule);
  const auto [problem, stated] = bounded_problem(question, arguments.schedule, schedule);
  note_times(problem);
  const std::size_t devices = problem.platform.devices.size();
  const std::optional<Bytes> budget = stated ? stated : capacity_of(problem.platform);
  const Prices prices = arguments.prices ? Prices::shown : Prices::no;
  if (arguments.prices && !budget) throw InputError("--prices: needs --memory, since the device's memory is unlimited");
  if (const LowerBounds all = lower_bounds(problem, 1, Stays::nothing); stated && *stated < all.memory) {
    std::cerr << fmt::format("no schedule on one device fits {}: the working set of '{}' needs {}\n",
                             format_bytes(*stated), largest_working_set(problem, all), format_bytes(all.memory));
    return exit_no_result;
  }
  if (arguments.json) {
    Json object{{"trace", question.trace}, {"platform", question.platform}, {"times_rescaled", problem.times_rescaled}};
    object.update(bounds_json(problem, devices, Stays::all));
    Json& others = object["where_less_stays"] = Json::array();
    for (const Stays stays : {Stays::parameters, Stays::nothing})
      others.push_back(bounds_json(problem, devices, stays));
    object["within_budget"] = budget ? within_json(problem, *budget, prices) : Json(nullptr);
    std::cout << json_text(object, 2) << '\n';
    return exit_fine;
  }
  const LowerBounds one = lower_bounds(problem, 1);
  std::cout << fmt::format("{} on one device of {}{}, of schedules that pack nothing\n", problem.graph.name,
                           problem.platform.name, problem.times_rescaled ? " (times re-scaled)" : "");
  std::cout << bounds_table(problem, 1, "memory at least");
  std::cout << fmt::format("  work {}, critical path {}\n", format_seconds(one.work),
                           format_seconds(one.critical_path));
  if (budget) std::cout << within_table(problem, *budget, prices);
  if (devices > 1) {
    std::cout << fmt::format("on all {} devices\n", devices) << bounds_table(problem, devices, "fullest at least");
  }
  return exit_fine;
}

}  // namespace

void add_check_command(CLI::App& app, int& exit_code, const std::string&) {
  CLI::App* command = app.add_subcommand(
      "check", "judge a schedule file: data flow, residency, completeness, order and costs; or a policy of ops");
  auto arguments = std::make_shared<CheckArguments>();
  CLI::Option* schedule = command->add_option("--schedule", arguments->schedule, "schedule file");
  schedule->type_name("FILE");
  CLI::Option* policy = command->add_option(
      "--policy", arguments->policy, "policy file of another program: ops by name, and what becomes of what they make");
  policy->type_name("FILE")->excludes(schedule);
  command
      ->add_option("--addresses", arguments->addresses,
                   "also judge the addresses that 'plan --addresses' wrote to FILE for the schedule")
      ->needs(schedule)
      ->type_name("FILE");
  command->add_option("-t,--trace", arguments->trace, "trace of the schedule (default: the one that the file names)")
      ->type_name("TRACE");
  command
      ->add_option("-p,--platform", arguments->platform,
                   "platform of the schedule (default: the one that the file names)")
      ->type_name("PLATFORM");
  command->add_option("-m,--memory", arguments->memory, "budget of a policy (default: the capacity of the device)")
      ->type_name("SIZE")
      ->excludes(schedule);
  command->add_flag("--json", arguments->json, "print one JSON object");
  command->callback([arguments, &exit_code] { exit_code = run_check(*arguments); });
}

void add_bounds_command(CLI::App& app, int& exit_code, const std::string&) {
  CLI::App* command = app.add_subcommand("bounds",
                                         "compute lower bounds on time and memory, for schedules that pack nothing, "
                                         "depending on which values stay on the devices");
  auto arguments = std::make_shared<BoundsArguments>();
  add_question_options(*command, arguments->question, Asks::problem);
  command
      ->add_option("-m,--memory", arguments->question.memory,
                   "memory budget of the device: a size such as '16 GB', or a share such as '50 %' of the peak of "
                   "store_all\n(default: the capacity of the device)")
      ->type_name("SIZE");
  command
      ->add_option("-s,--strategy", arguments->question.strategy,
                   "strategy whose transforms (sparse_update) change the model before the bounds are computed; its "
                   "other\npasses have no effect")
      ->type_name("SPEC");
  add_schedule_option(*command, arguments->schedule,
                      "bounds of the problem that the schedule of this file was made for; nothing is searched again");
  command->add_flag("--prices", arguments->prices,
                    "also what more memory, faster links and a faster host would save at this budget, and the budgets "
                    "at\nwhich other ops are the best to run again");
  command->add_flag("--json", arguments->json, "print one JSON object");
  command->callback([arguments, &exit_code] { exit_code = run_bounds(*arguments); });
}

}  // namespace plimsoll
