// plimsoll man: the pages of `plimsoll help` as one manual page.

#include <fmt/format.h>

#include <iostream>

#include "experiments/commands/commands.h"

namespace plimsoll {
namespace {

/// Text for roff: backslashes, hyphens and lines that would be requests.
std::string roff(std::string_view text) {
  std::string escaped;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool starts_line = i == 0 || text[i - 1] == '\n';
    if (starts_line && (text[i] == '.' || text[i] == '\'')) escaped += "\\&";
    if (text[i] == '\\') {
      escaped += "\\e";
    } else if (text[i] == '-') {
      escaped += "\\-";
    } else {
      escaped += text[i];
    }
  }
  return escaped;
}

/// As it stands, lines and spaces kept.
std::string verbatim(const std::string& text) {
  return text.empty() ? "" : ".PP\n.nf\n" + roff(text) + (text.ends_with('\n') ? "" : "\n") + ".fi\n";
}

/// `-t, --trace TRACE`
std::string heading(const CLI::Option& option) {
  std::string names;
  for (const std::string& name : option.get_snames()) names += (names.empty() ? "-" : ", -") + name;
  for (const std::string& name : option.get_lnames()) names += (names.empty() ? "--" : ", --") + name;
  std::string text = names.empty() ? option.get_name() : names;
  if (!names.empty() && option.get_items_expected_max() > 0) text += " " + option.get_type_name();
  if (!option.get_default_str().empty()) text += " (default: " + option.get_default_str() + ")";
  if (option.get_required()) text += " (required)";
  return text;
}

std::string section_of(const CLI::App& command) {
  std::string text = fmt::format(".SS plimsoll {}\n{}.\n", command.get_name(), roff(command.get_description()));
  for (const CLI::Option* option : command.get_options()) {
    text += fmt::format(".TP\n.B {}\n{}\n", roff(heading(*option)), roff(option->get_description()));
  }
  return text + verbatim(command.get_footer());
}

std::string man_page(const CLI::App& app) {
  std::string text = fmt::format(
      ".TH PLIMSOLL 1 \"\" \"plimsoll {}\" \"User Commands\"\n.SH NAME\nplimsoll \\- plans, simulates and compares "
      "memory\\-saving strategies in training\n.SH SYNOPSIS\n.B plimsoll\n.I command\n[option ...]\n.SH "
      "DESCRIPTION\n{}\n",
      PLIMSOLL_VERSION, roff(app.get_description()));
  text += ".SH COMMANDS\n";
  for (const CLI::App* command : app.get_subcommands({})) text += section_of(*command);
  return text + ".SH NOTES\n" + verbatim(app.get_footer());
}

}  // namespace

void add_man_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("man", "print all pages of 'plimsoll help' as a manual page");
  command->footer("  plimsoll man > plimsoll.1\nThen 'man ./plimsoll.1' shows it.");
  command->callback([&app, &exit_code] {
    std::cout << man_page(app);
    exit_code = exit_fine;
  });
}

}  // namespace plimsoll
