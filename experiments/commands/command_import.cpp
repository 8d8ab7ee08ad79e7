#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <memory>
#include <variant>

#include "experiments/commands/commands.h"
#include "experiments/export/import_snapshot.h"
#include "experiments/recordings/recorded_graph.h"
#include "experiments/study/build_name.h"
#include "sim/io/input_error.h"
#include "sim/io/text_file.h"
#include "strategies/pipelining/order_file.h"
#include "traces/imports/chakra/chakra_graph.h"
#include "traces/imports/checkmate_graph.h"
#include "traces/imports/dnn_partitioning.h"
#include "traces/imports/dot_graph.h"
#include "traces/imports/dtr_graph.h"
#include "traces/imports/dtr_log.h"
#include "traces/imports/import_numbers.h"
#include "traces/imports/onnx/onnx_graph.h"
#include "traces/imports/pardnn_dag.h"
#include "traces/imports/pipedream_profile.h"
#include "traces/imports/piper_graph.h"
#include "traces/imports/pytorch/execution_graph.h"
#include "traces/imports/pytorch/fx_graph.h"
#include "traces/imports/sapp_layers.h"
#include "traces/layer_table.h"
#include "traces/trace_file.h"

namespace plimsoll {
namespace {

struct ImportArguments {
  std::string format, file, trace, allocator, as, device;
  std::vector<std::string> numbers;
};

using Imported = std::variant<Chain, Graph>;

struct Importer {
  std::string_view format;
  Imported (*import)(const std::string& file, ImportNumbers&);
  LayerTable (*layers)(const std::string& file) = nullptr;  ///< a table for `plimsoll stages`, where a trace says less
};

constexpr std::array importers{
    Importer{"checkmate-graph",
             [](const std::string& file, ImportNumbers&) { return Imported{read_checkmate_graph(file)}; }},
    Importer{"dtr-log",
             [](const std::string& file, ImportNumbers&) { return Imported{graph_of_dtr_log(read_dtr_log(file))}; }},
    Importer{"pardnn-dag", [](const std::string& file, ImportNumbers&) { return Imported{read_pardnn_dag(file)}; }},
    Importer{"dot", [](const std::string& file, ImportNumbers&) { return Imported{read_dot_graph(file)}; }},
    Importer{"pipedream",
             [](const std::string& file, ImportNumbers&) { return Imported{read_pipedream_profile(file)}; }},
    Importer{"dnn-partitioning",
             [](const std::string& file, ImportNumbers&) { return Imported{read_dnn_partitioning_graph(file)}; },
             [](const std::string& file) { return read_dnn_partitioning(file); }},
    Importer{"sapp", [](const std::string& file, ImportNumbers&) { return Imported{read_sapp_chain(file)}; },
             [](const std::string& file) { return read_sapp_layers(file); }},
    Importer{"piper", [](const std::string& file, ImportNumbers&) { return Imported{read_piper_chain(file)}; },
             [](const std::string& file) { return read_piper_graph(file); }},
    Importer{"kineto", [](const std::string& file,
                          ImportNumbers& numbers) { return Imported{read_recorded_graph(file, numbers)}; }},
    Importer{"pytorch-et", [](const std::string& file,
                              ImportNumbers& numbers) { return Imported{read_execution_graph(file, numbers)}; }},
    Importer{"chakra", [](const std::string& file, ImportNumbers&) { return Imported{read_chakra_graph(file)}; }},
    Importer{"onnx",
             [](const std::string& file, ImportNumbers& numbers) { return Imported{read_onnx(file, numbers)}; }},
    Importer{"fx", [](const std::string& file, ImportNumbers& numbers) { return Imported{read_fx(file, numbers)}; }},
};

// No traces.
constexpr std::string_view order_format = "pipeline-csv";
constexpr std::string_view snapshot_format = "memory-snapshot";

std::vector<std::string_view> formats() {
  std::vector<std::string_view> names;
  names.reserve(importers.size() + 2);
  for (const Importer& importer : importers) names.push_back(importer.format);
  names.push_back(order_format);
  names.push_back(snapshot_format);
  return names;
}

/// Whether a table of layers is asked for instead of a trace.
bool wants_layers(const ImportArguments& arguments, const Importer* importer) {
  if (arguments.as.empty()) return false;
  if (importer == nullptr || importer->layers == nullptr) {
    std::vector<std::string_view> names;
    for (const Importer& each : importers) {
      if (each.layers != nullptr) names.push_back(each.format);
    }
    throw InputError(fmt::format("--as: is for {} only", alternatives(names)));
  }
  constexpr std::array<std::string_view, 2> ways{"trace", "layers"};
  if (std::ranges::find(ways, arguments.as) == ways.end()) {
    throw InputError(fmt::format("--as: expected {}, found '{}'{}", alternatives(ways), arguments.as,
                                 suggestion(arguments.as, ways)));
  }
  return arguments.as == "layers";
}

int import_layers(const ImportArguments& arguments, const Importer& importer, const std::string& command_line) {
  if (!arguments.device.empty()) throw InputError("--device: is for traces only, not for tables of layers");
  if (!arguments.numbers.empty()) throw InputError("--set: is for traces only, not for tables of layers");
  LayerTable table = importer.layers(arguments.file);
  table.notes.emplace_back("made_by", made_by(command_line));
  write_layer_table(arguments.trace, table);
  std::cout << fmt::format("{}: {} layers, {} edges\n", arguments.trace, table.layers.size(), table.edges.size());
  return exit_fine;
}

std::string counts_of(const Imported& model) {
  if (const auto* chain = std::get_if<Chain>(&model)) {
    return fmt::format("{} stages, {} parameters", chain->stages.size(), chain->parameters.size());
  }
  const auto& graph = std::get<Graph>(model);
  return fmt::format("{} ops, {} tensors", graph.ops.size(), graph.tensors.size());
}

int import_trace(const ImportArguments& arguments, const Importer& importer, const std::string& command_line) {
  ImportNumbers numbers(arguments.numbers);
  Imported model = importer.import(arguments.file, numbers);
  numbers.refuse_unused();
  Source& source = std::visit([](auto& made) -> Source& { return made.source; }, model);
  if (!arguments.device.empty()) source.device = arguments.device;
  source.notes.emplace_back("made_by", made_by(command_line));
  std::string text = fmt::format("{}: {}\n", arguments.trace, counts_of(model));
  for (const auto& [key, note] : source.notes) {
    if (key == "left_out") text += fmt::format("left out: {}\n", note);
  }
  write_trace(arguments.trace, Trace{std::move(model)});
  std::cout << text;
  return exit_fine;
}

/// Judged, and written without empty cells and FSDP's, B apart where the file has I and W.
int import_order(const ImportArguments& arguments) {
  const OrderFile file = read_order(arguments.file);
  write_text_file(arguments.trace, order_csv(file));
  std::cout << fmt::format("{}: {} devices, {} parts, {} micro-batches\n", arguments.trace, file.order.turns.size(),
                           file.order.rank_of.size(), file.micro_batches);
  if (file.left_out > 0) {
    std::cout << fmt::format("left out: {} cells of FSDP (UNSHARD, RESHARD, REDUCE_GRAD)\n", file.left_out);
  }
  return exit_fine;
}

int run_import(const ImportArguments& arguments, const std::string& command_line) {
  const bool is_no_trace = arguments.format == snapshot_format || arguments.format == order_format;
  if (is_no_trace && !arguments.device.empty()) throw InputError("--device: is for traces only");
  if (is_no_trace && !arguments.numbers.empty()) throw InputError("--set: is for traces only");
  const auto importer = std::ranges::find(importers, std::string_view(arguments.format), &Importer::format);
  const bool layers = wants_layers(arguments, importer == importers.end() ? nullptr : &*importer);
  if (arguments.format == snapshot_format) {
    import_memory_snapshot(arguments.file, arguments.allocator, arguments.trace);
    return exit_fine;
  }
  if (!arguments.allocator.empty()) throw InputError(fmt::format("--allocator: is for {} only", snapshot_format));
  if (const auto known = formats();
      std::ranges::find(known, arguments.format) != known.end() && arguments.trace.empty()) {
    throw InputError("import: expected -o and a file");
  }
  if (arguments.format == order_format) return import_order(arguments);
  if (importer != importers.end()) {
    return layers ? import_layers(arguments, *importer, command_line)
                  : import_trace(arguments, *importer, command_line);
  }
  throw InputError(fmt::format("import: unknown format '{}', expected {}{}", arguments.format, alternatives(formats()),
                               suggestion(arguments.format, formats())));
}

}  // namespace

void add_import_command(CLI::App& app, int& exit_code, const std::string& command_line) {
  CLI::App* command = app.add_subcommand(
      "import", "make a trace, a table of layers or the order of a pipeline from another program's file");
  auto arguments = std::make_shared<ImportArguments>();
  command
      ->add_option(
          "format", arguments->format,
          "format of FILE, unpacked (traces/imports.md): checkmate-graph (JSON: nodes with sizes and costs),\n"
          "dtr-log (log of DTR's simulator simrd), pardnn-dag (lines of ops, then of edges), dot (Graphviz:\n"
          "nodes with times and sizes), pipedream (graph.txt), dnn-partitioning, piper, sapp (JSON of these\n"
          "planners), fx (graphs that torch.compile prints, or lists of their operators with measured times),\n"
          "onnx (a model; its backward is derived), kineto (a step that PyTorch's profiler has recorded on a GPU),\n"
          "pytorch-et (an execution trace of PyTorch), chakra (an execution trace of Chakra: .et or JSON),\n"
          "pipeline-csv (order of a pipeline's turns), "
          "memory-snapshot (pickle of\n"
          "torch.cuda.memory._snapshot()): tells which allocators reserve as much")
      ->required();
  command->add_option("file", arguments->file, "file to read")->required()->type_name("FILE");
  command
      ->add_option("-o,--output", arguments->trace,
                   "file for the trace, table or order; of a memory-snapshot the printed figures, as JSON (optional)")
      ->type_name("TRACE");
  command
      ->add_option("--as", arguments->as,
                   "dnn-partitioning, piper, sapp: trace (the default) or layers (a table for 'plimsoll stages', with\n"
                   "what a trace leaves out)")
      ->type_name("WHAT");
  command
      ->add_option("--device", arguments->device,
                   "of a trace: the device whose times the file has, a platform device's 'model'")
      ->type_name("MODEL");
  command
      ->add_option("--set", arguments->numbers,
                   "of a trace: a number that the file leaves open (fx: layers=24, how often a list's layer comes;\n"
                   "onnx: batch=8, an axis that has a name; kineto and\n"
                   "pytorch-et: step=N, which ProfilerStep; else the last)")
      ->type_name("KEY=N");
  command
      ->add_option("--allocator", arguments->allocator, "memory-snapshot: one more allocator to try, as in 'simulate'")
      ->type_name("NAME");
  command->callback([arguments, &exit_code, &command_line] { exit_code = run_import(*arguments, command_line); });
}

}  // namespace plimsoll
