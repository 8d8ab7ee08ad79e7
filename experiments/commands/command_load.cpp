// plimsoll load

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <numeric>

#include "experiments/commands/commands.h"
#include "experiments/load/largest.h"
#include "experiments/load/load_line.h"
#include "experiments/load/load_record.h"
#include "experiments/load/load_table.h"
#include "experiments/report/drawing.h"
#include "experiments/study/build_name.h"
#include "experiments/study/model.h"
#include "experiments/study/share.h"
#include "experiments/study/understood.h"
#include "platforms/platform_file.h"
#include "sim/io/input_error.h"
#include "sim/io/json/json.h"
#include "sim/io/quantity.h"

namespace plimsoll {
namespace {

struct LoadArguments {
  QuestionArguments question;
  std::vector<std::string> strategies;
  std::string vary, from, to, step, within, points = "12", jobs = "1", folder;
  bool json = false;
};

constexpr std::int64_t multiple_of_sequence = 128, multiple_of_width = 128, most_layers = 1024;

/// The number of the model that is to be varied; where it has none of that name, which others it has.
const ReferenceNumber& varied_number(const std::string& trace, const std::vector<ReferenceNumber>& numbers,
                                     Varied varied) {
  if (const ReferenceNumber* number = number_named(numbers, written(varied))) return *number;
  std::vector<std::string_view> others;
  for (const std::string_view name : names_of<Varied>()) {
    if (number_named(numbers, name) != nullptr) others.push_back(name);
  }
  if (!is_made_by_rule(trace)) {
    throw InputError(
        fmt::format("{}: --vary: a trace file has no '{}'; a model by formula has, such as "
                    "transformer:layers=24 or gpt2",
                    trace, written(varied)));
  }
  throw InputError(
      fmt::format("{}: --vary: the model has no '{}'{}", trace, written(varied),
                  others.empty() ? ", nor anything else that can be varied" : "; it can vary " + alternatives(others)));
}

std::int64_t step_of(const LoadArguments& arguments, Varied varied, const std::vector<ReferenceNumber>& numbers,
                     const ReferenceNumber& number) {
  if (!arguments.step.empty()) return understood_whole("--step", arguments.step, 1, number.range.most);
  if (varied == Varied::sequence) return multiple_of_sequence;
  if (varied != Varied::width) return 1;
  const ReferenceNumber* heads = number_named(numbers, "heads");
  return std::lcm(multiple_of_width, heads == nullptr ? 1 : std::max<std::int64_t>(1, heads->value));
}

LoadRange load_range(const LoadArguments& arguments, Varied varied, const std::vector<ReferenceNumber>& numbers,
                     const ReferenceNumber& number) {
  const std::int64_t least = number.range.least, most = number.range.most;
  const std::int64_t step = step_of(arguments, varied, numbers, number);
  const std::int64_t given_from =
      arguments.from.empty() ? least : understood_whole("--from", arguments.from, least, most);
  const std::int64_t usual_most = varied == Varied::layers ? std::max(given_from, std::min(most, most_layers)) : most;
  const std::int64_t given_to = arguments.to.empty() ? usual_most : understood_whole("--to", arguments.to, least, most);
  const std::int64_t from = (given_from + step - 1) / step * step, to = given_to / step * step;
  if (from > to) {
    throw InputError(fmt::format("--from, --to: no multiple of {} lies from {} to {}", step, given_from, given_to));
  }
  return {static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(to), static_cast<std::uint32_t>(step)};
}

Bytes load_memory(const QuestionArguments& words, const Platform& platform) {
  if (is_share(words.memory)) {
    throw InputError(fmt::format(
        "--memory: expected a size such as '16 GB', found '{}': the peak of store_all is another for each value",
        words.memory));
  }
  if (!words.memory.empty()) {
    const Parsed<Bytes> memory = parse_bytes(words.memory);
    if (!memory.fine()) throw InputError("--memory: " + memory.complaint);
    return memory.value;
  }
  if (const std::optional<Bytes> capacity = capacity_of(platform)) return *capacity;
  throw InputError(fmt::format("--memory: needed, since the memory of '{}' is {}", words.platform,
                               platform.devices.size() > 1 ? "unlimited or differs by device" : "unlimited"));
}

std::optional<Seconds> time_limit(const std::string& within) {
  if (within.empty()) return std::nullopt;
  const Parsed<Seconds> limit = parse_seconds(within);
  if (!limit.fine()) throw InputError("--within: " + limit.complaint);
  return limit.value;
}

std::vector<Pipeline> asked_strategies(const LoadArguments& arguments, const LoadQuestion& question,
                                       const Platform& platform) {
  std::vector<std::string> words = arguments.strategies;
  if (words.empty()) words = default_load_strategies(load_model(question.model_at(question.range.from)), platform);
  std::vector<Pipeline> pipelines;
  for (const std::string& word : words) {
    if (std::ranges::find(pipelines, word, &Pipeline::text) != pipelines.end()) {
      throw InputError(fmt::format("--strategy: '{}' is given twice", word));
    }
    QuestionArguments asked;
    asked.strategy = word;
    pipelines.push_back(question_of(asked, Asks::strategy).strategy);
  }
  return pipelines;
}

LoadQuestion load_question(const LoadArguments& arguments, const Platform& platform) {
  LoadQuestion question;
  question.varied = understood<Varied>("--vary", arguments.vary);
  const std::vector<ReferenceNumber> numbers = model_numbers(arguments.question.trace);
  if (numbers.empty()) load_model(arguments.question.trace);  // a name that nothing has is refused as such
  question.number = varied_number(arguments.question.trace, numbers, question.varied);
  question.range = load_range(arguments, question.varied, numbers, question.number);
  QuestionArguments words = arguments.question;
  words.memory.clear();
  if (words.micro_batches.empty()) words.micro_batches = std::to_string(platform.devices.size());
  question.base = question_of(words, Asks::problem);
  question.memory = load_memory(arguments.question, platform);
  question.base.memory = question.memory;
  question.within = time_limit(arguments.within);
  question.points = static_cast<std::uint32_t>(understood_whole("--points", arguments.points, 0, 10'000));
  if (const ReferenceNumber* batch = number_named(numbers, "batch")) question.batch = batch->value;
  if (const ReferenceNumber* sequence = number_named(numbers, "sequence")) question.sequence = sequence->value;
  question.strategies = asked_strategies(arguments, question, platform);
  return question;
}

/// Where a strategy refuses every value that was tried, and all strategies do.
void refuse_if_all_refuse(const LoadAnswer& answer) {
  const auto refused = [](const LoadLine& line) {
    return std::ranges::all_of(line.points, [](const LoadPoint& p) { return p.outcome == Outcome::refused; });
  };
  if (!std::ranges::all_of(answer.lines, refused)) return;
  throw InputError(answer.lines.front().points.front().reason);
}

/// Of any value that fits: it has a model.
void note_load_times(const LoadQuestion& question, const Platform& platform, LoadAnswer& answer) {
  for (const LoadLine& line : answer.lines) {
    if (line.largest() == nullptr) continue;
    const Problem problem = plain_problem(question, platform, line.largest()->value);
    answer.times_rescaled = problem.times_rescaled;
    return note_times(problem);
  }
}

void write_load(const std::string& folder, const Json& json) {
  std::filesystem::create_directories(folder);
  const std::string file = (std::filesystem::path(folder) / "load.json").string();
  write_json_file(file, json);
  draw_by_python("experiments/plot_load.py", {file, folder});
}

int run_load(const LoadArguments& arguments, const std::string& command_line) {
  const Platform platform = load_platform(arguments.question.platform);
  const LoadQuestion question = load_question(arguments, platform);
  std::optional<LoadAnswer> answer = load_lines(question, platform, jobs_of(arguments.jobs));
  if (!answer) return exit_interrupted;
  if (answer->exit_code != 0) {
    std::cerr << answer->trouble << '\n';
    return answer->exit_code;
  }
  refuse_if_all_refuse(*answer);
  note_load_times(question, platform, *answer);
  const Json json = load_json(question, *answer, made_by(command_line));
  if (!arguments.folder.empty()) write_load(arguments.folder, json);
  std::cout << (arguments.json ? json_text(json, 2) + "\n" : load_table(question, *answer));
  const auto fits = [](const LoadLine& line) { return line.largest() != nullptr; };
  if (std::ranges::none_of(answer->lines, fits)) {
    std::cerr << nothing_fits(question, *answer) << '\n';
    return exit_no_result;
  }
  const auto is_within = [&](const LoadLine& line) { return line.largest_within(*question.within) != nullptr; };
  if (question.within && std::ranges::none_of(answer->lines, is_within)) {
    std::cerr << fmt::format("no strategy has an iteration within {}\n", format_seconds(*question.within));
    return exit_no_result;
  }
  return exit_fine;
}

}  // namespace

void add_load_command(CLI::App& app, int& exit_code, const std::string& command_line) {
  CLI::App* command = app.add_subcommand(
      "load", "find how large a batch, a sequence or a model may be: the load line of each strategy");
  command->footer(
      "For each strategy the largest value is looked for by doubling and bisection. What fits may come and go with "
      "the\nvalue: larger ones are tried, too, and the table says how many. 'next' says why the value behind the "
      "largest does\nnot fit. With -o the folder has load.json, and the picture load.svg, .pdf and .png (drawn by "
      "python3 with\nmatplotlib):\n  plimsoll load -t gpt2 -p h200 --vary batch -s store_all --points 0\n"
      "docs/load.md explains the table and the picture.");
  auto arguments = std::make_shared<LoadArguments>();
  QuestionArguments& words = arguments->question;
  words.engine = "event";
  add_question_options(*command, words, Asks::strategy);
  command->remove_option(command->get_option("--strategy"));
  command->remove_option(command->get_option("--micro-batches"));
  words.micro_batches.clear();
  command->get_option("--trace")->description(
      "model by formula: transformer:layers=24, llama, gpt2:batch=8, resnet50, mlp:layers=8 ...");
  command->get_option("--memory")
      ->description("memory budget of each device: a size such as '16 GB' (default: the capacity of the device)");
  command->add_option("--vary", arguments->vary, "which number of the model grows: batch, sequence, layers or width")
      ->required()
      ->type_name("WHAT");
  command
      ->add_option("-s,--strategy", arguments->strategies,
                   "strategy, one for each -s (default: plain training, full recomputation, the best recomputation, "
                   "offloading,\nand both; of several devices others that use all of them)")
      ->type_name("SPEC")
      ->allow_extra_args(false);
  command
      ->add_option("--micro-batches", words.micro_batches,
                   "number of micro-batches in an iteration; they run one after the other (default: the number of "
                   "devices)")
      ->type_name("M");
  command->add_option("--from", arguments->from, "least value (default: the least that the model takes)")
      ->type_name("N");
  command
      ->add_option("--to", arguments->to, "largest value (default: the largest that the model takes; of layers 1024)")
      ->type_name("N");
  command
      ->add_option("--step", arguments->step,
                   "values are multiples of this (default: 1; of a sequence 128; of a width the least that 128 and "
                   "the heads\ndivide)")
      ->type_name("N");
  command
      ->add_option("--within", arguments->within,
                   "look for the largest value whose iteration takes no longer than this, too")
      ->type_name("TIME");
  command
      ->add_option("--points", arguments->points,
                   "further values of each strategy up to its largest, evenly apart, for the picture")
      ->capture_default_str()
      ->type_name("N");
  command
      ->add_option("-j,--jobs", arguments->jobs,
                   "number of worker processes, which take a strategy each; 0: one for each core; results do not "
                   "depend on it")
      ->capture_default_str()
      ->type_name("N");
  command->add_option("-o,--output", arguments->folder, "folder for load.json and the picture, created if missing")
      ->type_name("DIR");
  command->add_flag("--json", arguments->json, "print one JSON object instead of a table");
  command->callback([arguments, &exit_code, &command_line] { exit_code = run_load(*arguments, command_line); });
}

}  // namespace plimsoll
