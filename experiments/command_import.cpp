#include "experiments/command_import.h"

#include <fmt/format.h>

#include <array>
#include <iostream>
#include <memory>

#include "experiments/commands.h"
#include "sim/io/input_error.h"
#include "traces/checkmate_graph.h"
#include "traces/dtr_graph.h"
#include "traces/dtr_log.h"
#include "traces/trace_file.h"

namespace plimsoll {
namespace {

struct ImportArguments {
  std::string format, file, trace;
};

struct Importer {
  std::string_view format;
  Trace (*import)(const std::string& file);
};

constexpr std::array importers{
    Importer{"checkmate-graph", [](const std::string& file) { return Trace{read_checkmate_graph(file)}; }},
    Importer{"dtr-log", [](const std::string& file) { return Trace{graph_of_dtr_log(read_dtr_log(file))}; }},
};

std::vector<std::string_view> formats() {
  std::vector<std::string_view> names;
  names.reserve(importers.size());
  for (const Importer& importer : importers) names.push_back(importer.format);
  return names;
}

int run_import(const ImportArguments& arguments, const std::string& command_line) {
  for (const Importer& importer : importers) {
    if (importer.format != arguments.format) continue;
    Trace trace = importer.import(arguments.file);
    auto& graph = std::get<Graph>(trace.model);
    graph.source.notes.emplace_back("made_by", made_by(command_line));
    write_trace(arguments.trace, trace);
    std::cout << fmt::format("{}: {} ops, {} tensors\n", arguments.trace, graph.ops.size(), graph.tensors.size());
    return exit_fine;
  }
  throw InputError(fmt::format("import: unknown format '{}', expected {}{}", arguments.format, alternatives(formats()),
                               suggestion(arguments.format, formats())));
}

}  // namespace

void add_import_command(CLI::App& app, int& exit_code, const std::string& command_line) {
  CLI::App* command = app.add_subcommand("import", "make a trace from a file of another program");
  auto arguments = std::make_shared<ImportArguments>();
  command
      ->add_option("format", arguments->format,
                   "format of FILE, unpacked (traces/README.md): checkmate-graph (JSON: nodes with sizes and costs) "
                   "or\ndtr-log (log of DTR's simulator simrd)")
      ->required();
  command->add_option("file", arguments->file, "file to read")->required()->type_name("FILE");
  command->add_option("-o,--output", arguments->trace, "file for the trace")->required()->type_name("TRACE");
  command->callback([arguments, &exit_code, &command_line] { exit_code = run_import(*arguments, command_line); });
}

}  // namespace plimsoll
