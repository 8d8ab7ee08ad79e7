// plimsoll verify

#include <fmt/format.h>

#include <filesystem>
#include <iostream>
#include <memory>
#include <utility>

#include "experiments/commands/commands.h"
#include "experiments/library/op_list.h"
#include "experiments/library/placed_plan.h"
#include "experiments/library/plan_library.h"
#include "experiments/library/verdict.h"
#include "sim/io/json/json.h"
#include "sim/io/quantity.h"
#include "sim/io/schedule/schedule_file.h"
#include "sim/io/text_file.h"
#include "sim/judge/check.h"

namespace plimsoll {
namespace {

struct VerifyArguments {
  std::string plan, trace, platform, memory, library;
  bool json = false;
};

/// A broken rule and, of an op list, its line.
struct PlacedViolation {
  std::uint32_t line = 0;
  std::string rule, what;
};

/// A plan from a file, and what is wrong with it.
struct ReadPlan {
  Question question;
  Problem problem;
  std::optional<Schedule> schedule;
  std::vector<PlacedViolation> violations;
};

std::optional<Bytes> stated_budget(const VerifyArguments& arguments) {
  if (arguments.memory.empty()) return std::nullopt;
  const Parsed<Bytes> budget = parse_bytes(arguments.memory);
  if (!budget.fine()) throw InputError(fmt::format("--memory: {}", budget.complaint));
  return budget.value;
}

/// The line of the step that breaks a rule.
std::uint32_t line_of(const Violation& violation, std::span<const std::uint32_t> lines) {
  return violation.step && violation.step->index < lines.size() ? lines[violation.step->index] : 0;
}

void judge(ReadPlan& plan, std::span<const std::uint32_t> lines) {
  for (const Violation& violation : check(*plan.schedule, plan.problem.graph, plan.problem.platform)) {
    plan.violations.push_back({line_of(violation, lines), name_of(violation.rule), violation.what});
  }
}

ReadPlan read_listed(const VerifyArguments& arguments, const std::string& text) {
  const OpListHead head = read_op_list_head(text, arguments.plan);
  QuestionArguments words;
  words.trace = arguments.trace.empty() ? head.trace : arguments.trace;
  words.platform = arguments.platform.empty() ? head.platform : arguments.platform;
  for (const auto& [name, word] : {std::pair("trace", &words.trace), std::pair("platform", &words.platform)}) {
    if (word->empty()) {
      throw InputError(fmt::format("{}: does not say which {} it is for; give --{}", arguments.plan, name, name));
    }
  }
  const Question question = question_of(words, Asks::problem);
  ReadPlan plan{.question = question, .problem = problem_of(question), .schedule = {}, .violations = {}};
  std::variant<ListedPlan, IllegalLine> read = read_op_list(plan.problem, text, arguments.plan);
  if (const IllegalLine* wrong = std::get_if<IllegalLine>(&read)) {
    plan.violations.push_back({wrong->line, "", wrong->what});
    return plan;
  }
  auto& listed = std::get<ListedPlan>(read);
  plan.schedule = std::move(listed.schedule);
  plan.schedule->budget = head.budget;
  judge(plan, listed.lines);
  return plan;
}

ReadPlan read_scheduled(const VerifyArguments& arguments, std::string text) {
  Schedule schedule = parse_schedule(std::move(text), arguments.plan);
  const Question question = question_of(schedule, arguments.plan, arguments.trace, arguments.platform);
  ReadPlan plan{.question = question,
                .problem = problem_of_file(schedule, arguments.plan, question),
                .schedule = std::move(schedule),
                .violations = {}};
  judge(plan, {});
  return plan;
}

std::string percent_text(double ratio) {
  return fmt::format("{:.2f} %", 100 * ratio);
}

std::string standing_text(const PlacedPlan& placed, Seconds time) {
  if (!placed.outside.empty()) return fmt::format("  no plan of the library: {}\n", placed.outside);
  std::string text;
  const std::string within = placed.budget ? fmt::format(" within {} B", placed.budget->count) : "";
  if (const std::optional<double> gap = placed.over_bound(time)) {
    text += fmt::format("  {} above the bound{}, {}\n", percent_text(*gap), within, format_seconds(*placed.bound));
  }
  if (placed.instance == nullptr) return text + "  no instance of the library has this trace on this platform\n";
  text += fmt::format("  instance {} ({})", placed.instance->name, written(placed.instance->plans));
  if (placed.row == nullptr) return text + ": above all of its budgets\n";
  text += fmt::format(", budget {} B: ", placed.row->budget.count);
  const std::optional<double> over = placed.over_best(time);
  if (!over) return text + "new best, the first plan\n";
  const KnownPlan& best = *placed.row->best;
  const std::string by = fmt::format("{} by {}, {}", format_seconds(best.time), best.found.by, best.found.date);
  if (*over < 0) return text + fmt::format("new best, {} faster than {}\n", percent_text(-*over), by);
  if (*over > 0) return text + fmt::format("{} slower than the best known, {}\n", percent_text(*over), by);
  return text + fmt::format("as fast as the best known, {}\n", by);
}

Json verify_json(const ReadPlan& plan, const std::optional<Verdict>& verdict, const PlacedPlan& placed) {
  Json object{{"legal", plan.violations.empty()}, {"violations", Json::array()}};
  for (const PlacedViolation& violation : plan.violations) {
    object["violations"].push_back({{"line", violation.line == 0 ? Json(nullptr) : Json(violation.line)},
                                    {"rule", violation.rule.empty() ? Json(nullptr) : Json(violation.rule)},
                                    {"what", violation.what}});
  }
  const auto known = [&](auto&& value) { return verdict ? Json(value) : Json(nullptr); };
  object["steps"] = known(plan.schedule ? plan.schedule->steps.size() : 0);
  object["makespan_s"] = verdict ? Json(verdict->timeline.makespan.value) : Json(nullptr);
  object["peak_bytes"] = verdict ? Json(verdict->peak.count) : Json(nullptr);
  object["fits"] = verdict ? Json(verdict->over.empty()) : Json(nullptr);
  object["class"] = known(written(placed.plans));
  object["outside"] = placed.outside.empty() ? Json(nullptr) : Json(placed.outside);
  object["budget_bytes"] = verdict && placed.budget ? Json(placed.budget->count) : Json(nullptr);
  object["cut_bound_s"] = placed.cuts ? Json(placed.cuts->value) : Json(nullptr);
  object["lower_bound_s"] = placed.bound ? Json(placed.bound->value) : Json(nullptr);
  const std::optional<double> gap = verdict ? placed.over_bound(verdict->timeline.makespan) : std::nullopt;
  const std::optional<double> over = verdict ? placed.over_best(verdict->timeline.makespan) : std::nullopt;
  object["gap"] = gap ? Json(*gap) : Json(nullptr);
  object["instance"] = placed.instance != nullptr ? Json(placed.instance->name) : Json(nullptr);
  object["instance_budget_bytes"] = placed.row != nullptr ? Json(placed.row->budget.count) : Json(nullptr);
  const bool has_best = placed.row != nullptr && placed.row->best;
  object["best_known_s"] = has_best ? Json(placed.row->best->time.value) : Json(nullptr);
  object["best_known_by"] = has_best ? Json(placed.row->best->found.by) : Json(nullptr);
  object["over_best"] = over ? Json(*over) : Json(nullptr);
  const bool is_new_best = placed.row != nullptr && verdict && verdict->over.empty() && (!over || *over < 0);
  object["new_best"] = is_new_best;
  return object;
}

int run_verify(const VerifyArguments& arguments) {
  std::string text = read_text_file(arguments.plan);
  ReadPlan plan = is_op_list(text) ? read_listed(arguments, text) : read_scheduled(arguments, std::move(text));
  if (const std::optional<Bytes> stated = stated_budget(arguments); stated && plan.schedule) {
    plan.schedule->budget = stated;
  }
  const std::vector<LibraryInstance> library =
      read_plan_library(arguments.library.empty() ? shipped_plan_library() : std::filesystem::path(arguments.library));
  std::optional<Verdict> verdict;
  PlacedPlan standing;
  if (plan.violations.empty()) {
    verdict = verdict_on(*plan.schedule, plan.problem.platform);
    standing = placed(plan.question, plan.problem, *plan.schedule, *verdict, library);
  }
  if (arguments.json) {
    std::cout << json_text(verify_json(plan, verdict, standing), 2) << '\n';
  } else if (verdict) {
    std::cout << text_of(*verdict, *plan.schedule, plan.problem.platform);
    if (verdict->over.empty()) std::cout << standing_text(standing, verdict->timeline.makespan);
  }
  for (const PlacedViolation& violation : plan.violations) {
    const std::string at = violation.line == 0 ? "" : fmt::format(":{}", violation.line);
    const std::string rule = violation.rule.empty() ? "" : violation.rule + ": ";
    std::cerr << fmt::format("{}{}: {}{}\n", arguments.plan, at, rule, violation.what);
  }
  return verdict && verdict->over.empty() ? exit_fine : exit_no_result;
}

}  // namespace

void add_verify_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "verify",
      "score a plan against the library of memory planning: is it legal, its time and memory, how far it is from\nthe "
      "bound and from the best known plan");
  auto arguments = std::make_shared<VerifyArguments>();
  command->add_option("plan", arguments->plan, "a schedule file, or a list of ops (experiments/memplanlib/README.md)")
      ->required()
      ->type_name("PLAN");
  command->add_option("-t,--trace", arguments->trace, "trace of the plan (default: the one that the file names)")
      ->type_name("TRACE");
  command
      ->add_option("-p,--platform", arguments->platform, "platform of the plan (default: the one that the file names)")
      ->type_name("PLATFORM");
  command
      ->add_option("-m,--memory", arguments->memory,
                   "memory budget of the device, such as '16 GB' (default: the one that the file names, else the "
                   "device's\ncapacity)")
      ->type_name("SIZE");
  command->add_option("--library", arguments->library, "index of another library than the one that is shipped")
      ->type_name("FILE");
  command->add_flag("--json", arguments->json, "print one JSON object");
  command->callback([arguments, &exit_code] { exit_code = run_verify(*arguments); });
}

}  // namespace plimsoll
