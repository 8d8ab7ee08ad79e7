// plimsoll compare

#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <tuple>

#include "experiments/command_validate.h"
#include "experiments/commands.h"
#include "experiments/pytorch_measurement.h"
#include "sim/io/input_error.h"
#include "sim/io/json.h"
#include "sim/io/quantity.h"
#include "validate/profiler/timeline_summary.h"

namespace plimsoll {
namespace {

struct CompareArguments {
  std::string simulated, measured, within, pytorch;
  bool json = false;
};

struct CompareRow {
  std::string what;
  IterationTime simulated, measured;

  Json error() const {
    return measured.median.value > 0 ? Json(simulated.median / measured.median - 1) : Json(nullptr);
  }
};

std::vector<CompareRow> rows_of(const TimelineSummary& simulated, const TimelineSummary& measured) {
  std::vector<CompareRow> rows{{"whole", simulated.whole, measured.whole}};
  for (const auto& [activity, name] : Names<Activity>::all) {
    const auto a = simulated.activities.find(activity), b = measured.activities.find(activity);
    if (a == simulated.activities.end() && b == measured.activities.end()) continue;
    rows.push_back({name, a == simulated.activities.end() ? IterationTime{} : a->second,
                    b == measured.activities.end() ? IterationTime{} : b->second});
  }
  return rows;
}

/// `+3.2 %`
std::string percent(double part) {
  return fmt::format("{:+.1f} %", 100 * part);
}

std::string times_text(const std::vector<CompareRow>& rows, bool with_spread) {
  std::string text = fmt::format("{:<12}{:>14}{:>14}{:>10}{}\n", "", "simulated", "measured", "error",
                                 with_spread ? "   least to most measured" : "");
  for (const CompareRow& row : rows) {
    text += fmt::format("{:<12}{:>14}{:>14}{:>10}", row.what, format_seconds(row.simulated.median),
                        format_seconds(row.measured.median),
                        row.error().is_null() ? "" : percent(row.error().get<double>()));
    if (with_spread)
      text += fmt::format("   {} to {}", format_seconds(row.measured.least), format_seconds(row.measured.most));
    text += '\n';
  }
  return text;
}

Json times_json(const std::vector<CompareRow>& rows) {
  Json kinds = Json::array();
  for (const CompareRow& row : rows) {
    kinds.push_back({{"kind", row.what},
                     {"simulated_s", row.simulated.median.value},
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

std::string memory_text(const MemoryCurve& simulated, const MemoryCurve& measured) {
  std::string text;
  for (const auto& [what, a, b] : {std::tuple{"live peak B", simulated.peak, measured.peak},
                                   std::tuple{"live mean B", simulated.mean, measured.mean}})
    text += fmt::format("{:<12}{:>14}{:>14}{:>10}\n", what, a.count, b.count, (a - b).count);
  const CurveDistance apart = distance(simulated, measured);
  return text + fmt::format("over the iteration live bytes differ by {} in the mean, by {} at most ({} % into it)\n",
                            format_bytes(apart.mean), format_bytes(apart.most), apart.most_at);
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

std::string notes_text(const TimelineSummary& summary, std::string_view which) {
  std::string text;
  for (const std::string& note : summary.notes) text += fmt::format("{}: {}\n", which, note);
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
  const TimelineSummary simulated = summary_of_timeline(arguments.simulated);
  const TimelineSummary measured = summary_of_timeline(arguments.measured);
  const std::vector<CompareRow> rows = rows_of(simulated, measured);
  if (arguments.json) {
    const Json object{{"kinds", times_json(rows)},
                      {"simulated_peak_bytes", peak_json(simulated.memory)},
                      {"measured_peak_bytes", peak_json(measured.memory)},
                      {"memory", memory_json(simulated, measured)},
                      {"measured_iterations", measured.iterations},
                      {"measured_unmatched_share", measured.unmatched_share},
                      {"simulated_notes", simulated.notes},
                      {"measured_notes", measured.notes}};
    std::cout << json_text(object, 2) << '\n';
  } else {
    std::cout << times_text(rows, measured.iterations > 1);
    if (simulated.memory && measured.memory) std::cout << memory_text(*simulated.memory, *measured.memory);
    std::cout << notes_text(simulated, "simulated") << notes_text(measured, "measured");
  }
  if (!bar) return exit_fine;
  const bool held = !rows[0].error().is_null() && std::abs(rows[0].error().get<double>()) <= *bar;
  if (!held) std::cerr << fmt::format("compare: the whole differs by more than {} %\n", arguments.within);
  return held ? exit_fine : exit_no_result;
}

}  // namespace

void add_compare_command(CLI::App& app, int& exit_code, const std::string&) {
  CLI::App* command =
      app.add_subcommand("compare", "compare a simulated timeline with a measured one, for each kind of step");
  command->footer(
      "Both files are timelines (--timeline of simulate and replay). MEASURED may also be a trace of the PyTorch "
      "profiler,\n.json or .json.gz, of any size:\n  plimsoll simulate -t mlp:layers=8 -p ideal -s store_all "
      "--schedule-out s.json --timeline simulated.json\n  plimsoll replay --schedule s.json --timeline measured.json\n "
      " plimsoll compare simulated.json measured.json\nFrom a profiler's trace the median of its steps (ProfilerStep#) "
      "is taken, without the first step. A kernel belongs\nto the operator that launched it. If more than 5 % of the "
      "devices' time belongs to no operator, the comparison is\nrefused with exit code 2. validate/README.md lists the "
      "names that are understood.");
  auto arguments = std::make_shared<CompareArguments>();
  CLI::Option* simulated = command->add_option("simulated", arguments->simulated, "timeline of a simulation");
  simulated->required()->type_name("SIMULATED");
  CLI::Option* measured =
      command->add_option("measured", arguments->measured, "timeline of a replay, or a trace of the PyTorch profiler");
  measured->required()->type_name("MEASURED");
  command
      ->add_option("--pytorch", arguments->pytorch,
                   "instead of two timelines: plans that PyTorch has run, from validate/pytorch/measure.py")
      ->type_name("FILE")
      ->excludes(simulated)
      ->excludes(measured)
      ->each([simulated, measured](const std::string&) {
        simulated->required(false);
        measured->required(false);
      });
  command
      ->add_option("--within", arguments->within,
                   "exit with code 1 if the times of the whole iteration differ by more than this percentage")
      ->type_name("PERCENT")
      ->excludes(command->get_option("--pytorch"));
  command->add_flag("--json", arguments->json, "print one JSON object");
  command->callback([arguments, &exit_code] { exit_code = run_compare(*arguments); });
}

}  // namespace plimsoll
