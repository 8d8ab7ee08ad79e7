#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <memory>

#include "experiments/commands/commands.h"
#include "experiments/study/planning_watch.h"
#include "experiments/tables/split_problem.h"
#include "sim/core/tolerance.h"
#include "sim/io/input_error.h"
#include "sim/io/json/json.h"
#include "sim/io/quantity.h"
#include "strategies/hybrid/split_improvement.h"

namespace plimsoll {
namespace {

struct SplitsArguments {
  std::string problem, memory;
  std::uint64_t rounds = SplitEffort{}.rounds, seed = SplitEffort{}.seed;
  bool json = false;
};

/// The most that is held at a moment.
Bytes peak_of(const SplitTable& table, const SplitChoices& choices) {
  const std::vector<Bytes> kept = table.kept(choices);
  return kept.empty() ? Bytes{0} : *std::ranges::max_element(kept);
}

bool is_cheapest(const ImprovedSplit& made) {
  return made.fits && made.cost <= made.bound * (1 + model_tolerance);
}

Json splits_json(const SplitsArguments& arguments, const SplitProblem& problem, const ImprovedSplit& made) {
  Json json = {{"problem", arguments.problem}};
  json["name"] = problem.name.empty() ? Json(nullptr) : Json(problem.name);
  json["memory_limit_bytes"] = problem.table.limit ? Json(problem.table.limit->count) : Json(nullptr);
  json["rounds"] = arguments.rounds;
  json["seed"] = arguments.seed;
  json["feasible"] = made.fits;
  json["cost"] = made.fits ? Json(made.cost) : Json(nullptr);
  json["lower_bound"] = made.is_none ? Json(nullptr) : Json(made.bound);
  json["peak_bytes"] = made.is_none ? Json(nullptr) : Json(peak_of(problem.table, made.choices).count);
  json["is_proven"] = made.is_none || is_cheapest(made);
  json["choices"] = made.fits ? Json(made.choices) : Json(nullptr);
  return json;
}

std::string splits_text(const SplitsArguments& arguments, const SplitTable& table, const ImprovedSplit& made) {
  std::size_t choices = 0;
  for (const auto& node : table.nodes) choices += node->size();
  return fmt::format("{}: {} nodes with {} choices, {} edges\n  cost  {:.17g}{}\n  peak  {}{}\n", arguments.problem,
                     table.nodes.size(), choices, table.edges.size(), made.cost,
                     is_cheapest(made) ? ", proven the least" : fmt::format(", no less than {:.10g}", made.bound),
                     format_bytes(peak_of(table, made.choices)),
                     table.limit ? ", limit " + format_bytes(*table.limit) : "");
}

int run_splits(const SplitsArguments& arguments) {
  SplitProblem problem = read_split_problem(arguments.problem);
  if (!arguments.memory.empty()) {
    const Parsed<std::optional<Bytes>> memory = parse_capacity(arguments.memory);
    if (!memory.fine()) throw InputError(fmt::format("--memory: {}", memory.complaint));
    problem.table.limit = memory.value;
  }
  const PlanningWatch watch("choosing splits");
  const ImprovedSplit made = improved(problem.table, SplitChoices(problem.table.nodes.size(), 0),
                                      {.rounds = arguments.rounds, .seed = arguments.seed});
  if (arguments.json) {
    std::cout << json_text(splits_json(arguments, problem, made), 2) << "\n";
  } else if (made.fits) {
    std::cout << splits_text(arguments, problem.table, made);
  }
  if (made.fits) return exit_fine;
  if (made.is_none) {
    std::cerr << fmt::format("{}: no choices can be together and keep the limit\n", arguments.problem);
  } else {
    std::cerr << fmt::format("{}: none found that can be together and keep the limit; the least found keep {} B\n",
                             arguments.problem, peak_of(problem.table, made.choices).count);
  }
  return exit_no_result;
}

}  // namespace

void add_splits_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("splits", "choose splits of operators from a table of their costs and memory");
  auto arguments = std::make_shared<SplitsArguments>();
  command
      ->add_option("problem", arguments->problem,
                   "JSON, .json or .json.gz, as of the ASPLOS / EuroSys 2025 contest on intra-operator parallelism")
      ->required()
      ->type_name("FILE");
  command
      ->add_option("-m,--memory", arguments->memory,
                   "limit on the memory held at any moment, such as '16 GB', or unlimited (default: the file's)")
      ->type_name("SIZE");
  command->add_option("--rounds", arguments->rounds, "how often a node takes another choice")
      ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{1'000'000'000}))
      ->capture_default_str()
      ->type_name("N");
  command->add_option("--seed", arguments->seed, "of the search")->capture_default_str()->type_name("N");
  command->add_flag("--json", arguments->json, "print one JSON object");
  command->footer(
      "The exit code is 1 if no choices are found that keep the limit.\n"
      "  plimsoll splits iopddl_G.json.gz --rounds 10000");
  command->callback([arguments, &exit_code] { exit_code = run_splits(*arguments); });
}

}  // namespace plimsoll
