// plimsoll completion bash: a script that completes commands, options, and what options take.

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

std::string bash_script(const CLI::App& app) {
  std::vector<std::string> commands;
  std::string cases;
  for (const CLI::App* command : app.get_subcommands({})) {
    commands.push_back(command->get_name());
    cases += case_of(*command);
  }
  const std::string all = with_spaces(commands);
  return fmt::format(R"(# bash completion of plimsoll {}, made by: plimsoll completion bash
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
                     PLIMSOLL_VERSION, all, all, cases);
}

}  // namespace

void add_completion_command(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("completion", "print a script with which a shell completes commands, options and names");
  auto shell = std::make_shared<std::string>();
  command->add_option("shell", *shell, "bash")->required()->check(CLI::IsMember({"bash"}));
  command->footer("For this shell, or in ~/.bashrc for every shell:\n  eval \"$(plimsoll completion bash)\"");
  command->callback([&app, shell, &exit_code] {
    std::cout << bash_script(app);
    exit_code = exit_fine;
  });
}

}  // namespace plimsoll
