// plimsoll compare

#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <set>

#include "experiments/command_validate.h"
#include "experiments/commands.h"
#include "experiments/timeline_kinds.h"
#include "sim/core/names.h"
#include "sim/io/input_error.h"
#include "sim/io/json.h"
#include "sim/io/quantity.h"
#include "sim/io/text_file.h"

namespace plimsoll {
namespace {

struct CompareArguments {
  std::string simulated, measured, within;
  bool json = false;
};

struct CompareRow {
  std::string what;
  Seconds simulated, measured;

  Json error() const { return measured.value > 0 ? Json(simulated / measured - 1) : Json(nullptr); }
};

std::vector<CompareRow> rows_of(const TimelineKinds& simulated, const TimelineKinds& measured) {
  std::vector<CompareRow> rows{{"whole", simulated.span, measured.span}};
  for (const auto& [kind, name] : Names<StepKind>::all) {
    const auto a = simulated.seconds.find(kind), b = measured.seconds.find(kind);
    if (a == simulated.seconds.end() && b == measured.seconds.end()) continue;
    rows.push_back({name, a == simulated.seconds.end() ? Seconds{} : a->second,
                    b == measured.seconds.end() ? Seconds{} : b->second});
  }
  return rows;
}

Json peak_json(const std::optional<Bytes>& peak) {
  return peak ? Json(peak->count) : Json(nullptr);
}

int run_compare(const CompareArguments& arguments) {
  std::optional<double> bar;
  if (!arguments.within.empty()) {
    const Parsed<double> percent = parse_number(arguments.within);
    if (!percent.fine()) throw InputError("--within: " + percent.complaint);
    bar = percent.value / 100;
  }
  const TimelineKinds simulated = kinds_of_timeline(read_text_file(arguments.simulated), arguments.simulated);
  const TimelineKinds measured = kinds_of_timeline(read_text_file(arguments.measured), arguments.measured);
  const std::vector<CompareRow> rows = rows_of(simulated, measured);
  Json object{{"kinds", Json::array()}};
  std::string text = fmt::format("{:<12}{:>14}{:>14}{:>10}\n", "", "simulated", "measured", "error");
  for (const CompareRow& row : rows) {
    object["kinds"].push_back({{"kind", row.what},
                               {"simulated_s", row.simulated.value},
                               {"measured_s", row.measured.value},
                               {"error", row.error()}});
    text +=
        fmt::format("{:<12}{:>14}{:>14}{:>10}\n", row.what, format_seconds(row.simulated), format_seconds(row.measured),
                    row.error().is_null() ? "" : fmt::format("{:+.1f} %", 100 * row.error().get<double>()));
  }
  object["simulated_peak_bytes"] = peak_json(simulated.peak);
  object["measured_peak_bytes"] = peak_json(measured.peak);
  if (simulated.peak && measured.peak) {
    text += fmt::format("{:<12}{:>14}{:>14}{:>10}\n", "live peak B", simulated.peak->count, measured.peak->count,
                        (*simulated.peak - *measured.peak).count);
  }
  std::cout << (arguments.json ? json_text(object, 2) + "\n" : text);
  if (!bar) return exit_fine;
  const bool held = !rows[0].error().is_null() && std::abs(rows[0].error().get<double>()) <= *bar;
  if (!held) std::cerr << fmt::format("compare: the whole differs by more than {} %\n", arguments.within);
  return held ? exit_fine : exit_no_result;
}

}  // namespace

void add_compare_command(CLI::App& app, int& exit_code, const std::string&) {
  CLI::App* command = app.add_subcommand("compare", "hold a simulated timeline against a measured one, kind by kind");
  command->footer(
      "Both are timeline files (--timeline of simulate and replay); MEASURED may also be a trace of PyTorch's "
      "profiler:\n"
      "  plimsoll simulate -t mlp:layers=8 -p ideal -s store_all --schedule-out s.json --timeline simulated.json\n"
      "  plimsoll replay --schedule s.json --timeline measured.json\n"
      "  plimsoll compare simulated.json measured.json");
  auto arguments = std::make_shared<CompareArguments>();
  command->add_option("simulated", arguments->simulated, "timeline of a simulation")
      ->required()
      ->type_name("SIMULATED");
  command->add_option("measured", arguments->measured, "timeline of a replay, or a profiler's trace")
      ->required()
      ->type_name("MEASURED");
  command->add_option("--within", arguments->within, "exit code 1 where the whole differs by more than this percentage")
      ->type_name("PERCENT");
  command->add_flag("--json", arguments->json, "print one JSON object");
  command->callback([arguments, &exit_code] { exit_code = run_compare(*arguments); });
}

}  // namespace plimsoll
