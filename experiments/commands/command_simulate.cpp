// plimsoll simulate, plimsoll plan

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>
#include <memory>
#include <utility>

#include "experiments/commands/commands.h"
#include "experiments/export/addresses_file.h"
#include "experiments/export/memory_profile_file.h"
#include "experiments/export/perfetto.h"
#include "experiments/export/pytorch_plan.h"
#include "experiments/study/build_name.h"
#include "experiments/study/choice/cluster_question.h"
#include "experiments/study/choice/several_devices.h"
#include "experiments/study/host_bounds.h"
#include "experiments/study/model.h"
#include "experiments/study/planning_watch.h"
#include "experiments/study/result_fields.h"
#include "experiments/study/summary.h"
#include "experiments/study/within.h"
#include "platforms/platform_file.h"
#include "sim/io/input_error.h"
#include "sim/io/json/json.h"
#include "sim/io/quantity.h"
#include "sim/io/schedule/schedule_file.h"
#include "sim/io/text_file.h"
#include "strategies/api/front.h"
#include "strategies/compose/plan.h"
#include "strategies/list.h"
#include "strategies/portfolio/portfolio_options.h"

namespace plimsoll {
namespace {

struct SimulateArguments {
  QuestionArguments question;
  std::string schedule, schedule_out, timeline, memory_profile, made_for, addresses, timeout;
  bool json = false;
};

/// Every answer that no other one beats in both time and memory, by rising memory.
std::vector<Answer> front_of(std::vector<Answer> answers) {
  FrontOf<Answer> front;
  for (Answer& answer : answers) {
    if (!answer.feasible()) continue;
    const Bytes peak = answer.metrics->peak;
    const Seconds makespan = answer.metrics->makespan;
    front.add(peak, makespan, std::move(answer));
  }
  return std::move(front).plans();
}

/// Those for which the allocator runs out of memory, each plan once, by rising peak.
std::vector<Answer> beyond_allocator(std::span<const Answer> answers) {
  std::map<std::pair<Bytes, Seconds>, const Answer*> failed;
  for (const Answer& answer : answers) {
    if (answer.outcome != Outcome::out_of_memory) continue;
    failed.try_emplace({answer.metrics->peak, answer.metrics->makespan}, &answer);
  }
  std::vector<Answer> list;
  for (const auto& [plan, answer] : failed) list.push_back(*answer);
  return list;
}

/// Answers for every budget of the front; looking for these is part of solving.
std::vector<Answer> answers_for_front(const Question& question, const Problem& problem, double transform_s) {
  const auto started = std::chrono::steady_clock::now();
  std::vector<std::optional<Bytes>> budgets;
  for (const Bytes b : front_budgets(problem, question.strategy.passes)) budgets.emplace_back(b);
  const std::chrono::duration<double> looking = std::chrono::steady_clock::now() - started;
  if (budgets.empty()) return {};
  return answer(question, problem, budgets, transform_s + looking.count());
}

/// Of a cluster each point of the front has a question and a problem of its own.
int simulate_cluster_front(const Question& question, bool json) {
  std::optional<PlanningWatch> watch("planning with " + question.strategy.text);
  std::vector<AnsweredQuestion> made =
      front_of_cluster(question, load_model(question.trace), load_platform(question.platform));
  if (!made.empty()) watch->aside([&] { note_times(made.front().problem); });
  watch.reset();
  FrontOf<const AnsweredQuestion*> front;
  std::vector<Answer> failed;
  for (const AnsweredQuestion& each : made) {
    if (each.answer.feasible()) front.add(each.answer.metrics->peak, each.answer.metrics->makespan, &each);
    if (each.answer.outcome == Outcome::out_of_memory) failed.insert(failed.begin(), each.answer);
  }
  const std::vector<const AnsweredQuestion*> points = std::move(front).plans();
  if (json) {
    Json object{{"front", Json::array()}};
    for (const AnsweredQuestion* each : points) {
      object["front"].push_back(to_json(result_of(each->question, each->problem, each->answer)));
    }
    if (question.allocator.kind != AllocatorKind::exact) {
      object["out_of_memory"] = Json::array();
      for (const AnsweredQuestion& each : made) {
        if (each.answer.outcome != Outcome::out_of_memory) continue;
        object["out_of_memory"].push_back(to_json(result_of(each.question, each.problem, each.answer)));
      }
    }
    std::cout << json_text(object, 2) << '\n';
  } else {
    std::vector<Answer> answers;
    std::vector<std::string> plans;
    for (const AnsweredQuestion* each : points) {
      answers.push_back(each->answer);
      const auto taken = std::ranges::find_if(each->answer.candidates, &Candidate::taken);
      EXPECTS(taken != each->answer.candidates.end());
      plans.push_back(taken->strategy);
    }
    std::cout << front_table(answers, failed, plans);
  }
  return points.empty() ? exit_no_result : exit_fine;
}

int simulate_front(const Question& question, bool json) {
  if (asks_cluster(question)) return simulate_cluster_front(question, json);
  std::optional<PlanningWatch> watch("planning with " + question.strategy.text);
  const auto [problem, budget, transform_s] = budgeted_problem_of(question);
  watch->aside([&of = problem] { note_times(of); });
  std::vector<Answer> answers = answers_for_front(question, problem, transform_s);
  watch.reset();
  const std::vector<Answer> failed = beyond_allocator(answers);
  const std::vector<Answer> front = front_of(std::move(answers));
  if (json) {
    const auto listed = [&question, &of = problem](const std::vector<Answer>& list) {
      Json objects = Json::array();
      for (const Answer& each : list) objects.push_back(to_json(result_of(question, of, each)));
      return objects;
    };
    Json object{{"front", listed(front)}};
    if (question.allocator.kind != AllocatorKind::exact) object["out_of_memory"] = listed(failed);
    std::cout << json_text(object, 2) << '\n';
  } else {
    std::cout << front_table(front, failed);
  }
  return front.empty() ? exit_no_result : exit_fine;
}

void write_files(const SimulateArguments& arguments, const Problem& problem, const Answer& made,
                 const std::string& command_line) {
  const std::string by = made_by(command_line);
  if (!arguments.schedule_out.empty()) write_schedule(arguments.schedule_out, *made.schedule, by);
  if (!arguments.timeline.empty()) {
    write_text_file(arguments.timeline, perfetto_timeline(problem, *made.schedule, *made.timeline, by));
  }
  if (!arguments.memory_profile.empty()) {
    write_memory_profile(arguments.memory_profile, problem, *made.schedule, *made.timeline, by);
  }
}

/// A schedule from a file, whoever made it.
int simulate_file(const SimulateArguments& arguments, const std::string& command_line) {
  const std::optional<AnsweredQuestion> of_file = answered_file(arguments.schedule, arguments.question);
  if (!of_file) return exit_no_result;
  const auto& [question, problem, made] = *of_file;
  write_files(arguments, problem, made, command_line);
  std::cout << (arguments.json ? json_text(to_json(result_of(question, problem, made)), 2) + "\n"
                               : summary(question, problem, made));
  report_beyond(arguments.schedule, made);
  return made.feasible() ? exit_fine : exit_no_result;
}

void add_timeout_option(CLI::App& command, std::string& timeout) {
  command
      .add_option("--timeout", timeout,
                  "of 'cluster': after this wall time, such as '60 s', its search ends with the best so far and says "
                  "how\nmuch faster another plan may be; Ctrl-C does the same at once")
      ->type_name("TIME");
}

int run_simulate(const SimulateArguments& arguments, const std::string& command_line) {
  if (!arguments.schedule.empty()) return simulate_file(arguments, command_line);
  QuestionArguments words = arguments.question;
  const bool front = words.memory == "front";
  if (front) words.memory.clear();
  const Question question = question_of(words, Asks::strategy);
  if (front && question.transfers != Transfers::link) {
    throw InputError(
        fmt::format("--transfers {}: with '--memory front' transfers are the platform's (link)", words.transfers));
  }
  if (front && question.within != Within::live) {
    throw InputError(fmt::format("--within {}: '--memory front' is by live bytes", words.within));
  }
  const std::optional<Seconds> timeout = timeout_of(arguments.timeout);
  if (front && timeout) throw InputError("--timeout: with '--memory front' each search goes on until its end");
  if (front) return simulate_front(question, arguments.json);
  const auto [asked, problem, made] = answered(question, timeout);
  if (made.schedule) write_files(arguments, problem, made, command_line);
  if (arguments.json) {
    std::cout << json_text(to_json(result_of(asked, problem, made)), 2) << '\n';
  } else if (made.schedule) {
    std::cout << summary(asked, problem, made);
  }
  if (!made.feasible()) std::cerr << infeasibility(asked, made) << '\n';
  return made.feasible() ? exit_fine : exit_no_result;
}

/// What the written schedule was found to be.
std::string verdict_on_plan(const Question& question, const Answer& made) {
  std::string text =
      fmt::format("legal, {}, peak {} B", format_seconds(made.metrics->makespan), made.metrics->peak.count);
  if (question.allocator.kind != AllocatorKind::exact) {
    text += fmt::format(", {} B reserved by the {} allocator",
                        std::ranges::max(made.reserved, {}, &ReservedPeak::reserved).reserved.count,
                        question.allocator.text);
  }
  if (question.within == Within::guaranteed) {
    text += fmt::format(", {} B by any timing", std::ranges::max(made.guaranteed).count);
  }
  return text + fmt::format(" (by the {} engine)\n", written(question.engine));
}

void write_pytorch_plan(const std::string& file, const Json& plan) {
  if (file.empty()) {
    std::cout << json_text(plan, 1) << '\n';
  } else {
    write_json_file(file, plan);
  }
}

/// A portfolio then asks nobody whose plans PyTorch does not run.
void ask_for_pytorch(Question& question) {
  for (Pass& pass : question.strategy.passes) {
    if (pass.strategy == &portfolio_strategy) pass.options.change<PortfolioOptions>().for_pytorch = true;
  }
}

/// With a line on stderr; where a block does not fit, its exit code.
int write_addresses(const std::string& file, const Problem& problem, const Answer& made,
                    const std::string& command_line) {
  const Schedule& schedule = *made.schedule;
  const Addresses addresses = judged_addresses(schedule, problem.platform);
  write_addresses(file, schedule, problem.platform, addresses, made_by(command_line));
  std::cerr << fmt::format("addresses: {}\n", largest_block(addresses));
  const std::string beyond = beyond_block(schedule, problem.platform, addresses);
  if (beyond.empty()) return exit_fine;
  std::cerr << "infeasible: " << beyond << '\n';
  return exit_no_result;
}

int run_plan(const SimulateArguments& arguments, const std::string& command_line) {
  const Question given = question_of(arguments.question, Asks::strategy);
  const bool is_for_pytorch = arguments.made_for == "pytorch";
  const std::optional<Seconds> timeout = timeout_of(arguments.timeout);
  if (is_for_pytorch && timeout) throw InputError("--timeout: 'cluster' makes no plan for pytorch");
  const auto [question, problem, made] = is_for_pytorch ? answered_for_pytorch(given) : answered(given, timeout);
  if (!made.feasible()) {
    std::cerr << infeasibility(question, made) << '\n';
    return exit_no_result;
  }
  for (const HostBound& bound : host_bounds_used(*made.schedule, problem.platform)) {
    std::cerr << "note: " << sentence(bound) << '\n';
  }
  if (is_for_pytorch) {
    write_pytorch_plan(arguments.schedule_out, pytorch_plan(question, problem, made, made_by(command_line)));
  } else if (arguments.schedule_out.empty()) {
    std::cout << schedule_text(*made.schedule, made_by(command_line));
  } else {
    write_schedule(arguments.schedule_out, *made.schedule, made_by(command_line));
  }
  std::cerr << verdict_on_plan(question, made);
  return arguments.addresses.empty() ? exit_fine : write_addresses(arguments.addresses, problem, made, command_line);
}

void add_within_options(CLI::App& command, QuestionArguments& words) {
  CLI::Option* within =
      command.add_option("--within", words.within,
                         "which bytes are to fit the budget: live (bytes, as simulated), guaranteed (the "
                         "most live bytes by any timing\nthat the schedule's waits allow) or "
                         "reserved (what --allocator takes)");
  within->capture_default_str()->type_name("WHAT");
  command
      .add_flag_callback(
          "--guaranteed", [&words] { words.within = written(Within::guaranteed); }, "as --within guaranteed")
      ->excludes(within);
}

}  // namespace

std::optional<Seconds> timeout_of(const std::string& word) {
  if (word.empty()) return std::nullopt;
  const Parsed<Seconds> timeout = parse_seconds(word);
  if (!timeout.fine()) throw InputError(fmt::format("--timeout: {}", timeout.complaint));
  if (!(timeout.value.value > 0)) {
    throw InputError(fmt::format("--timeout: expected more than 0 s, found '{}'", word));
  }
  return timeout.value;
}

AnsweredQuestion answered_for_pytorch(Question question) {
  ask_for_pytorch(question);
  PlanningWatch watch("planning with " + question.strategy.text);
  auto [problem, budget, transform_s] = budgeted_problem_of(question);
  refuse_early_for_pytorch(question, problem);
  watch.aside([&of = problem] { note_times(of); });
  Answer made = answer_within(question, problem, budget, transform_s);
  return {std::move(question), std::move(problem), std::move(made)};
}

void add_simulate_command(CLI::App& app, int& exit_code, const std::string& command_line) {
  CLI::App* command =
      app.add_subcommand("simulate", "plan a schedule, run it on the simulated platform, and measure it");
  auto arguments = std::make_shared<SimulateArguments>();
  add_question_options(*command, arguments->question, Asks::strategy);
  command->get_option("--memory")
      ->description(
          "memory budget of each device: a size such as '16 GB', a share such as '50 %' of the peak of store_all,\nor "
          "'front' for all best pairs of time and memory (default: the capacity of the device)");
  add_within_options(*command, arguments->question);
  add_timeout_option(*command, arguments->timeout);
  add_schedule_option(*command, arguments->schedule,
                      "simulate the schedule of this file instead of planning one;\nit is judged first, for the trace, "
                      "platform and budget that it names");
  command
      ->add_option("--transfers", arguments->question.transfers,
                   "time of sends from device to device: link (the platform), delay (its time alone, however many\n"
                   "are on their way), blocking (sender and receiver compute nothing meanwhile), added (one after the\n"
                   "other) or none; plans are made for link")
      ->capture_default_str()
      ->type_name("MODEL");
  command->add_option("--schedule-out", arguments->schedule_out, "write the schedule to FILE (JSON)")
      ->type_name("FILE");
  command->add_option("--timeline", arguments->timeline, "write the timeline to FILE, for ui.perfetto.dev")
      ->type_name("FILE");
  command
      ->add_option("--memory-profile", arguments->memory_profile,
                   "write live bytes over time to FILE (CSV); if its name ends with .json, the tensors in each memory "
                   "at\nits peak")
      ->type_name("FILE");
  command->add_flag("--json", arguments->json, "print one JSON object instead of a summary");
  command->callback([arguments, &exit_code, &command_line] { exit_code = run_simulate(*arguments, command_line); });
}

void add_plan_command(CLI::App& app, int& exit_code, const std::string& command_line) {
  CLI::App* command =
      app.add_subcommand("plan", "plan a schedule, verify its legality, time and memory, and write it to a file");
  auto arguments = std::make_shared<SimulateArguments>();
  add_question_options(*command, arguments->question, Asks::strategy);
  add_within_options(*command, arguments->question);
  add_timeout_option(*command, arguments->timeout);
  command->add_option("-o,--schedule-out", arguments->schedule_out, "file for the schedule (default: standard output)")
      ->type_name("FILE");
  CLI::Option* addresses =
      command
          ->add_option("--addresses", arguments->addresses,
                       "also write to FILE where each buffer and workspace lies in one block a device (JSON)")
          ->type_name("FILE");
  command
      ->add_option("--for", arguments->made_for,
                   "pytorch: write a plan that plimsoll.torch runs instead of a schedule (docs/pytorch.md)")
      ->check(CLI::IsMember({"pytorch"}))
      ->excludes(addresses)
      ->type_name("WHAT");
  command->callback([arguments, &exit_code, &command_line] { exit_code = run_plan(*arguments, command_line); });
}

}  // namespace plimsoll
