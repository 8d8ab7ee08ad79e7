#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>
#include <memory>

#include "experiments/commands/commands.h"
#include "sim/io/input_error.h"
#include "sim/io/json/json.h"
#include "sim/io/quantity.h"
#include "strategies/rematerialization/dtr/dtr_banishing.h"
#include "traces/imports/dtr_log.h"

namespace plimsoll {
namespace {

constexpr std::array heuristic_names{"dtr", "dtr_eq", "local", "lru", "size", "msps", "random"};

struct ReplayLogArguments {
  std::string log, memory, heuristic = "dtr", release = "evict", seed = "0", thrash_limit = "2";
  bool json = false;
};

/// `3 GB`, or `50 %` of what the log needs without a budget.
std::optional<Bytes> budget_of(const std::string& memory, const DtrBaseline& baseline) {
  if (memory.empty()) return std::nullopt;
  if (memory.ends_with('%')) {
    std::string_view number(memory.data(), memory.size() - 1);
    while (number.ends_with(' ')) number.remove_suffix(1);
    const Parsed<double> percent = parse_number(number);
    if (!percent.fine() || !(percent.value > 0) || percent.value > 1000) {
      throw InputError(fmt::format("--memory: expected a share above 0 % and up to 1000 %, found '{}'", memory));
    }
    return Bytes{std::llround(percent.value / 100 * static_cast<double>(baseline.memory.count))};
  }
  const Parsed<Bytes> budget = parse_bytes(memory);
  if (!budget.fine()) throw InputError("--memory: " + budget.complaint);
  return budget.value;
}

DtrOptions options_of(const ReplayLogArguments& arguments, const DtrBaseline& baseline) {
  DtrOptions options{.budget = budget_of(arguments.memory, baseline)};
  const std::optional<DtrHeuristic> heuristic = from_name<DtrHeuristic>(arguments.heuristic);
  if (!heuristic) {
    const std::vector<std::string_view> names(heuristic_names.begin(), heuristic_names.end());
    throw InputError(fmt::format("--heuristic: expected {}, found '{}'{}", alternatives(names), arguments.heuristic,
                                 suggestion(arguments.heuristic, names)));
  }
  options.heuristic = *heuristic;
  if (arguments.release == "banish" && !can_banish(*heuristic)) {
    throw InputError("--release banish: with --heuristic local, lru, size or random only");
  }
  const Parsed<std::int64_t> seed = parse_integer(arguments.seed);
  if (!seed.fine() || seed.value < 0) {
    throw InputError(fmt::format("--seed: expected a whole number from 0 on, found '{}'", arguments.seed));
  }
  options.seed = static_cast<std::uint64_t>(seed.value);
  const Parsed<double> limit = parse_number(arguments.thrash_limit);
  if (!limit.fine() || !(limit.value >= 1) || limit.value > 1000) {
    throw InputError(
        fmt::format("--thrash-limit: expected a number from 1 to 1000, found '{}'", arguments.thrash_limit));
  }
  options.rematerialization_limit = std::llround((limit.value - 1) * static_cast<double>(baseline.compute));
  return options;
}

/// Without those that only put constants there.
std::ptrdiff_t calls_of(const OpLog& log) {
  return std::ranges::count_if(log.calls, [](const LoggedCall& call) { return call.keep != Keep::forever; });
}

std::string_view name_of(DtrEnd end) {
  if (end == DtrEnd::finished) return "finished";
  return end == DtrEnd::thrashing ? "thrashing" : "out_of_memory";
}

double overhead_of(const DtrRun& run, const DtrBaseline& baseline) {
  return baseline.compute > 0 ? static_cast<double>(run.clock) / static_cast<double>(baseline.compute) : 1;
}

Json json_of(const ReplayLogArguments& arguments, const OpLog& log, const DtrOptions& options,
             const DtrBaseline& baseline, const DtrRun& run) {
  return {{"log", arguments.log},
          {"calls", calls_of(log)},
          {"heuristic", arguments.heuristic},
          {"release", arguments.release},
          {"seed", options.seed},
          {"memory_budget_bytes", options.budget ? Json(options.budget->count) : Json(nullptr)},
          {"end", name_of(run.end)},
          {"clock_ns", run.clock},
          {"overhead", overhead_of(run, baseline)},
          {"evictions", run.evictions},
          {"eager_evictions", run.eager_evictions},
          {"rematerializations", run.rematerializations},
          {"rematerialization_ns", run.rematerialization_time},
          {"peak_bytes", run.peak.count},
          {"baseline_ns", baseline.compute},
          {"baseline_bytes", baseline.memory.count}};
}

std::string text_of(const ReplayLogArguments& arguments, const OpLog& log, const DtrOptions& options,
                    const DtrBaseline& baseline, const DtrRun& run) {
  const auto time = [](std::int64_t ns) { return format_seconds(Seconds{1e-9 * static_cast<double>(ns)}); };
  std::string text = fmt::format("{}: {} calls, {}, {} without a budget\n", arguments.log, calls_of(log),
                                 time(baseline.compute), format_bytes(baseline.memory));
  text += fmt::format("{} within {}: {}\n", arguments.heuristic,
                      options.budget ? format_bytes(*options.budget) : "unlimited memory", name_of(run.end));
  text += fmt::format("  clock            {:>12}   {} ns, {:.4f} of the calls' time\n", time(run.clock), run.clock,
                      overhead_of(run, baseline));
  text += fmt::format("  evictions        {:>12}   for want of room; {} more when nobody referred to them any more\n",
                      run.evictions, run.eager_evictions);
  text +=
      fmt::format("  rematerialized   {:>12}   calls, {}\n", run.rematerializations, time(run.rematerialization_time));
  return text + fmt::format("  peak memory      {:>12}   {} B\n", format_bytes(run.peak), run.peak.count);
}

int run_replay_log(const ReplayLogArguments& arguments) {
  const OpLog log = read_dtr_log(arguments.log);
  const DtrBaseline baseline = dtr_baseline(log);
  const DtrOptions options = options_of(arguments, baseline);
  const DtrRun run = arguments.release == "banish" ? run_dtr_banishing(log, options) : run_dtr(log, options);
  std::cout << (arguments.json ? json_text(json_of(arguments, log, options, baseline, run), 2) + "\n"
                               : text_of(arguments, log, options, baseline, run));
  if (run.end == DtrEnd::thrashing) {
    std::cerr << fmt::format("thrashing: more than {} times the calls' time, see --thrash-limit\n",
                             arguments.thrash_limit);
  }
  return run.end == DtrEnd::finished ? exit_fine : exit_no_result;
}

}  // namespace

void add_replay_log_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "replay-log", "replay a log of DTR's simulator within a budget, with eviction and rematerialization");
  auto arguments = std::make_shared<ReplayLogArguments>();
  command->add_option("log", arguments->log, "log of the simulator simrd, unpacked (traces/imports.md)")
      ->required()
      ->type_name("FILE");
  command
      ->add_option("-m,--memory", arguments->memory,
                   "memory budget: a size such as '16 GB', or a share such as '50 %' of the log's peak without "
                   "a\nbudget (default: unlimited)")
      ->type_name("SIZE");
  command
      ->add_option("--heuristic", arguments->heuristic,
                   "heuristic that chooses what to evict: dtr, dtr_eq, local, lru, size, msps or random")
      ->capture_default_str()
      ->type_name("NAME");
  command
      ->add_option("--release", arguments->release,
                   "what happens to a value that is no longer referenced: evict (it may be recomputed) or banish (it "
                   "is\nfreed for good)")
      ->capture_default_str()
      ->check(CLI::IsMember({"evict", "banish"}));
  command->add_option("--seed", arguments->seed, "seed of --heuristic random")->capture_default_str()->type_name("N");
  command
      ->add_option("--thrash-limit", arguments->thrash_limit,
                   "stop when rematerialization has taken (X - 1) times the time of all calls")
      ->capture_default_str()
      ->type_name("X");
  command->add_flag("--json", arguments->json, "print one JSON object");
  command->footer(
      "Clock, evictions and rematerializations equal those of simrd to the digit. The exit code is 1 if the budget is "
      "too\nsmall or the run thrashes.\n  plimsoll replay-log traces/data/dtr_linear40.log --memory '60 %' --heuristic "
      "dtr_eq");
  command->callback([arguments, &exit_code] { exit_code = run_replay_log(*arguments); });
}

}  // namespace plimsoll
