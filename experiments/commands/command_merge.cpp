#include <fmt/format.h>

#include <iostream>
#include <memory>

#include "experiments/commands/commands.h"
#include "experiments/merge/merge.h"

namespace plimsoll {
namespace {

struct MergeArguments {
  std::vector<std::string> folders;
  std::string output;
  bool replace = false;
};

}  // namespace

void add_merge_command(CLI::App& app, const std::string& command_line) {
  CLI::App* command = app.add_subcommand("merge", "make one folder of results of several");
  command->footer(
      "The folders are of shards of one experiment, or of experiments that differ in their lists of traces,\n"
      "platforms, strategies, micro-batches or optimizers; those lists are joined. Refused are folders that\n"
      "contradict each other: other settings, budgets, inputs or builds, or another answer to the same point.\n"
      "The result is a sweep's folder, for 'report' and 'sweep --resume':\n"
      "  plimsoll merge out/shards -o out/all\n"
      "  plimsoll merge out/monday out/tuesday -o out/both");
  auto arguments = std::make_shared<MergeArguments>();
  command->add_option("folders", arguments->folders, "folders with results of sweeps")
      ->required()
      ->type_name("DIR ...");
  command->add_option("-o,--output", arguments->output, "folder for the merged results, new or empty")
      ->required()
      ->type_name("DIR");
  command->add_flag("--replace", arguments->replace, "replace the results that the folder has");
  command->callback([arguments, &command_line] {
    const std::vector<std::filesystem::path> folders(arguments->folders.begin(), arguments->folders.end());
    const MergeCount count = merge_sweeps(folders, arguments->output, command_line, arguments->replace);
    std::cout << fmt::format("{} of {} points are in {}\n", count.found, count.all, arguments->output);
  });
}

}  // namespace plimsoll
