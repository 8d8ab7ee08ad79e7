// plimsoll compare

#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <optional>

#include "experiments/commands/commands.h"
#include "experiments/measure/pytorch_measurement.h"
#include "experiments/study/percent.h"
#include "sim/io/input_error.h"
#include "sim/io/json/json.h"
#include "sim/io/quantity.h"
#include "validate/profiler/memory_curve.h"
#include "validate/profiler/timeline_summary.h"

namespace plimsoll {
namespace {

struct CompareArguments {
  std::string simulated, measured, within, pytorch;
  bool json = false;
};

/// A row of a kind, or of the whole. One recording alone has nothing simulated.
struct CompareRow {
  std::string what;
  std::optional<IterationTime> simulated;
  IterationTime measured;

  Json error() const {
    return simulated && measured.median.value > 0 ? Json(simulated->median / measured.median - 1) : Json(nullptr);
  }
};

IterationTime time_of(const TimelineSummary& summary, Activity activity) {
  const auto found = summary.activities.find(activity);
  return found == summary.activities.end() ? IterationTime{} : found->second;
}

std::vector<CompareRow> rows_of(const TimelineSummary* simulated, const TimelineSummary& measured) {
  std::vector<CompareRow> rows{{"whole", simulated ? std::optional(simulated->whole) : std::nullopt, measured.whole}};
  for (const auto& [activity, name] : Names<Activity>::all) {
    const bool is_in_either =
        measured.activities.contains(activity) || (simulated && simulated->activities.contains(activity));
    if (!is_in_either) continue;
    rows.push_back(
        {name, simulated ? std::optional(time_of(*simulated, activity)) : std::nullopt, time_of(measured, activity)});
  }
  return rows;
}

/// `+3.2 %`
std::string percent(double part) {
  return fmt::format("{:+.1f} %", in_percent(part, 1));
}

/// Cells by row, the first row being the heads.
using Cells = std::vector<std::vector<std::string>>;

/// The first column to the left, all others to the right; rows may be short.
std::string aligned(const Cells& cells) {
  std::vector<std::size_t> widths;
  for (const auto& row : cells) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  for (const auto& row : cells) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      line += c == 0 ? fmt::format("{:<{}}", row[c], widths[c]) : fmt::format("  {:>{}}", row[c], widths[c]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

void add_time_row(Cells& cells, const CompareRow& row, bool is_pair, bool with_spread) {
  std::vector<std::string>& made = cells.emplace_back(1, row.what);
  if (is_pair) made.push_back(row.simulated ? format_seconds(row.simulated->median) : "");
  made.push_back(format_seconds(row.measured.median));
  if (is_pair) made.push_back(row.error().is_null() ? "" : percent(row.error().get<double>()));
  if (!with_spread) return;
  made.push_back(format_seconds(row.measured.least));
  made.push_back(format_seconds(row.measured.most));
}

void add_memory_row(Cells& cells, const std::string& what, const TimelineSummary* simulated,
                    const TimelineSummary& measured, Bytes MemoryCurve::*part) {
  if (!measured.memory || (simulated && !simulated->memory)) return;
  const Bytes b = (*measured.memory).*part;
  std::vector<std::string>& made = cells.emplace_back(1, what);
  if (simulated) made.push_back(std::to_string(((*simulated->memory).*part).count));
  made.push_back(std::to_string(b.count));
  if (simulated) made.push_back(std::to_string(((*simulated->memory).*part - b).count));
}

std::string table_text(const TimelineSummary* simulated, const TimelineSummary& measured) {
  const bool is_pair = simulated != nullptr, with_spread = measured.iterations > 1;
  Cells cells{{""}};
  if (is_pair) cells[0].push_back("simulated");
  cells[0].push_back(is_pair ? "measured" : "time");
  if (is_pair) cells[0].push_back("error");
  if (with_spread) cells[0].insert(cells[0].end(), {"least", "most"});
  for (const CompareRow& row : rows_of(simulated, measured)) add_time_row(cells, row, is_pair, with_spread);
  if (measured.idle) {
    add_time_row(cells, {"idle", simulated ? simulated->idle : std::nullopt, *measured.idle}, is_pair, with_spread);
  }
  add_memory_row(cells, "live peak B", simulated, measured, &MemoryCurve::peak);
  add_memory_row(cells, "live mean B", simulated, measured, &MemoryCurve::mean);
  std::string text = aligned(cells);
  if (!simulated || !simulated->memory || !measured.memory) return text;
  const CurveDistance apart = distance(*simulated->memory, *measured.memory);
  return text + fmt::format("over the iteration live bytes differ by {} on average, by {} at most ({} % into it)\n",
                            format_bytes(apart.mean), format_bytes(apart.most), apart.most_at);
}

Json seconds_json(const std::optional<IterationTime>& time) {
  return time ? Json(time->median.value) : Json(nullptr);
}

Json times_json(const std::vector<CompareRow>& rows) {
  Json kinds = Json::array();
  for (const CompareRow& row : rows) {
    kinds.push_back({{"kind", row.what},
                     {"simulated_s", seconds_json(row.simulated)},
                     {"measured_s", row.measured.median.value},
                     {"error", row.error()},
                     {"measured_least_s", row.measured.least.value},
                     {"measured_most_s", row.measured.most.value},
                     {"measured_recorded_s", row.measured.recorded.value}});
  }
  return kinds;
}

Json peak_json(const std::optional<MemoryCurve>& memory) {
  return memory ? Json(memory->peak.count) : Json(nullptr);
}

Json curve_json(const std::optional<MemoryCurve>& memory) {
  if (!memory) return nullptr;
  Json bytes = Json::array();
  for (const Bytes each : memory->at) bytes.push_back(each.count);
  return bytes;
}

Json memory_json(const TimelineSummary& simulated, const TimelineSummary& measured) {
  Json json{{"simulated_bytes", curve_json(simulated.memory)}, {"measured_bytes", curve_json(measured.memory)}};
  if (!simulated.memory || !measured.memory) return json;
  const CurveDistance apart = distance(*simulated.memory, *measured.memory);
  json["mean_difference_bytes"] = apart.mean.count;
  json["most_difference_bytes"] = apart.most.count;
  json["most_at_percent"] = apart.most_at;
  return json;
}

Json answer_json(const TimelineSummary* simulated, const TimelineSummary& measured) {
  const TimelineSummary none;
  const TimelineSummary& other = simulated ? *simulated : none;
  return {{"kinds", times_json(rows_of(simulated, measured))},
          {"simulated_idle_s", seconds_json(other.idle)},
          {"measured_idle_s", seconds_json(measured.idle)},
          {"measured_unlaunched_s", seconds_json(measured.unlaunched)},
          {"simulated_peak_bytes", peak_json(other.memory)},
          {"measured_peak_bytes", peak_json(measured.memory)},
          {"memory", memory_json(other, measured)},
          {"measured_iterations", measured.iterations},
          {"measured_unmatched_share", measured.unmatched_share},
          {"simulated_notes", other.notes},
          {"measured_notes", measured.notes}};
}

std::string notes_text(const TimelineSummary& summary, std::string_view which) {
  std::string text;
  for (const std::string& note : summary.notes) text += fmt::format("{}{}\n", which, note);
  return text;
}

int compare_pytorch(const CompareArguments& arguments) {
  const PytorchMeasurement measurement = read_pytorch_measurement(arguments.pytorch);
  std::cout << (arguments.json ? json_text(pytorch_json(measurement), 2) + "\n" : pytorch_table(measurement));
  return exit_fine;
}

int run_compare(const CompareArguments& arguments) {
  if (!arguments.pytorch.empty()) return compare_pytorch(arguments);
  std::optional<double> bar;
  if (!arguments.within.empty()) {
    const Parsed<double> percent = parse_number(arguments.within);
    if (!percent.fine()) throw InputError("--within: " + percent.complaint);
    bar = percent.value / 100;
  }
  const bool is_pair = !arguments.measured.empty();
  if (bar && !is_pair) throw InputError("--within: expected two timelines, found one");
  std::optional<TimelineSummary> simulated;
  if (is_pair) simulated = summary_of_timeline(arguments.simulated);
  const TimelineSummary* const first = simulated ? &*simulated : nullptr;
  const TimelineSummary measured = summary_of_timeline(is_pair ? arguments.measured : arguments.simulated);
  if (arguments.json) {
    std::cout << json_text(answer_json(first, measured), 2) << '\n';
  } else {
    std::cout << table_text(first, measured);
    if (simulated) std::cout << notes_text(*simulated, "simulated: ");
    std::cout << notes_text(measured, is_pair ? "measured: " : "");
  }
  if (!bar) return exit_fine;
  const Json error = rows_of(first, measured)[0].error();
  const bool held = !error.is_null() && std::abs(error.get<double>()) <= *bar;
  if (!held) std::cerr << fmt::format("compare: the whole differs by more than {} %\n", arguments.within);
  return held ? exit_fine : exit_no_result;
}

}  // namespace

void add_compare_command(CLI::App& app, int& exit_code, const std::string&) {
  CLI::App* command =
      app.add_subcommand("compare", "compare a simulated timeline with a measured one, or describe one recording");
  command->footer(
      "Both files are timelines (--timeline of simulate and replay), or traces of the PyTorch profiler, .json or "
      ".json.gz,\nof any size. One file alone is summarized:\n  plimsoll simulate -t mlp:layers=8 -p ideal -s "
      "store_all --schedule-out s.json --timeline simulated.json\n  plimsoll replay --schedule s.json --timeline "
      "measured.json\n  plimsoll compare simulated.json measured.json\n  plimsoll compare trace.json.gz\nFrom a "
      "profiler's trace the median of its steps (ProfilerStep#, else from one Optimizer.step to the next) is "
      "taken,\nwithout the first; a step lasts from the end of the last kernel of the step before to that of its own. "
      "A kernel\nbelongs to the operator that launched it. If more than 5 % of the devices' time belongs to no "
      "operator, the\ncomparison is refused with exit code 2. 'idle': no stream of a device worked. Where a tenth of "
      "the iteration or\nmore passes with nothing launched, the host bound it. validate/profiler.md lists the names "
      "that are understood.");
  auto arguments = std::make_shared<CompareArguments>();
  CLI::Option* simulated =
      command->add_option("simulated", arguments->simulated, "timeline of a simulation; alone: any timeline or trace");
  simulated->required()->type_name("SIMULATED");
  CLI::Option* measured =
      command->add_option("measured", arguments->measured, "timeline of a replay, or a trace of the PyTorch profiler");
  measured->type_name("MEASURED");
  command
      ->add_option("--pytorch", arguments->pytorch,
                   "instead of timelines: plans that PyTorch has run, from validate/pytorch/measure.py")
      ->type_name("FILE")
      ->excludes(simulated)
      ->excludes(measured)
      ->each([simulated](const std::string&) { simulated->required(false); });
  command
      ->add_option("--within", arguments->within,
                   "exit with code 1 if the times of the whole iteration differ by more than this percentage")
      ->type_name("PERCENT")
      ->excludes(command->get_option("--pytorch"));
  command->add_flag("--json", arguments->json, "print one JSON object");
  command->callback([arguments, &exit_code] { exit_code = run_compare(*arguments); });
}

}  // namespace plimsoll
