// plimsoll completion bash|zsh|fish: a script that completes commands, options, and what options take.

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <memory>

#include "experiments/commands/commands.h"
#include "experiments/load/load_line.h"
#include "platforms/platform_file.h"
#include "sim/io/one_of.h"
#include "strategies/list.h"
#include "traces/trace_file.h"
#include "validate/networks/networks.h"

namespace plimsoll {
namespace {

std::string with_spaces(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

template <class Enum>
std::string joined_names() {
  std::string text;
  for (const std::string_view name : names_of<Enum>()) text += (text.empty() ? "" : " ") + std::string(name);
  return text;
}

/// What may follow an option or stand for a positional, beside files: by its name, else by what its help calls it.
std::string values_of(const CLI::Option& option) {
  const std::string name = option.get_lnames().empty() ? option.get_name() : option.get_lnames().front();
  if (name == "engine") return joined_names<Engine>();
  if (name == "transfers") return joined_names<Transfers>();
  if (name == "allocator") return joined_names<AllocatorKind>();
  if (name == "optimizer") return joined_names<Optimizer>();
  if (name == "states") return joined_names<States>();
  if (name == "update-kernels") return joined_names<UpdateKernels>();
  if (name == "gradients") return joined_names<Gradients>();
  if (name == "vary") return joined_names<Varied>();
  const std::string type = option.get_type_name();
  if (const std::size_t set = type.find('{'); set != std::string::npos) {  // TEXT:{cpu,cuda}
    std::string words = type.substr(set + 1, type.find('}') - set - 1);
    std::ranges::replace(words, ',', ' ');
    return words;
  }
  if (type == "TRACE") return with_spaces(shipped_traces());
  if (type == "PLATFORM") return with_spaces(shipped_platforms());
  if (type != "SPEC") return "";
  std::vector<std::string> names;
  for (const StrategyInfo* strategy : strategies()) names.emplace_back(strategy->name);
  return with_spaces(names);
}

/// `--trace -t`, as they are typed.
std::vector<std::string> spellings(const CLI::Option& option) {
  std::vector<std::string> words;
  for (const std::string& name : option.get_lnames()) words.push_back("--" + name);
  for (const std::string& name : option.get_snames()) words.push_back("-" + name);
  return words;
}

/// One case of the script: the command's options, what its positionals may be, and what may follow which option.
std::string case_of(const CLI::App& command) {
  std::vector<std::string> options;
  std::string words, cases;
  for (const CLI::Option* option : command.get_options()) {
    const std::string values = values_of(*option);
    if (option->get_positional()) {
      words += values + " ";
      continue;
    }
    const std::vector<std::string> names = spellings(*option);
    options.insert(options.end(), names.begin(), names.end());
    if (option->get_items_expected_max() == 0) continue;  // a flag
    std::string pattern;
    for (const std::string& name : names) pattern += (pattern.empty() ? "" : "|") + name;
    cases += fmt::format("        {}) words=\"{}\" ;;\n", pattern, values);
  }
  const std::string following =
      cases.empty() ? "" : "      case \"$before\" in\n" + cases + "        *) takes=no ;;\n      esac\n";
  return fmt::format("    {})\n      options=\"{}\"\n      words=\"{}\"\n{}      ;;\n", command.get_name(),
                     with_spaces(options), words, following.empty() ? "      takes=no\n" : following);
}

std::string bash_script(const CLI::App& app, std::string_view shell) {
  std::vector<std::string> commands;
  std::string cases;
  for (const CLI::App* command : app.get_subcommands({})) {
    commands.push_back(command->get_name());
    cases += case_of(*command);
  }
  const std::string all = with_spaces(commands);
  return fmt::format(R"(# completion of plimsoll {}, made by: plimsoll completion {}
_plimsoll() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" options="" words="" takes=yes
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{} --help --version" -- "$word"))
    return
  fi
  case "${{COMP_WORDS[1]}}" in
    help) words="{}" takes=no ;;
{}  esac
  if [ "$takes" = no ] && [ "${{word:0:1}}" = - ]; then
    COMPREPLY=($(compgen -W "$options" -- "$word"))
    return
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  if [ ${{#COMPREPLY[@]}} -eq 0 ]; then compopt -o default 2>/dev/null; fi
}}
complete -F _plimsoll plimsoll
)",
                     PLIMSOLL_VERSION, shell, all, all, cases);
}

/// zsh takes bash's scripts.
std::string zsh_script(const CLI::App& app) {
  return "(( $+functions[compdef] )) || { autoload -Uz compinit; compinit }\nautoload -Uz "
         "bashcompinit\nbashcompinit\n" +
         bash_script(app, "zsh");
}

/// As one word of fish, on one line.
std::string fish_word(const std::string& text) {
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') word += '\\';
    word += c == '\n' ? ' ' : c;
  }
  return word + "'";
}

/// What an option or a positional may be; files where nothing is said.
std::string fish_values(const std::string& values) {
  return values.empty() ? "" : " -f -a " + fish_word(values);
}

std::string fish_lines(const CLI::App& command) {
  std::string lines = fmt::format("complete -c plimsoll -f -n __fish_use_subcommand -a {} -d {}\n", command.get_name(),
                                  fish_word(command.get_description()));
  const std::string within =
      fmt::format("complete -c plimsoll -n {}", fish_word("__fish_seen_subcommand_from " + command.get_name()));
  for (const CLI::Option* option : command.get_options()) {
    const std::string values = values_of(*option);
    if (option->get_positional()) {
      if (!values.empty()) lines += within + fish_values(values) + "\n";
      continue;
    }
    std::string spelled;
    for (const std::string& name : option->get_lnames()) spelled += " -l " + name;
    for (const std::string& name : option->get_snames()) spelled += " -s " + name;
    const bool is_flag = option->get_items_expected_max() == 0;
    lines += within + spelled + (is_flag ? "" : " -r") + fish_values(values) + " -d " +
             fish_word(option->get_description()) + "\n";
  }
  return lines;
}

std::string fish_script(const CLI::App& app) {
  std::string lines = fmt::format("# completion of plimsoll {}, made by: plimsoll completion fish\n", PLIMSOLL_VERSION);
  std::vector<std::string> commands;
  for (const CLI::App* command : app.get_subcommands({})) {
    commands.push_back(command->get_name());
    lines += fish_lines(*command);
  }
  return lines + "complete -c plimsoll -n '__fish_seen_subcommand_from help'" + fish_values(with_spaces(commands)) +
         "\n";
}

std::string script_for(const std::string& shell, const CLI::App& app) {
  if (shell == "fish") return fish_script(app);
  return shell == "zsh" ? zsh_script(app) : bash_script(app, "bash");
}

}  // namespace

void add_completion_command(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("completion", "print a script with which a shell completes commands, options and names");
  auto shell = std::make_shared<std::string>();
  command->add_option("shell", *shell, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->footer(
      "For this shell, or in ~/.bashrc or ~/.zshrc for every shell; fish wants it in a file:\n"
      "  eval \"$(plimsoll completion bash)\"\n  eval \"$(plimsoll completion zsh)\"\n"
      "  plimsoll completion fish > ~/.config/fish/completions/plimsoll.fish");
  command->callback([&app, shell, &exit_code] {
    std::cout << script_for(*shell, app);
    exit_code = exit_fine;
  });
}

}  // namespace plimsoll
