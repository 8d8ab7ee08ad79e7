// plimsoll reproduce

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <thread>

#include "experiments/commands/commands.h"
#include "experiments/published/differences.h"
#include "experiments/published/expected_numbers.h"
#include "experiments/report/drawing.h"
#include "experiments/sweep/sweep.h"
#include "experiments/truth/measured_runs.h"
#include "experiments/truth/truth.h"
#include "experiments/truth/truth_tables.h"
#include "sim/io/input_error.h"
#include "sim/io/output_error.h"
#include "sim/io/quantity.h"
#include "sim/io/shipped.h"
#include "sim/io/text_file.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

struct ReproduceArguments {
  std::string subject, folder, runs, jobs = "0";
  std::vector<std::string> groups;
  bool factors = false, json = false, csv = false;
};

/// Those of the file, or the named ones in its order.
std::vector<MeasuredGroup> asked_groups(const ReproduceArguments& arguments, const std::string& file) {
  std::vector<MeasuredGroup> groups = parse_measured_runs(read_text_file(file), file);
  std::vector<std::string> names;
  for (const MeasuredGroup& group : groups) names.push_back(group.name);
  for (const std::string& name : arguments.groups) {
    if (std::ranges::find(names, name) != names.end()) continue;
    throw InputError(fmt::format("--group: {} has no group '{}'{}", file, name, suggestion(name, names)));
  }
  const auto is_asked = [&](const MeasuredGroup& group) {
    return arguments.groups.empty() || std::ranges::find(arguments.groups, group.name) != arguments.groups.end();
  };
  std::erase_if(groups, [&](const MeasuredGroup& group) { return !is_asked(group); });
  return groups;
}

/// truth.csv and, with every factor, truth.png; the tables of a page truth.md that is there already, which
/// are of all groups.
void write_truth(const fs::path& folder, std::span<const TruthRow> rows, const ReproduceArguments& arguments) {
  fs::create_directories(folder);
  const fs::path page = folder / "truth.md", runs = folder / "truth.csv";
  if (fs::exists(page) && arguments.groups.empty()) {
    write_text_file(page, with_truth_tables(read_text_file(page), page.string(), truth_tables(rows)));
    std::cout << page.string() << '\n';
  }
  write_text_file(runs, truth_csv(rows));
  std::cout << runs.string() << '\n';
  if (!arguments.factors) return;
  draw_by_python("experiments/plot_truth.py", {json_text(truth_json(rows).at("groups")), folder.string()});
  std::cout << (folder / "truth.png").string() << '\n';
}

/// No result, and why, where a run that is expressed has no prediction.
int exit_code_of(std::span<const TruthRow> rows) {
  int code = exit_fine;
  for (const TruthRow& row : rows) {
    if (row.reason.empty() || !row.run->why_not.empty()) continue;
    std::cerr << "no prediction of '" << row.run->name << "' of " << row.group->name << ": " << row.reason << '\n';
    code = exit_no_result;
  }
  return code;
}

int reproduce_truth(const ReproduceArguments& arguments, std::size_t workers) {
  const std::string file = arguments.runs.empty() ? shipped_measured_runs().string() : arguments.runs;
  const std::vector<MeasuredGroup> groups = asked_groups(arguments, file);
  const std::optional<std::vector<TruthRow>> rows = truth_of(groups, arguments.factors, workers);
  if (!rows) return exit_interrupted;
  if (!arguments.folder.empty()) {
    write_truth(arguments.folder, *rows, arguments);
  } else if (arguments.json) {
    std::cout << json_text(truth_json(*rows), 2) << '\n';
  } else if (arguments.csv) {
    std::cout << truth_csv(*rows);
  } else {
    for (const TruthTable& table : truth_tables(*rows)) std::cout << table.name << "\n\n" << table.text << '\n';
  }
  return exit_code_of(*rows);
}

/// A folder of a sweep that nobody asked to keep.
class PassingFolder {
 public:
  PassingFolder() {
    std::string name = (fs::temp_directory_path() / "plimsoll_reproduce_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw OutputError(name + ": cannot be made: give a folder by -o");
    path = name;
  }
  ~PassingFolder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  PassingFolder(const PassingFolder&) = delete;
  PassingFolder& operator=(const PassingFolder&) = delete;

  fs::path path;
};

void check_paper(const ReproduceArguments& arguments) {
  std::vector<std::string> names = paper_names();
  names.emplace_back("truth");
  if (std::ranges::find(names, arguments.subject) == names.end()) {
    throw InputError(fmt::format("'{}' is neither truth nor an experiment of experiments/papers{}", arguments.subject,
                                 suggestion(arguments.subject, names)));
  }
  if (!arguments.runs.empty() || !arguments.groups.empty() || arguments.factors) {
    throw InputError("--runs, --group and --factors are for 'reproduce truth' alone");
  }
}

/// The sweep, its numbers next to those of the paper, and with a folder to keep both and the figure.
int reproduce_paper(const ReproduceArguments& arguments, std::size_t workers, const std::string& command_line) {
  check_paper(arguments);
  const fs::path experiment = shipped_file("experiments/papers/" + arguments.subject + ".yaml");
  const fs::path file = shipped_file("experiments/papers/" + arguments.subject + "/expected.yaml");
  const ExpectedNumbers expected = parse_expected_numbers(read_text_file(file), file.string(), experiment);
  const std::optional<PassingFolder> passing =
      arguments.folder.empty() ? std::optional<PassingFolder>(std::in_place) : std::nullopt;
  const fs::path folder = passing ? passing->path : fs::path(arguments.folder);
  const int swept = sweep({.experiment = experiment,
                           .folder = folder,
                           .changes = {.settings = {}, .preset = expected.preset},
                           .jobs = workers,
                           .resume = true,
                           .quiet = false,
                           .shard = {},
                           .command_line = command_line});
  if (swept == exit_interrupted) return swept;
  const SweepContents contents = read_sweep(folder);
  const std::vector<Difference> differences = differences_of(expected, contents);
  std::cout << (arguments.json  ? json_text(differences_json(expected, differences), 2) + '\n'
                : arguments.csv ? differences_csv(differences)
                                : expected.paper + "\n\n" + differences_table(differences));
  if (!passing) {
    const fs::path figure = folder / "figure.json", picture = folder / (arguments.subject + ".png");
    write_text_file(folder / "differences.md", differences_table(differences));
    write_text_file(figure, json_text(figure_json(expected, differences, contents)));
    draw_by_python("experiments/plot_paper.py", {figure.string(), picture.string()});
    if (!arguments.json && !arguments.csv) std::cout << '\n' << picture.string() << '\n';
  }
  if (swept != exit_fine) return swept;
  return std::ranges::any_of(differences, &Difference::is_wrong) ? exit_no_result : exit_fine;
}

int run_reproduce(const ReproduceArguments& arguments, const std::string& command_line) {
  const Parsed<std::int64_t> jobs = parse_integer(arguments.jobs);
  if (!jobs.fine() || jobs.value < 0 || jobs.value > 4096) {
    throw InputError(fmt::format("-j: expected a whole number from 0 to 4096, found '{}'", arguments.jobs));
  }
  const std::size_t workers =
      jobs.value > 0 ? static_cast<std::size_t>(jobs.value) : std::max(1U, std::thread::hardware_concurrency());
  return arguments.subject == "truth" ? reproduce_truth(arguments, workers)
                                      : reproduce_paper(arguments, workers, command_line);
}

}  // namespace

void add_reproduce_command(CLI::App& app, int& exit_code, const std::string& command_line) {
  CLI::App* command = app.add_subcommand(
      "reproduce",
      "run the experiment of a paper, or predict iterations that were measured, and say how far off ours are");
  command->footer(
      "NAME is an experiment of experiments/papers, whose published numbers are in NAME/expected.yaml there. Its sweep "
      "is\nrun, or resumed in DIR. Prints published numbers next to ours; -o also writes DIR/NAME.png, the paper's "
      "kind "
      "of\nfigure. Exit code 1 where a number is off by more than is allowed:\n  plimsoll reproduce pipedream\n  "
      "plimsoll "
      "reproduce pipedream -o out/pipedream\n'truth': every measured run of experiments/papers/measured_runs.yaml, by "
      "efficiencies and by rooflines. Prints the\ntables of docs/truth.md. -o writes DIR/truth.csv and the tables of "
      "DIR/truth.md, if that is there. Exit code 1\nwhere a run that is expressed has no prediction:\n  plimsoll "
      "reproduce truth\n  plimsoll reproduce truth --factors -o docs");
  auto arguments = std::make_shared<ReproduceArguments>();
  command->add_option("subject", arguments->subject, "experiment of a paper, or truth")->required()->type_name("NAME");
  command->add_option("-o,--output", arguments->folder, "folder for the files (default: tables on standard output)")
      ->type_name("DIR");
  command->add_option("--runs", arguments->runs, "measured runs (default: the shipped file)")->type_name("FILE");
  command->add_option("--group", arguments->groups, "group of runs, instead of all of the file; can be repeated")
      ->type_name("NAME");
  command->add_flag("--factors", arguments->factors,
                    "also predict with each factor of the model of times after the other, and draw DIR/truth.png");
  CLI::Option* json = command->add_flag("--json", arguments->json, "print one JSON object");
  command->add_flag("--csv", arguments->csv, "print the runs, one a line")->excludes(json);
  command->add_option("-j,--jobs", arguments->jobs, "number of worker processes; 0: one for each core")
      ->capture_default_str()
      ->type_name("N");
  command->callback([arguments, &exit_code, &command_line] { exit_code = run_reproduce(*arguments, command_line); });
}

}  // namespace plimsoll
