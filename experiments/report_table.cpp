#include "experiments/report_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <vector>

#include "experiments/record_check.h"
#include "sim/io/quantity.h"

namespace plimsoll {
namespace {

/// The records of one case: by budget (unlimited last), then by strategy.
struct Case {
  std::string title;
  std::vector<std::string> strategies;  // in the order of the points
  std::map<std::int64_t, std::map<std::string, std::string>> cells;
};

constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();

std::string cell_of(const Json& record) {
  switch (outcome_of(record)) {
    case Outcome::infeasible:
      return "-";
    case Outcome::out_of_memory:
      return "out of memory";
    case Outcome::refused:
      return "refused";
    case Outcome::stopped:
      return "stopped";
    case Outcome::feasible:
      break;
  }
  const double time = record.at("makespan_s").get<double>(), bound = record.at("lower_bound_s").get<double>();
  const std::string above = bound > 0 ? fmt::format(" {:+6.1f} %", 100 * (time / bound - 1)) : "";
  const Json host = record.value("host_peak_bytes", Json());
  const bool on_host = host.is_number() && host > 0;
  return format_seconds(Seconds{time}) + above +
         (on_host ? ", host " + format_bytes(Bytes{host.get<std::int64_t>()}) : "");
}

std::string title_of(const Json& record) {
  std::string title =
      fmt::format("{} on {}", record.at("trace").get<std::string>(), record.at("platform").get<std::string>());
  const auto micro_batches = record.at("micro_batches").get<std::uint32_t>();
  const std::string optimizer = record.at("optimizer").get<std::string>();
  if (micro_batches > 1) title += fmt::format(", {} micro-batches", micro_batches);
  if (optimizer != "none") title += fmt::format(", {}", optimizer);
  if (record.at("times_rescaled").get<bool>()) title += " (times re-scaled)";
  return title;
}

/// By strategy: of its column.
std::map<std::string, std::size_t> widths_of(const Case& of) {
  std::map<std::string, std::size_t> widths;
  for (const std::string& strategy : of.strategies) widths[strategy] = 20;
  for (const auto& [budget, cells] : of.cells) {
    for (const auto& [strategy, cell] : cells) widths[strategy] = std::max(widths[strategy], cell.size());
  }
  return widths;
}

}  // namespace

std::string report_table(const SweepContents& contents) {
  std::map<std::size_t, Case> cases;
  for (const auto& [point, text] : contents.records) {
    const Json record = Json::parse(text);
    Case& of = cases[record.value("case", std::size_t{0})];
    const std::string strategy = record.at("strategy").get<std::string>();
    const Json& budget = record.at("memory_budget_bytes");
    of.title = title_of(record);
    if (std::ranges::find(of.strategies, strategy) == of.strategies.end()) of.strategies.push_back(strategy);
    of.cells[budget.is_null() ? unlimited : budget.get<std::int64_t>()][strategy] = cell_of(record);
  }
  std::string table;
  for (const auto& [index, of] : cases) {
    const auto facts = contents.cases.find(index);
    if (facts != contents.cases.end() && !facts->second.impossible.empty()) {
      table += fmt::format("\n{}\n  no answers: {}\n", of.title, facts->second.impossible);
      continue;
    }
    table += fmt::format("\n{}\n  {:>12}", of.title, "budget");
    const std::map<std::string, std::size_t> widths = widths_of(of);
    for (const std::string& strategy : of.strategies) table += fmt::format("  {:>{}}", strategy, widths.at(strategy));
    table += "   iteration time and its distance from the lower bound\n";
    for (const auto& [budget, cells] : of.cells) {
      table += fmt::format("  {:>12}", budget == unlimited ? "unlimited" : format_bytes(Bytes{budget}));
      for (const std::string& strategy : of.strategies) {
        const auto cell = cells.find(strategy);
        table += fmt::format("  {:>{}}", cell == cells.end() ? "" : cell->second, widths.at(strategy));
      }
      table += '\n';
    }
  }
  return table;
}

}  // namespace plimsoll
