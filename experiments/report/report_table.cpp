#include "experiments/report/report_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <vector>

#include "experiments/study/summary.h"
#include "experiments/sweep/record_check.h"
#include "sim/io/quantity.h"
#include "sim/measure/time_interval.h"

namespace plimsoll {
namespace {

constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();

/// What of a record a cell says: words, or a time.
struct Cell {
  std::string words;
  double time = 0;
  std::int64_t host = 0;  ///< bytes at most on the host
  std::vector<TimeShare> shares = {};
};

Cell cell_of(const Json& record) {
  switch (outcome_of(record)) {
    case Outcome::infeasible:
      return {"-"};
    case Outcome::out_of_memory:
      return {"out of memory"};
    case Outcome::refused:
      return {"refused"};
    case Outcome::stopped:
      return {"stopped"};
    case Outcome::feasible:
      break;
  }
  const Json host = record.value("host_peak_bytes", Json());
  const bool on_host = host.is_number() && host > 0;
  Cell cell{.words = {}, .time = record.at("makespan_s").get<double>(), .host = on_host ? host.get<std::int64_t>() : 0};
  for (const Json& share : record.value("time_shares", Json::array())) {
    cell.shares.push_back({.sort = share.at("sort").get<std::string>(),
                           .time = Seconds{share.at("time_s").get<double>()},
                           .low = share.at("low").get<double>(),
                           .high = share.at("high").get<double>()});
  }
  return cell;
}

/// With the distance from the bound, if there is one, and what the host holds.
std::string text_of(const Cell& cell, double bound) {
  if (!cell.words.empty()) return cell.words;
  const std::string above = bound > 0 ? fmt::format(" {:>8}", percent_above(cell.time, bound)) : "";
  const std::string host = cell.host > 0 ? ", host " + format_bytes(Bytes{cell.host}) : "";
  return format_seconds(Seconds{cell.time}) + above + host;
}

/// The records of one case: by budget (unlimited last), then by strategy.
struct Case {
  std::string title;
  std::vector<std::string> strategies;  // in the order of the points
  std::map<std::int64_t, std::map<std::string, Cell>> cells;
  double bound = 0;  ///< the least of the case and of all answers, so that distances are from the same, as on the page
};

void keep_least_bound(Case& of, const Json& bound) {
  if (bound.is_number() && bound > 0 && (of.bound == 0 || bound < of.bound)) of.bound = bound.get<double>();
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
    for (const auto& [strategy, cell] : cells) {
      widths[strategy] = std::max(widths[strategy], text_of(cell, of.bound).size());
    }
  }
  return widths;
}

/// Strategies that may be as fast as the fastest, for all that is known of their times.
std::string near_fastest(const std::map<std::string, Cell>& cells) {
  const std::pair<const std::string, Cell>* fastest = nullptr;
  for (const auto& each : cells) {
    if (!each.second.words.empty() || each.second.shares.empty()) continue;
    if (fastest == nullptr || each.second.time < fastest->second.time) fastest = &each;
  }
  if (fastest == nullptr) return "";
  std::string names;
  for (const auto& [strategy, cell] : cells) {
    if (!cell.words.empty() || cell.shares.empty() || cell.time <= fastest->second.time) continue;
    if (!told_apart(cell.shares, fastest->second.shares)) names += (names.empty() ? "" : ", ") + strategy;
  }
  return names.empty() ? "" : fmt::format("  {:>12}  cannot be told from {}: {}\n", "", fastest->first, names);
}

/// A line for each strategy that has no answers in the case, since it was refused or broke.
std::string failures_in(const CaseFacts* facts, const SweepContents& contents) {
  if (facts == nullptr || !contents.identity.is_object()) return "";
  const Json experiment = contents.identity.value("experiment", Json::object());
  std::string lines;
  for (const Json& strategy : experiment.value("strategies", Json::array())) {
    const Json* failure = failure_of(*facts, strategy, contents.failures);
    if (failure == nullptr) continue;
    lines += fmt::format("  {} {}: {}\n", word_for(*failure), strategy.get<std::string>(),
                         failure->at("message").get<std::string>());
  }
  return lines;
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
    const Cell& cell = of.cells[budget.is_null() ? unlimited : budget.get<std::int64_t>()][strategy] = cell_of(record);
    if (cell.words.empty()) keep_least_bound(of, record.at("lower_bound_s"));
  }
  for (auto& [index, of] : cases) {
    const auto facts = contents.cases.find(index);
    if (facts != contents.cases.end()) keep_least_bound(of, facts->second.lower_bound.value);
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
        const std::string text = cell == cells.end() ? "" : text_of(cell->second, of.bound);
        table += fmt::format("  {:>{}}", text, widths.at(strategy));
      }
      table += '\n';
      table += near_fastest(cells);
    }
    table += failures_in(facts == contents.cases.end() ? nullptr : &facts->second, contents);
  }
  return table;
}

}  // namespace plimsoll
