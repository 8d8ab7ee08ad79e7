#include <fmt/format.h>

#include <iostream>
#include <limits>
#include <memory>

#include "experiments/commands/commands.h"
#include "experiments/report/compared.h"
#include "experiments/report/report.h"
#include "experiments/report/report_table.h"
#include "experiments/study/build_name.h"

namespace plimsoll {
namespace {

std::size_t most_pictures(const std::string& figures) {
  return figures == "all" ? std::numeric_limits<std::size_t>::max() : std::stoul(figures);
}

void compare_folders(const std::vector<std::filesystem::path>& results, const std::string& folder,
                     const std::vector<std::string>& together, const std::string& figures, const std::string& made_by) {
  std::vector<NamedContents> all;
  for (const std::filesystem::path& each : results) all.push_back({each, read_results({each})});
  for (const NamedContents& each : all) {
    if (all.size() > 1) std::cout << "\n" << each.folder.string() << ":\n";
    std::cout << report_table(each.contents) << '\n';
  }
  for (const auto& path : write_comparison(all, folder, made_by, together, most_pictures(figures))) {
    std::cout << path.string() << '\n';
  }
}

}  // namespace

void add_report_command(CLI::App& app, int& exit_code, const std::string& command_line) {
  struct Arguments {
    std::vector<std::string> results;
    std::string folder;
    std::vector<std::string> together;
    std::string figures = std::to_string(usual_pictures);
  };
  CLI::App* command =
      app.add_subcommand("report", "make figures, an interactive page and a table from the results of a sweep");
  command->footer(
      "Prints a table for each trace and platform, and the paths of the files that it writes: results.csv, "
      "report.html\n(opens in any browser, needs no network) and, for each trace and platform, the trade-off of "
      "iteration time against\nmemory as SVG, PDF and PNG (drawn by python3 with matplotlib). A load line that "
      "'plimsoll load -o' has left in the\nfolder comes first; it may be there alone. The sweep need not be "
      "finished:\n  plimsoll sweep "
      "experiments/demo.yaml -o out/demo -j 0\n  plimsoll report out/demo\nSeveral folders are merged first, as "
      "'plimsoll merge' does it, and need -o:\n  plimsoll report out/monday out/tuesday -o out/both\nWith --together "
      "figures show several folders, models or platforms at once; folders are then compared, not\nmerged:\n  plimsoll "
      "report out/monday out/tuesday -o out/both --together folders");
  auto arguments = std::make_shared<Arguments>();
  command->add_option("results", arguments->results, "folders with the results of sweeps, or one with a load line")
      ->required()
      ->type_name("DIR ...");
  command->add_option("-o,--output", arguments->folder, "folder for the report (default: the folder of the sweep)")
      ->type_name("DIR");
  command
      ->add_option(
          "--figures", arguments->figures,
          "pictures of the first N traces and platforms, a second each; or of 'all' (the page shows every one)")
      ->type_name("N|all")
      ->check([](const std::string& text) {
        const bool is_number = !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == text.npos;
        return is_number || text == "all" ? "" : fmt::format("expected a number or 'all', found '{}'", text);
      })
      ->capture_default_str();
  command
      ->add_option(
          "--together", arguments->together,
          "what figures show at once, with commas between: " + fmt::format("{}", fmt::join(together_words(), ", ")))
      ->delimiter(',')
      ->type_name("WHAT,...")
      ->check(CLI::IsMember(together_words()));
  command->callback([arguments, &exit_code, &command_line] {
    const std::vector<std::filesystem::path> results(arguments->results.begin(), arguments->results.end());
    if (results.size() > 1 && arguments->folder.empty()) throw CLI::RequiredError("--output");
    const std::string& folder = arguments->folder.empty() ? arguments->results.front() : arguments->folder;
    if (!arguments->together.empty()) {
      exit_code = exit_fine;
      compare_folders(results, folder, arguments->together, arguments->figures, made_by(command_line));
      return;
    }
    SweepContents contents = read_results(results);
    const std::size_t most = most_pictures(arguments->figures);
    if (!contents.records.empty()) std::cout << report_table(contents) << '\n';
    for (const auto& path : write_report(results, std::move(contents), folder, made_by(command_line), most)) {
      std::cout << path.string() << '\n';
    }
    exit_code = exit_fine;
  });
}

}  // namespace plimsoll
