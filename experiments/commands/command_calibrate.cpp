// plimsoll calibrate: a machine as a platform; measured times as a table of efficiencies

#include <fmt/format.h>

#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <vector>

#include "experiments/commands/commands.h"
#include "experiments/measure/calibration.h"
#include "experiments/measure/exchange_rates.h"
#include "experiments/recordings/recorded_graph.h"
#include "experiments/study/backends.h"
#include "experiments/study/build_name.h"
#include "experiments/study/progress.h"
#include "experiments/sweep/worker_pool.h"
#include "platforms/efficiency_file.h"
#include "platforms/efficiency_fit.h"
#include "platforms/platform_file.h"
#include "platforms/recorded_efficiency.h"
#include "platforms/sort_shares.h"
#include "platforms/written_platform.h"
#include "sim/core/names.h"
#include "sim/io/input_error.h"
#include "sim/io/quantity.h"
#include "sim/io/text_file.h"
#include "validate/network_model.h"
#include "validate/replay.h"

namespace plimsoll {
namespace {

struct CalibrateArguments {
  BackendArguments backend;
  std::string platform, output, trace, trace_out, optimizer = "none", repetitions = "15";
  std::vector<std::string> numbers;                                                          ///< of recordings
  std::string file, of, dtype = "bf16", kernel_floor = "2 us", source, with, grid = "thin";  ///< of tables
};

constexpr const char *table_word = "table", *recording_word = "recording", *collectives_word = "collectives";

/// What the efficiencies at `with` say, and the new tables in place of theirs.
Efficiency joined(Efficiency with, FittedTable fitted, const std::string& measured_in) {
  Efficiency& made = fitted.efficiency;
  for (const auto& [sort, share] : fitted.shares) set_share(with, sort, measured_in, share);
  with.name = std::move(made.name);
  for (auto& [dtype, grid] : made.product) with.product.insert_or_assign(dtype, std::move(grid));
  for (auto& [dtype, grid] : made.batched_product_by_size) {
    with.batched_product_by_size.insert_or_assign(dtype, std::move(grid));
  }
  for (auto& [kind, grid] : made.collectives) with.collectives.insert_or_assign(kind, std::move(grid));
  for (const auto& [sort, spread] : made.spread) with.spread.insert_or_assign(sort, spread);
  for (auto& [dtype, grids] : made.attention) with.attention.insert_or_assign(dtype, std::move(grids));
  return with;
}

int make_table(const CalibrateArguments& arguments) {
  const auto needs = [](const std::string& value, const char* what) {
    if (value.empty()) throw InputError(fmt::format("calibrate table: needs {}", what));
  };
  needs(arguments.file, "a FILE.csv of measured times");
  needs(arguments.of, "--of PLATFORM, whose first device was measured");
  needs(arguments.source, "--source TEXT: where the times come from");
  const Platform platform = load_platform(arguments.of);
  const Parsed<Seconds> floor = parse_seconds(arguments.kernel_floor);
  const bool is_full = arguments.grid == "full";
  if (!is_full && arguments.grid != "thin") {
    throw InputError(fmt::format("--grid: expected thin or full, found '{}'", arguments.grid));
  }
  if (!floor.fine()) throw InputError("--kernel-floor: " + floor.complaint);
  const FittedTable fitted = fitted_table(read_text_file(arguments.file), arguments.file, platform.devices.front(),
                                          {.name = std::filesystem::path(arguments.output).stem(),
                                           .dtype = arguments.dtype,
                                           .kernel_floor = floor.value,
                                           .grid = is_full ? TableGrid::full : TableGrid::thin});
  const Efficiency whole =
      arguments.with.empty() ? fitted.efficiency : joined(load_efficiency(arguments.with), fitted, arguments.dtype);
  write_text_file(arguments.output, written_efficiency(whole, arguments.source));
  const std::string rooflines =
      fitted.roofline_error > 0 ? fmt::format(" (rooflines: {:.1f} %)", 100 * fitted.roofline_error) : "";
  std::cout << fmt::format("{}: {} rows as {} numbers, {:.1f} % off in the mean{}\n", arguments.output, fitted.rows,
                           fitted.grid_points, 100 * fitted.mean_error, rooflines);
  for (const auto& [sort, share] : fitted.shares) std::cout << fmt::format("share of {}: {:.4g}\n", sort, share);
  const char* rows = fitted.shares.empty() ? "by rows held out" : "of its own rows";
  for (const auto& [sort, spread] : fitted.efficiency.spread) {
    std::cout << fmt::format("spread of {}: {:.3g} to {:.3g}, {}\n", sort, spread.low, spread.high, rows);
  }
  return exit_fine;
}

int make_of_recording(const CalibrateArguments& arguments) {
  const auto needs = [](const std::string& value, const char* what) {
    if (value.empty()) throw InputError(fmt::format("calibrate recording: needs {}", what));
  };
  needs(arguments.file, "a FILE of PyTorch's profiler");
  needs(arguments.of, "--of PLATFORM, whose first device was recorded");
  if (!arguments.with.empty()) throw InputError("--with: is for tables; a recording makes shares, no table");
  const Platform platform = load_platform(arguments.of);
  ImportNumbers numbers(arguments.numbers);
  const Graph graph = read_recorded_graph(arguments.file, numbers);
  numbers.refuse_unused();
  const Device& device = platform.devices.front();
  const RecordedEfficiency made =
      recorded_efficiency(graph, device, std::filesystem::path(arguments.output).stem().string());
  const std::string source = fmt::format(
      "shares of {}'s peaks and bandwidth with which the kernels of the recorded step '{}' take as long as "
      "they did on '{}', 'plimsoll calibrate recording', {}{}{}",
      device.name, std::filesystem::path(arguments.file).filename().string(), graph.source.device, today(),
      arguments.source.empty() ? "" : "; ", arguments.source);
  write_text_file(arguments.output, platform_with_efficiency(arguments.of, made.efficiency, source));
  std::cout << fmt::format("{}: use it by -p {}; its efficiencies on another platform by -p 'PLATFORM:efficiency={}'\n",
                           arguments.output, arguments.output, arguments.output);
  for (const RecordedSort& sort : made.sorts) {
    std::cout << fmt::format("{}: {:.3g}, of {} ops in {}; a kernel is {:.0f} % off in the mean\n", sort.key,
                             sort.share, sort.kernels, format_seconds(sort.measured), 100 * sort.mean_error);
  }
  if (made.others > 0) {
    std::cout << fmt::format("no sort of their own: {} ops in {}\n", made.others, format_seconds(made.of_others));
  }
  return exit_fine;
}

std::size_t repetitions_of(const CalibrateArguments& arguments) {
  const Parsed<std::int64_t> count = parse_integer(arguments.repetitions);
  if (count.fine() && count.value >= 1 && count.value <= 10'000) return static_cast<std::size_t>(count.value);
  throw InputError(
      fmt::format("--repetitions: expected a whole number from 1 to 10000, found '{}'", arguments.repetitions));
}

/// Says what is measured next, until Ctrl-C has come.
std::function<bool(const std::string&)> proceed_until(const Interruption& interruption) {
  return [&interruption](const std::string& next) {
    if (interruption.asked()) return false;
    std::cerr << "measuring " << next << '\n';
    return true;
  };
}

/// What ranks of this machine exchange, as the platform's model has it beside it.
int measure_collectives(const CalibrateArguments& arguments) {
  if (arguments.of.empty()) {
    throw InputError("calibrate collectives: needs --of PLATFORM, with a device for each rank");
  }
  const std::size_t repetitions = repetitions_of(arguments);
  const Platform platform = load_platform(arguments.of);
  const Interruption interruption;
  const auto proceed = proceed_until(interruption);
  std::vector<Bytes> sizes{Bytes{1 << 16}, Bytes{1 << 20}, Bytes{1 << 24}};
  if (arguments.backend.backend != "cpu") sizes.emplace_back(Bytes{1 << 28});
  const auto measured = measured_exchanges(*make_backend(arguments.backend), platform, sizes, repetitions, proceed);
  if (!measured) return exit_interrupted;
  write_text_file(arguments.output, exchanges_csv(*measured));
  std::cout << arguments.output << '\n' << exchanges_text(*measured);
  return exit_fine;
}

/// Times of every op of a network, in place; nothing if asked to stop.
std::optional<Trace> measured_trace(const CalibrateArguments& arguments, const Platform& platform,
                                    std::size_t repetitions, const MeasuredBy& by, Backend& backend,
                                    const Interruption& interruption) {
  NamedNetwork named = named_network(arguments.trace);
  const bool is_chain = named.view == View::chain;
  const Trace plain{model_of(backend.prepared(std::move(named.network))->network(), named.view)};
  const std::optional<Optimizer> optimizer = from_name<Optimizer>(arguments.optimizer);
  if (!optimizer) throw InputError("--optimizer: expected none, sgd, momentum or adam");
  std::variant<Problem, std::string> made =
      make_problem(plain.model, platform,
                   {.optimizer = is_chain ? *optimizer : Optimizer::none, .update_kernels = UpdateKernels::single});
  if (const std::string* why = std::get_if<std::string>(&made)) throw InputError(*why);
  const Problem& problem = std::get<Problem>(made);
  const std::unique_ptr<RunnableNetwork> network =
      backend.prepared(named_network(arguments.trace, is_chain ? optimizer : std::optional<Optimizer>()).network);
  const auto run = [&](const Problem& of, const Schedule& sweeps) {
    std::variant<Replayed, ReplayFailure> outcome = replay(of, sweeps, *network, {});
    if (const auto* failure = std::get_if<ReplayFailure>(&outcome)) throw InputError(failure->what);
    return std::get<Replayed>(std::move(outcome)).timeline;
  };
  const Schedule sweeps = calibration_schedule(problem);
  std::optional<SplitBackwards> split = split_backwards(plain, platform, *optimizer);
  OpTimes times;
  Progress progress(repetitions + 1);
  for (std::size_t r = 0; r <= repetitions; ++r) {  // the first one warms up
    if (interruption.asked()) return std::nullopt;
    const Timeline whole = run(problem, sweeps);
    if (r > 0) times.add(problem.graph, sweeps, whole);
    if (split) {
      const Timeline parts = run(split->problem, split->sweeps);
      if (r > 0) split->times.add(split->problem.graph, split->sweeps, parts);
    }
    progress.add(true);
    progress.show();
  }
  return calibrated_trace(plain, problem, times, split, by);
}

int run_calibrate(const CalibrateArguments& arguments, const std::string& command_line) {
  if (arguments.platform == table_word) return make_table(arguments);
  if (arguments.platform == recording_word) return make_of_recording(arguments);
  if (arguments.platform == collectives_word) return measure_collectives(arguments);
  if (!arguments.numbers.empty()) throw InputError("--set: is for 'calibrate recording'");
  if (!arguments.file.empty()) {
    throw InputError(fmt::format("'{}': 'calibrate table FILE.csv' reads a file of times", arguments.file));
  }
  const std::size_t repetitions = repetitions_of(arguments);
  if (arguments.trace.empty() != arguments.trace_out.empty()) {
    throw InputError("calibrate: --trace and --trace-out belong together");
  }
  if (!arguments.trace.empty() && !is_network(arguments.trace)) {
    throw InputError(
        fmt::format("--trace: '{}' is not a network that can be run; 'plimsoll list traces' shows these networks",
                    arguments.trace));
  }
  const Platform shape = load_platform(arguments.platform);
  const Interruption interruption;
  const auto proceed = proceed_until(interruption);
  const std::unique_ptr<Backend> backend =
      arguments.trace.empty() ? make_backend(arguments.backend) : make_backend(arguments.trace, arguments.backend);
  const std::optional<MachineRates> rates =
      backend->measure(pace_to_host(shape), pace_to_device(shape), repetitions, proceed);
  if (!rates) return exit_interrupted;
  const MeasuredBy by{made_by(command_line), today(), backend->device(), backend->library()};
  const std::string name = std::filesystem::path(arguments.output).stem();
  const std::string text = calibrated_platform(shape, name, *rates, by);
  write_text_file(arguments.output, text);
  std::cout << arguments.output << '\n';
  if (arguments.trace.empty()) return exit_fine;
  const std::optional<Trace> trace =
      measured_trace(arguments, parse_platform(text, arguments.output), repetitions, by, *backend, interruption);
  if (!trace) return exit_interrupted;
  write_trace(arguments.trace_out, *trace);
  std::cout << arguments.trace_out << '\n';
  return exit_fine;
}

}  // namespace

void add_calibrate_command(CLI::App& app, int& exit_code, const std::string& command_line) {
  CLI::App* command =
      app.add_subcommand("calibrate",
                         "measure this machine as a platform and, if asked, a network as a trace; or make "
                         "efficiencies of measured times, or a platform of a recorded step");
  command->footer(
      "The measured platform has the devices, capacities and links of PLATFORM; copies are slowed down to the "
      "bandwidth\nof its link. Ctrl-C keeps the files that are finished:\n  plimsoll calibrate validate/cpu_link.yaml "
      "--backend cpu -o mine.yaml --trace gpt:layers=4 --trace-out gpt.json\n"
      "'calibrate table FILE.csv' makes efficiencies from times that others measured. Columns m,n,k,time_us: products\n"
      "y(m, n) = x(m, k) w(k, n); with a column batch so many by one kernel. Columns "
      "batch,sequence,heads,head_size,time_us: causal attention, forward.\n"
      "Columns operation,ranks,bytes,time_us: collectives in a node, as nccl-tests measures them.\n"
      "Columns sort,flops,bytes,time_us: kernels of whole sorts, such as elementwise, norm and convolution.\n"
      "'calibrate collectives' measures these between this machine's GPUs, or between threads, and shows what the "
      "model\n"
      "says on the platform of --of:\n"
      "  plimsoll calibrate collectives --of h100_sxm_8 --backend cuda -o nccl.csv\n"
      "Shares are of the roofline of a platform's first device:\n"
      "  plimsoll calibrate table products.csv --of h200 -o mine.yaml --source \"my H200, torch 2.6, 2026-11-27\"\n"
      "'calibrate recording FILE' makes a platform from a step on a GPU that PyTorch's profiler recorded, with "
      "shapes:\n"
      "that of --of with a share for each sort of kernel, with which its kernels together take as long as they did:\n"
      "  plimsoll calibrate recording tests/traces/foreign/kineto_gpt2_h100.json.gz --of h100_sxm_8 -o mine.yaml");
  auto arguments = std::make_shared<CalibrateArguments>();
  command
      ->add_option("platform", arguments->platform,
                   "platform file with one device, one host and one link; or the word 'table', 'recording' or "
                   "'collectives'")
      ->required()
      ->type_name("PLATFORM");
  command
      ->add_option("file", arguments->file,
                   "behind 'table': measured times; behind 'recording': a step; perhaps compressed by gzip")
      ->type_name("FILE");
  add_backend_options(*command, arguments->backend);
  command
      ->add_option("-o,--output", arguments->output,
                   "file for the platform or the efficiencies; its name becomes theirs")
      ->required()
      ->type_name("NEW.yaml");
  command->add_option("-t,--trace", arguments->trace, "network whose ops are measured too")->type_name("NETWORK");
  command->add_option("--trace-out", arguments->trace_out, "file for the trace of the network")->type_name("FILE");
  command->add_option("--optimizer", arguments->optimizer, "optimizer whose updates are measured with a chain")
      ->capture_default_str()
      ->type_name("NAME");
  command->add_option("--repetitions", arguments->repetitions, "number of samples after one for warm-up; medians count")
      ->capture_default_str()
      ->type_name("N");
  command
      ->add_option("--of", arguments->of,
                   "whose first device was measured, of a table or recording; of collectives a device for each rank")
      ->type_name("PLATFORM");
  command
      ->add_option("--source", arguments->source,
                   "where the times come from: software, date, licence; of a recording in addition to what it says")
      ->type_name("TEXT");
  command->add_option("--dtype", arguments->dtype, "what was computed in, as the platform's peaks have it, of a table")
      ->capture_default_str()
      ->type_name("NAME");
  command->add_option("--kernel-floor", arguments->kernel_floor, "time of the shortest kernel, of a table")
      ->capture_default_str()
      ->type_name("TIME");
  command
      ->add_option(
          "--grid", arguments->grid,
          "sizes of a table: thin, usual ones, or full, all that were measured, with some 30 times the numbers")
      ->capture_default_str()
      ->type_name("thin|full");
  command->add_option("--set", arguments->numbers, "number that a recording leaves open, such as step=3")
      ->type_name("NAME=N");
  command->add_option("--with", arguments->with, "efficiencies that a table joins: a file or a shipped name")
      ->type_name("EFFICIENCY");
  command->callback([arguments, &exit_code, &command_line] { exit_code = run_calibrate(*arguments, command_line); });
}

}  // namespace plimsoll
