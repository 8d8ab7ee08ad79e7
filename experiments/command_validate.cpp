#include "experiments/command_validate.h"

#include <memory>

#include "experiments/validation.h"

namespace plimsoll {
namespace {

struct ValidateArguments {
  BackendArguments backend;
  std::string file, folder;
};

}  // namespace

void add_validate_command(CLI::App& app, int& exit_code, const std::string& command_line) {
  CLI::App* command =
      app.add_subcommand("validate", "train networks for real by many schedules, beside what is predicted of them");
  command->footer(
      "Calibration, store_all and all schedules are interleaved in one run. DIR gets the calibrated platform and "
      "traces,\n"
      "rows.jsonl, validation.json and validation.txt; Ctrl-C keeps what is finished:\n"
      "  plimsoll validate validate/validate_cpu.yaml -o out/validate");
  auto arguments = std::make_shared<ValidateArguments>();
  command->add_option("validation", arguments->file, "which networks and strategies, see validate/README.md")
      ->required()
      ->type_name("FILE.yaml");
  command->add_option("-o,--output", arguments->folder, "folder for the results, made where it is missing")
      ->required()
      ->type_name("DIR");
  add_backend_options(*command, arguments->backend);
  command->callback([arguments, &exit_code, &command_line] {
    exit_code = validate({.validation = read_validation(arguments->file),
                          .backend = arguments->backend,
                          .folder = arguments->folder,
                          .command_line = command_line});
  });
}

}  // namespace plimsoll
