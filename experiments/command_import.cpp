#include "experiments/command_import.h"

#include <fmt/format.h>

#include <array>
#include <iostream>
#include <memory>

#include "experiments/commands.h"
#include "sim/io/input_error.h"
#include "sim/io/text_file.h"
#include "strategies/pipelining/order_file.h"
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

constexpr std::string_view order_format = "pipeline-csv";  // no trace

std::vector<std::string_view> formats() {
  std::vector<std::string_view> names;
  names.reserve(importers.size() + 1);
  for (const Importer& importer : importers) names.push_back(importer.format);
  names.push_back(order_format);
  return names;
}

/// Judged, and written without empty cells, B apart where the file has I and W.
int import_order(const ImportArguments& arguments) {
  const OrderFile file = read_order(arguments.file);
  write_text_file(arguments.trace, order_csv(file.order));
  std::cout << fmt::format("{}: {} devices, {} parts, {} micro-batches\n", arguments.trace, file.order.turns.size(),
                           file.order.rank_of.size(), file.micro_batches);
  return exit_fine;
}

int run_import(const ImportArguments& arguments, const std::string& command_line) {
  if (arguments.format == order_format) return import_order(arguments);
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
  CLI::App* command =
      app.add_subcommand("import", "make a trace, or the order of a pipeline, from a file of another program");
  auto arguments = std::make_shared<ImportArguments>();
  command
      ->add_option("format", arguments->format,
                   "format of FILE, unpacked (traces/README.md): checkmate-graph (JSON: nodes with sizes and costs),\n"
                   "dtr-log (log of DTR's simulator simrd) or pipeline-csv (order of a pipeline's turns)")
      ->required();
  command->add_option("file", arguments->file, "file to read")->required()->type_name("FILE");
  command->add_option("-o,--output", arguments->trace, "file for the trace or the order")
      ->required()
      ->type_name("TRACE");
  command->callback([arguments, &exit_code, &command_line] { exit_code = run_import(*arguments, command_line); });
}

}  // namespace plimsoll
