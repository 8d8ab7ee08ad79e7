#include "experiments/command_report.h"

#include <iostream>
#include <memory>

#include "experiments/commands.h"
#include "experiments/report.h"
#include "experiments/report_table.h"

namespace plimsoll {

void add_report_command(CLI::App& app, int& exit_code, const std::string& command_line) {
  struct Arguments {
    std::string results, folder;
  };
  CLI::App* command = app.add_subcommand("report", "figures, an interactive page and a table from a sweep's results");
  command->footer(
      "Writes results.csv, report.html (opens in any browser, needs no network) and, per trace and platform, the\n"
      "trade-off of iteration time against memory as SVG, PDF and PNG (drawn by python3 with matplotlib). A sweep "
      "that\n"
      "is not finished is reported as far as it is. Prints a table a trace and platform, and the paths of the files.\n"
      "  plimsoll sweep experiments/demo.yaml -o out/demo && plimsoll report out/demo");
  auto arguments = std::make_shared<Arguments>();
  command->add_option("results", arguments->results, "folder of a sweep")->required()->type_name("DIR");
  command->add_option("-o,--output", arguments->folder, "folder for the report (default: the sweep's)")
      ->type_name("DIR");
  command->callback([arguments, &exit_code, &command_line] {
    const std::string& folder = arguments->folder.empty() ? arguments->results : arguments->folder;
    std::cout << report_table(read_results(arguments->results)) << '\n';
    for (const auto& path : write_report(arguments->results, folder, made_by(command_line))) {
      std::cout << path.string() << '\n';
    }
    exit_code = exit_fine;
  });
}

}  // namespace plimsoll
