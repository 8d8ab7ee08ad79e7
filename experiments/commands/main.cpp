// The program: reads the command line, runs one command, and turns what went wrong into one line and an exit code.

#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <iostream>
#include <limits>
#include <memory>
#include <new>
#include <sstream>
#include <system_error>

#include "experiments/commands/commands.h"
#include "experiments/study/build_name.h"
#include "sim/core/expects.h"
#include "sim/engine/engine_error.h"
#include "sim/engine/late_library.h"
#include "sim/io/input_error.h"
#include "sim/io/output_error.h"
#include "sim/io/printable.h"
#include "validate/backend.h"

namespace plimsoll {
namespace {

std::string joined(int argc, char** argv) {
  std::string line = "plimsoll";
  for (int a = 1; a < argc; ++a) line += std::string(" ") + argv[a];
  return line;
}

void add_help_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("help", "print the list of commands, or the help page of one command");
  auto word = std::make_shared<std::string>();
  command->add_option("command", *word, "name of a command");
  command->callback([&app, word, &exit_code] {
    exit_code = exit_fine;
    if (word->empty()) {
      // app.help() would be that of the command that was given, which is this one.
      std::cout << app.get_formatter()->make_help(&app, app.get_name(), CLI::AppFormatMode::Normal);
      return;
    }
    std::vector<std::string> names;
    for (const CLI::App* each : app.get_subcommands({})) {
      names.push_back(each->get_name());
      if (names.back() != *word) continue;
      std::cout << each->help("plimsoll");
      return;
    }
    throw InputError(fmt::format("help: unknown command '{}'{}", *word, suggestion(*word, names)));
  });
}

/// The first word that begins like an option and is none of the command's, with what it may have been meant to be.
std::optional<std::string> unknown_option(const CLI::App& command, int argc, char** argv) {
  std::vector<std::string> options;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
    for (const std::string& name : option->get_snames()) options.push_back("-" + name);
  }
  constexpr std::size_t longest = 200;
  for (int a = 2; a < argc; ++a) {
    const std::string given = argv[a], word = given.substr(0, given.find('='));
    const bool is_short = word.size() == 2 && word[0] == '-' && word[1] != '-' && !(word[1] >= '0' && word[1] <= '9');
    const bool is_long = word.size() > 2 && word.starts_with("--");
    if ((!is_short && !is_long) || std::ranges::find(options, word) != options.end()) continue;
    return fmt::format("unknown option '{}'{}", shortened(word, longest), is_long ? suggestion(word, options) : "");
  }
  return std::nullopt;
}

/// Where CLI11 says "kind: platfroms not in {strategies,platforms,traces}": the nearest of these.
std::string suggestion_in(const std::string& what) {
  const std::size_t word = what.find(": "), set = what.find(" not in {");
  if (word == std::string::npos || set == std::string::npos || set < word + 2) return "";
  std::vector<std::string> names;
  std::istringstream list(what.substr(set + 9, what.find('}', set) - set - 9));
  for (std::string name; std::getline(list, name, ',');) names.push_back(name);
  return suggestion(what.substr(word + 2, set - word - 2), names);
}

/// CLI11's message, or that there is no such command or option: it looks first at what is missing.
int usage_error(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
  const CLI::App* command = nullptr;
  std::vector<std::string> commands;
  for (const CLI::App* each : app.get_subcommands({})) {
    commands.push_back(each->get_name());
    if (argc > 1 && each->get_name() == argv[1]) command = each;
  }
  if (argc > 1 && command == nullptr) {
    std::cerr << fmt::format("plimsoll: unknown command '{}'{}\n", argv[1], suggestion(argv[1], commands));
    std::cerr << "'plimsoll help' lists the commands\n";
    return exit_bad_input;
  }
  std::string what = error.what() + suggestion_in(error.what());
  if (command != nullptr) what = unknown_option(*command, argc, argv).value_or(what);
  std::cerr << fmt::format("plimsoll{}: {}\n", command != nullptr ? " " + command->get_name() : "", what);
  std::cerr << fmt::format("'plimsoll help{}' shows how it is used\n",
                           command != nullptr ? " " + command->get_name() : "");
  return exit_bad_input;
}

/// Lines of a message, each cut where names in it are longer than anybody reads, and followed by its excerpt.
std::string readable(std::string_view message, const std::vector<std::string>& excerpts = {}) {
  constexpr std::size_t most = 900;
  std::string lines;
  std::size_t number = 0;
  for (std::size_t begin = 0; begin <= message.size(); ++number) {
    const std::size_t end = std::min(message.find('\n', begin), message.size());
    lines += shortened(message.substr(begin, end - begin), most) + "\n";
    if (number < excerpts.size() && !excerpts[number].empty()) lines += excerpts[number] + "\n";
    begin = end + 1;
  }
  return lines;
}

/// Whether the standard output is a pipe that nobody reads any more.
bool reader_is_gone() {
  pollfd output{STDOUT_FILENO, POLLOUT, 0};
  return poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
}

/// A complaint with its place in the pipeline that the command was given, if it is about one of its strategies.
InputError placed_in_strategy(const CLI::App& app, const InputError& complaint) {
  for (const CLI::App* command : app.get_subcommands()) {
    const CLI::Option* option = command->get_option_no_throw("--strategy");
    if (option != nullptr && option->count() == 1) return placed(complaint, option->as<std::string>(), "--strategy");
  }
  return complaint;
}

int run_command(int argc, char** argv) {
  CLI::App app{"Plimsoll: how deep may this GPU be loaded? Plans, simulates and compares memory-saving strategies."};
  app.set_version_flag("--version", program_version());
  app.require_subcommand(1);
  app.name("plimsoll");
  const std::string command_line = joined(argc, argv);
  int exit_code = exit_fine;
  add_simulate_command(app, exit_code, command_line);
  add_plan_command(app, exit_code, command_line);
  add_explain_command(app, exit_code);
  add_check_command(app, exit_code, command_line);
  add_verify_command(app, exit_code);
  add_bounds_command(app, exit_code, command_line);
  add_fits_command(app, exit_code, command_line);
  add_load_command(app, exit_code, command_line);
  add_list_command(app, exit_code, command_line);
  add_describe_command(app, exit_code, command_line);
  add_sweep_command(app, exit_code, command_line);
  add_merge_command(app, command_line);
  add_report_command(app, exit_code, command_line);
  add_replay_command(app, exit_code, command_line);
  add_train_command(app, exit_code);
  add_calibrate_command(app, exit_code, command_line);
  add_validate_command(app, exit_code, command_line);
  add_reproduce_command(app, exit_code, command_line);
  add_compare_command(app, exit_code, command_line);
  add_import_command(app, exit_code, command_line);
  add_export_command(app, exit_code, command_line);
  add_splits_command(app, exit_code);
  add_stages_command(app, exit_code);
  add_replay_log_command(app, exit_code);
  add_completion_command(app, exit_code);
  add_man_command(app, exit_code);
  add_help_command(app, exit_code);
  // Last: commands would inherit it.
  app.footer(
      "'plimsoll help COMMAND' shows how to use a command.\nShipped files are looked for in the folder that "
      "PLIMSOLL_DATA names, then next to the program and in its prefix.\nExit codes: 0 success, 1 no result "
      "(infeasible, illegal, no such device), 2 wrong input, 3 a defect of plimsoll,\n4 output that cannot be written "
      "or too little memory, 130 interrupted.");
  if (argc == 1) {
    std::cerr << app.help();
    return exit_bad_input;
  }
  try {
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      exit_code = usage_error(app, error, argc, argv);  // --help and --version, too
    }
    std::cout.flush();
    if (!std::cout && reader_is_gone()) return exit_no_room;  // `| head` has what it wanted
    if (!std::cout) throw OutputError("cannot write to the standard output");
    return exit_code;
  } catch (const InputError& unplaced) {
    const InputError error = placed_in_strategy(app, unplaced);
    std::cerr << readable(error.what(), error.excerpts());
    return exit_bad_input;
  } catch (const BackendError& error) {
    std::cerr << readable(error.what());
    return exit_no_result;
  } catch (const LibraryMissing& error) {
    std::cerr << readable(error.what());
    return exit_no_result;
  } catch (const OutputError& error) {
    std::cerr << readable(error.what());
    return exit_no_room;
  } catch (const std::bad_alloc&) {
    std::cerr << "plimsoll: not enough memory\n";
    return exit_no_room;
  } catch (const std::system_error& error) {  // no thread, no process, no shared memory, no folder to be had
    std::cerr << readable(fmt::format("plimsoll: {}", error.what()));
    return exit_no_room;
  } catch (const SimulationInterrupted&) {
    return exit_interrupted;
  } catch (const std::exception& error) {
    std::cerr << "plimsoll: " << error.what() << "\nThis is a defect of plimsoll; please report it with the command.\n";
    return exit_broken_promise;
  }
}

/// Schedules of a million steps are made and freed again and again while plans are tried: pages that went back to the
/// system each time would cost a third of the time.
void keep_freed_memory() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
}

/// Files, pipes and sockets that are opened later would take the numbers of standard streams that are closed, and get
/// what is printed. What cannot be used takes their places, so that reading and writing fail as on what is closed.
void hold_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
    open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

}  // namespace
}  // namespace plimsoll

int main(int argc, char** argv) {
  plimsoll::hold_standard_streams();
  plimsoll::keep_freed_memory();
  std::signal(SIGPIPE, SIG_IGN);  // a reader that is gone is an output that cannot be written,
  std::signal(SIGXFSZ, SIG_IGN);  // and so is a file that would be larger than the shell allows
  const plimsoll::PrintableOutput out(std::cout), messages(std::cerr);
  return plimsoll::run_command(argc, argv);
}
