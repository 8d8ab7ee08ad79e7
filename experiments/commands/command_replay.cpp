#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <memory>

#include "experiments/commands/commands.h"
#include "experiments/export/addresses_file.h"
#include "experiments/export/memory_profile_file.h"
#include "experiments/export/perfetto.h"
#include "experiments/measure/measured_errors.h"
#include "experiments/measure/replayed_network.h"
#include "experiments/study/backends.h"
#include "experiments/study/build_name.h"
#include "experiments/study/understood.h"
#include "sim/engine/event/event_engine.h"
#include "sim/io/input_error.h"
#include "sim/io/json/json.h"
#include "sim/io/quantity.h"
#include "sim/io/schedule/schedule_file.h"
#include "sim/io/text_file.h"
#include "sim/judge/check.h"
#include "validate/networks/networks.h"
#include "validate/replay.h"

namespace plimsoll {
namespace {

struct ReplayArguments {
  BackendArguments backend;
  std::string schedule, trace, platform, pace, repetitions = "5", memory, timeline, memory_profile;
  std::string rounding = "stochastic", seeds = "8", batches = "4", addresses;
  bool json = false, arena = false;
};

std::string reference_of(const Problem& problem, const std::string& trace) {
  const std::optional<std::string> reference = network_reference(problem.graph.source);
  if (reference) return *reference;
  throw InputError(
      fmt::format("trace '{}': its source names no network that 'plimsoll replay' can run; 'plimsoll list traces' "
                  "shows which traces do",
                  trace));
}

/// A GPU's host issues steps in the order in which the simulation expects them.
ReplayOptions options_of(const ReplayArguments& arguments, const Problem& problem, const Schedule& schedule) {
  ReplayOptions options{.pace = arguments.pace == "memcpy" ? Pace::memcpy : Pace::links, .keeps_values = true};
  if (arguments.backend.backend == "cpu") return options;
  if (!arguments.pace.empty())
    throw InputError("--pace: only with --backend cpu; the copies of a GPU have a pace of their own");
  options.expected = simulate_event(schedule, problem.platform);
  return options;
}

/// Of a device's memory, where an allocator was measured.
std::optional<AllocatorPeaks> allocator_of(const Problem& problem, const Replayed& run, std::size_t device) {
  const MemoryId memory = problem.platform.devices[device].memory;
  return run.allocators.empty() ? std::nullopt : run.allocators[memory.index];
}

/// FNV-1a over names and bits: two runs that train alike have the same.
std::uint64_t digest_of(const Replayed& run) {
  std::uint64_t digest = 1469598103934665603ULL;
  const auto add = [&digest](unsigned char byte) { digest = (digest ^ byte) * 1099511628211ULL; };
  for (const auto& [name, value] : run.values) {
    for (const char c : name) add(static_cast<unsigned char>(c));
    for (const std::byte b : value) add(std::to_integer<unsigned char>(b));
  }
  return digest;
}

/// The run of median makespan.
const Replayed& median_of(std::vector<Replayed>& runs) {
  std::ranges::stable_sort(runs, {}, [](const Replayed& run) { return run.timeline.makespan; });
  return runs[runs.size() / 2];
}

Json answer_json(const Problem& problem, const Schedule& schedule, const std::vector<Replayed>& runs,
                 const Replayed& median, const std::string& backend_name, const Backend& backend) {
  Json object{{"backend", backend_name},
              {"library", backend.library()},
              {"device", backend.device()},
              {"strategy", schedule.strategy}};
  if (problem.mesh) object["ranks"] = problem.mesh->ranks();
  object["makespan_s"] = median.timeline.makespan.value;
  object["makespans_s"] = Json::array();
  for (const Replayed& run : runs) object["makespans_s"].push_back(run.timeline.makespan.value);
  const Metrics metrics = measure(problem, schedule, median.timeline);
  object["peak_bytes"] = metrics.peak.count;
  object["recompute_s"] = metrics.recompute.value;
  object["bytes_moved"] = metrics.moved.count;
  object["devices"] = Json::array();
  for (std::size_t d = 0; d < metrics.devices.size(); ++d) {
    const DeviceMetrics& device = metrics.devices[d];
    Json& entry = object["devices"].emplace_back(
        Json{{"name", device.name}, {"peak_live_bytes", device.peak_live.count}, {"busy_s", device.busy.value}});
    const std::optional<AllocatorPeaks> allocator = allocator_of(problem, median, d);
    if (!allocator) continue;
    entry["peak_reserved_bytes"] = allocator->reserved.count;
    entry["peak_allocated_bytes"] = allocator->allocated.count;
  }
  object["trained"] = fmt::format("{:016x}", digest_of(median));
  return object;
}

std::string answer_text(const Problem& problem, const Schedule& schedule, const std::vector<Replayed>& runs,
                        const Replayed& median, const Backend& backend) {
  std::string text =
      fmt::format("{} on {} ({}): {} steps, {} (median of {}, {} to {})\n", schedule.strategy, backend.device(),
                  backend.library(), schedule.steps.size(), format_seconds(median.timeline.makespan), runs.size(),
                  format_seconds(runs.front().timeline.makespan), format_seconds(runs.back().timeline.makespan));
  if (problem.mesh) text += fmt::format("  {} ranks, of which the first was measured\n", problem.mesh->ranks());
  const Metrics metrics = measure(problem, schedule, median.timeline);
  for (std::size_t d = 0; d < metrics.devices.size(); ++d) {
    const DeviceMetrics& device = metrics.devices[d];
    text += fmt::format("  {:<10} peak {} B ({}), busy {}\n", device.name, device.peak_live.count,
                        format_bytes(device.peak_live), format_seconds(device.busy));
    if (const std::optional<AllocatorPeaks> allocator = allocator_of(problem, median, d)) {
      text += fmt::format("  {:<10} reserved {} B ({}), {} B of it in blocks\n", "", allocator->reserved.count,
                          format_bytes(allocator->reserved), allocator->allocated.count);
    }
  }
  return text + fmt::format("  trained    {:016x}: equal where parameters, gradients and states are, to the bit\n",
                            digest_of(median));
}

/// Those of the file, or planned here; nothing where neither is asked for.
std::optional<Addresses> addresses_of(const ReplayArguments& arguments, const Problem& problem,
                                      const Schedule& schedule) {
  if (!arguments.addresses.empty()) return read_addresses(arguments.addresses, schedule, problem.platform);
  if (!arguments.arena) return std::nullopt;
  return judged_addresses(schedule, problem.platform);
}

std::variant<std::unique_ptr<RunnableNetwork>, ReplayFailure> prepared_network(const Problem& problem,
                                                                               const Schedule& schedule,
                                                                               const std::string& reference,
                                                                               Backend& backend) {
  Network network = replayed_network(problem, schedule, reference);
  if (problem.mesh) return backend.prepared_on_ranks(std::move(network), problem);
  return backend.prepared(std::move(network));
}

std::uint32_t number_of(std::string_view option, const std::string& word, std::int64_t most) {
  const Parsed<std::int64_t> number = parse_integer(word);
  if (!number.fine() || number.value < 1 || number.value > most) {
    throw InputError(fmt::format("{}: expected a whole number from 1 to {}, found '{}'", option, most, word));
  }
  return static_cast<std::uint32_t>(number.value);
}

ErrorQuestion errors_asked_by(const ReplayArguments& arguments) {
  constexpr std::int64_t most = 1000;
  return {.seeds = number_of("--seeds", arguments.seeds, most),
          .batches = number_of("--batches", arguments.batches, most),
          .rounding = understood<Rounding>("--rounding", arguments.rounding)};
}

int run_replay(const ReplayArguments& arguments, const std::string& command_line) {
  const Schedule schedule = read_schedule(arguments.schedule);
  const Question question = question_of(schedule, arguments.schedule, arguments.trace, arguments.platform);
  Problem problem = problem_of_file(schedule, arguments.schedule, question);
  if (!arguments.memory.empty()) {
    const Parsed<Bytes> capacity = parse_bytes(arguments.memory);
    if (!capacity.fine()) throw InputError("--memory: " + capacity.complaint);
    for (Memory& memory : problem.platform.memories) {
      if (memory.device) memory.capacity = capacity.value;
    }
  }
  const std::uint32_t repetitions = number_of("--repetitions", arguments.repetitions, 10'000);
  const ErrorQuestion errors_asked = errors_asked_by(arguments);
  const std::string reference = reference_of(problem, question.trace);
  ReplayOptions options = options_of(arguments, problem, schedule);
  options.chance.rounding = errors_asked.rounding;
  const std::optional<Addresses> addresses = addresses_of(arguments, problem, schedule);
  if (addresses) options.addresses = &*addresses;
  const std::unique_ptr<Backend> backend = make_backend(reference, arguments.backend);
  const auto prepared = prepared_network(problem, schedule, reference, *backend);
  if (const auto* failure = std::get_if<ReplayFailure>(&prepared)) {
    std::cerr << fmt::format("{}: {}\n", arguments.schedule, failure->what);
    return exit_no_result;
  }
  const auto& network = std::get<std::unique_ptr<RunnableNetwork>>(prepared);
  std::vector<Replayed> runs;
  for (std::uint32_t r = 0; r <= repetitions; ++r) {  // the first one warms up
    options.empties_pools = r == 0;
    std::variant<Replayed, ReplayFailure> outcome = replay(problem, schedule, *network, options);
    if (const auto* failure = std::get_if<ReplayFailure>(&outcome)) {
      std::cerr << fmt::format("{}: {}\n", arguments.schedule, failure->what);
      return exit_no_result;
    }
    if (r > 0) runs.push_back(std::move(std::get<Replayed>(outcome)));
  }
  const auto compared = measure_errors(problem, schedule, *network, errors_asked);
  if (const auto* failure = std::get_if<ReplayFailure>(&compared)) {
    std::cerr << fmt::format("{}: {}\n", arguments.schedule, failure->what);
    return exit_no_result;
  }
  const auto& errors = std::get<std::optional<MeasuredErrors>>(compared);
  const Replayed& median = median_of(runs);
  if (!arguments.timeline.empty()) {
    write_text_file(arguments.timeline, perfetto_timeline(problem, schedule, median.timeline, made_by(command_line)));
  }
  if (!arguments.memory_profile.empty()) {
    write_memory_profile(arguments.memory_profile, problem, schedule, median.timeline, made_by(command_line));
  }
  if (arguments.json) {
    Json answer = answer_json(problem, schedule, runs, median, arguments.backend.backend, *backend);
    if (errors) answer["gradient_error"] = errors_json(problem, schedule, *errors, errors_asked.rounding);
    std::cout << json_text(answer, 2) << '\n';
  } else {
    std::cout << answer_text(problem, schedule, runs, median, *backend)
              << (errors ? errors_text(problem, schedule, *errors, errors_asked.rounding) : "");
  }
  return exit_fine;
}

}  // namespace

void add_replay_command(CLI::App& app, int& exit_code, const std::string& command_line) {
  CLI::App* command = app.add_subcommand("replay", "run a schedule with real tensors and kernels, and measure it");
  command->footer(
      "  plimsoll simulate --trace gpt:layers=4 --platform ideal --strategy rotor --memory '18 MB' --schedule-out "
      "s.json\n"
      "  plimsoll replay --schedule s.json --backend cpu");
  auto arguments = std::make_shared<ReplayArguments>();
  command->add_option("--schedule", arguments->schedule, "schedule file")->required()->type_name("FILE");
  command
      ->add_option("-t,--trace", arguments->trace,
                   "trace of the schedule, of a network such as mlp:layers=8 (default: the one that the file names)")
      ->type_name("TRACE");
  command
      ->add_option("-p,--platform", arguments->platform,
                   "platform of the schedule (default: the one that the file names)")
      ->type_name("PLATFORM");
  add_backend_options(*command, arguments->backend);
  CLI::Option* addresses =
      command
          ->add_option("--addresses", arguments->addresses,
                       "run from one block a device, with buffers and workspaces where FILE of 'plan --addresses' has "
                       "them")
          ->type_name("FILE");
  command->add_flag("--arena", arguments->arena, "the same with addresses that are planned here")->excludes(addresses);
  command
      ->add_option("--pace", arguments->pace,
                   "pace of copies on the CPU: links (at least the time on the platform's links; the default) or "
                   "memcpy\n(as fast as the CPU copies)")
      ->check(CLI::IsMember({"links", "memcpy"}));
  command->add_option("-m,--memory", arguments->memory, "capacity of each device (default: that of the platform)")
      ->type_name("SIZE");
  command
      ->add_option("--repetitions", arguments->repetitions,
                   "number of measured runs after one warm-up run; the median counts")
      ->capture_default_str()
      ->type_name("N");
  command
      ->add_option("--rounding", arguments->rounding,
                   "how quantization rounds: stochastic (as the published systems do) or nearest")
      ->capture_default_str()
      ->type_name("NAME");
  command
      ->add_option("--seeds", arguments->seeds,
                   "number of runs with other random numbers over which the error of approximate gradients is taken")
      ->capture_default_str()
      ->type_name("N");
  command
      ->add_option("--batches", arguments->batches,
                   "number of other batches whose exact gradients the error is compared with")
      ->capture_default_str()
      ->type_name("N");
  command->add_option("--timeline", arguments->timeline, "write the measured timeline to FILE, for ui.perfetto.dev")
      ->type_name("FILE");
  command
      ->add_option("--memory-profile", arguments->memory_profile,
                   "write live bytes over time to FILE (CSV); if its name ends with .json, the tensors in each memory "
                   "at\nits peak")
      ->type_name("FILE");
  command->add_flag("--json", arguments->json, "print one JSON object");
  command->callback([arguments, &exit_code, &command_line] { exit_code = run_replay(*arguments, command_line); });
}

}  // namespace plimsoll
