#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "experiments/commands/commands.h"
#include "experiments/measure/validation.h"
#include "experiments/measure/validation_file.h"
#include "sim/io/input_error.h"
#include "sim/io/quantity.h"

namespace plimsoll {
namespace {

struct ValidateArguments {
  BackendArguments backend;
  std::string file, folder, rounds, first;
};

/// What the words leave of the file's.
Validation asked_of(const ValidateArguments& words) {
  Validation validation = read_validation(words.file);
  const auto count = [](const char* option, const std::string& text) {
    const Parsed<std::int64_t> parsed = parse_integer(text);
    if (parsed.fine() && parsed.value >= 1 && parsed.value <= 10'000) return static_cast<std::uint32_t>(parsed.value);
    throw InputError(fmt::format("{}: expected a whole number from 1 to 10000, found '{}'", option, text));
  };
  if (!words.rounds.empty()) validation.rounds = count("--rounds", words.rounds);
  if (words.first.empty()) return validation;
  validation.networks.resize(std::min<std::size_t>(validation.networks.size(), count("--first", words.first)));
  return validation;
}

}  // namespace

void add_validate_command(CLI::App& app, int& exit_code, const std::string& command_line) {
  CLI::App* command = app.add_subcommand(
      "validate", "train networks for real by many schedules, and compare time and memory with the prediction");
  command->footer(
      "One run interleaves calibration, store_all and all schedules. It writes the calibrated platform and "
      "traces,\nrows.jsonl, validation.json and validation.txt to DIR. Ctrl-C keeps the finished rounds:\n  plimsoll "
      "validate validate/validate_cpu.yaml -o out/validate");
  auto arguments = std::make_shared<ValidateArguments>();
  command->add_option("validation", arguments->file, "file with networks and strategies, see validate/calibration.md")
      ->required()
      ->type_name("FILE.yaml");
  command->add_option("-o,--output", arguments->folder, "folder for the results, created if missing")
      ->required()
      ->type_name("DIR");
  command->add_option("--rounds", arguments->rounds, "number of rounds, instead of that in FILE.yaml")->type_name("N");
  command->add_option("--first", arguments->first, "validate only the first N networks of FILE.yaml")->type_name("N");
  add_backend_options(*command, arguments->backend);
  command->callback([arguments, &exit_code, &command_line] {
    exit_code = validate({.validation = asked_of(*arguments),
                          .backend = arguments->backend,
                          .folder = arguments->folder,
                          .command_line = command_line});
  });
}

}  // namespace plimsoll
