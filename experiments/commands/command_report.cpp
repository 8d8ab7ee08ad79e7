#include <iostream>
#include <memory>

#include "experiments/commands/commands.h"
#include "experiments/report/report.h"
#include "experiments/report/report_table.h"
#include "experiments/study/build_name.h"

namespace plimsoll {

void add_report_command(CLI::App& app, int& exit_code, const std::string& command_line) {
  struct Arguments {
    std::vector<std::string> results;
    std::string folder;
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
      "'plimsoll merge' does it, and need -o:\n  plimsoll report out/monday out/tuesday -o out/both");
  auto arguments = std::make_shared<Arguments>();
  command->add_option("results", arguments->results, "folders with the results of sweeps, or one with a load line")
      ->required()
      ->type_name("DIR ...");
  command->add_option("-o,--output", arguments->folder, "folder for the report (default: the folder of the sweep)")
      ->type_name("DIR");
  command->callback([arguments, &exit_code, &command_line] {
    const std::vector<std::filesystem::path> results(arguments->results.begin(), arguments->results.end());
    if (results.size() > 1 && arguments->folder.empty()) throw CLI::RequiredError("--output");
    const std::string& folder = arguments->folder.empty() ? arguments->results.front() : arguments->folder;
    SweepContents contents = read_results(results);
    if (!contents.records.empty()) std::cout << report_table(contents) << '\n';
    for (const auto& path : write_report(results, std::move(contents), folder, made_by(command_line))) {
      std::cout << path.string() << '\n';
    }
    exit_code = exit_fine;
  });
}

}  // namespace plimsoll
