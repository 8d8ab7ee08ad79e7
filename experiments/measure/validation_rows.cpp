#include "experiments/measure/validation_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "experiments/study/percent.h"
#include "sim/core/names.h"
#include "sim/io/quantity.h"

namespace plimsoll {
namespace {

Json kinds_json(const std::map<StepKind, Seconds>& kinds) {
  Json object = Json::object();
  for (const auto& [kind, seconds] : kinds) object[std::string(written(kind)) + "_s"] = seconds.value;
  return object;
}

std::vector<std::string> networks_of(const std::vector<ValidationRow>& rows) {
  std::vector<std::string> names;
  for (const ValidationRow& row : rows) {
    if (std::ranges::find(names, row.network) == names.end()) names.push_back(row.network);
  }
  return names;
}

std::vector<ValidationRow> of_network(const std::vector<ValidationRow>& rows, const std::string& network) {
  std::vector<ValidationRow> own;
  std::ranges::copy_if(rows, std::back_inserter(own), [&](const ValidationRow& r) { return r.network == network; });
  return own;
}

Ranking ranking_of(const std::vector<ValidationRow>& rows) {
  std::vector<double> predicted;
  std::vector<WithSpread> measured;
  predicted.reserve(rows.size());
  measured.reserve(rows.size());
  for (const ValidationRow& row : rows) {
    predicted.push_back(row.predicted);
    measured.push_back(row.measured);
  }
  return ranking_of(predicted, measured);
}

template <class Error>
ErrorSummary errors_of(const std::vector<ValidationRow>& rows, Error error) {
  std::vector<double> errors;
  errors.reserve(rows.size());
  for (const ValidationRow& row : rows) errors.push_back((row.*error)());
  return summary_of(errors);
}

ErrorSummary errors_of(const std::vector<ValidationRow>& rows) {
  return errors_of(rows, &ValidationRow::error);
}
ErrorSummary errors_of_guess(const std::vector<ValidationRow>& rows) {
  return errors_of(rows, &ValidationRow::error_of_guess);
}

std::int64_t worst_peak_error(const std::vector<ValidationRow>& rows) {
  std::int64_t worst = 0;
  for (const ValidationRow& row : rows) {
    const std::int64_t error = (row.predicted_peak - row.measured_peak).count;
    if (std::abs(error) > std::abs(worst)) worst = error;
  }
  return worst;
}

/// Beyond what is legal.
Bytes worst_outside(const std::vector<ValidationRow>& rows) {
  Bytes worst;
  for (const ValidationRow& row : rows) worst = std::max(worst, outside(row.measured_peak, row.legal));
  return worst;
}

/// The same, relative to the measured one.
double worst_relative_outside(const std::vector<ValidationRow>& rows) {
  double worst = 0;
  for (const ValidationRow& row : rows) {
    const auto beyond = static_cast<double>(outside(row.measured_peak, row.legal).count);
    worst = std::max(worst, beyond / static_cast<double>(row.measured_peak.count));
  }
  return worst;
}

/// Unset where nothing reserved was measured.
std::optional<double> worst_reserved_error(const std::vector<ValidationRow>& rows) {
  std::optional<double> worst;
  for (const ValidationRow& row : rows) {
    if (row.reserved && std::abs(row.reserved->error()) >= std::abs(worst.value_or(0))) worst = row.reserved->error();
  }
  return worst;
}

std::string pairs_text(std::size_t pairs, std::size_t outside_noise, std::size_t ranked_right) {
  return fmt::format("{} of {} pairs differ by more than the noise, {} of them as predicted", outside_noise, pairs,
                     ranked_right);
}

Json errors_json(const std::vector<ValidationRow>& rows) {
  const ErrorSummary errors = errors_of(rows);
  Json object{{"schedules", rows.size()},
              {"time_error_mean", errors.mean},
              {"time_error_median", errors.median},
              {"time_error_worst", errors.worst},
              {"peak_error_worst_bytes", worst_peak_error(rows)},
              {"peak_outside_worst_bytes", worst_outside(rows).count},
              {"guess_error_mean", errors_of_guess(rows).mean}};
  const Ranking ranking = ranking_of(rows);
  object["tau_b"] = ranking.tau_b;
  object["pairs"] = ranking.pairs;
  object["pairs_outside_noise"] = ranking.outside_noise;
  object["pairs_ranked_right"] = ranking.ranked_right;
  if (const std::optional<double> reserved = worst_reserved_error(rows)) object["reserved_error_worst"] = *reserved;
  return object;
}

}  // namespace

Bytes outside(Bytes peak, const LegalPeaks& legal) {
  return std::max({Bytes{0}, legal.least - peak, peak - legal.most});
}

Json to_json(const ValidationRow& row) {
  Json object{{"network", row.network},
              {"strategy", row.strategy},
              {"budget_bytes", row.budget.count},
              {"predicted_relative", row.predicted},
              {"measured_relative", row.measured.value},
              {"measured_spread", row.measured.spread},
              {"time_error", row.error()},
              {"predicted_s", row.predicted_time.value},
              {"measured_s", row.measured_time.value},
              {"predicted_peak_bytes", row.predicted_peak.count},
              {"measured_peak_bytes", row.measured_peak.count},
              {"legal_peaks_bytes", {row.legal.least.count, row.legal.most.count}},
              {"predicted_by_kind", kinds_json(row.predicted_kinds)},
              {"measured_by_kind", kinds_json(row.measured_kinds)}};
  if (row.reserved) {
    object["predicted_reserved_bytes"] = row.reserved->predicted.count;
    object["measured_reserved_bytes"] = row.reserved->measured.count;
  }
  return object;
}

Json summary_json(const std::vector<ValidationRow>& rows, const Bars& asked) {
  Json all = errors_json(rows);
  double tau = 0;
  std::size_t pairs = 0, outside_noise = 0, ranked_right = 0;  // of schedules of one network
  Json networks = Json::array();
  const std::vector<std::string> names = networks_of(rows);
  for (const std::string& name : names) {
    Json own = errors_json(of_network(rows, name));
    tau += own["tau_b"].get<double>() / static_cast<double>(names.size());
    pairs += own["pairs"].get<std::size_t>();
    outside_noise += own["pairs_outside_noise"].get<std::size_t>();
    ranked_right += own["pairs_ranked_right"].get<std::size_t>();
    networks.push_back({{"network", name}, {"errors", std::move(own)}});
  }
  all["tau_b"] = tau;
  all["pairs"] = pairs;
  all["pairs_outside_noise"] = outside_noise;
  all["pairs_ranked_right"] = ranked_right;
  const ErrorSummary errors = errors_of(rows);
  Json bars{{"time_error_mean", errors.mean <= asked.time_mean},
            {"time_error_worst", std::abs(errors.worst) <= asked.time_worst},
            {"peak_error", worst_relative_outside(rows) <= asked.peak},
            {"tau_b", tau >= asked.tau}};
  if (const std::optional<double> reserved = worst_reserved_error(rows)) {
    bars["reserved_error"] = std::abs(*reserved) <= asked.reserved;
  }
  return {{"all", std::move(all)}, {"networks", std::move(networks)}, {"bars_held", std::move(bars)}};
}

std::string validation_table(const std::vector<ValidationRow>& rows, const Bars& bars) {
  std::string text;
  for (const std::string& network : networks_of(rows)) {
    const std::vector<ValidationRow> own = of_network(rows, network);
    text += fmt::format("{}\n  {:<32}{:>10}{:>10}{:>9}{:>9}{:>14}{:>12}\n", network,
                        "times of store_all's:", "predicted", "measured", "spread", "error", "live peak B", "error B");
    for (const ValidationRow& row : own) {
      text += fmt::format("  {:<32}{:>10.4f}{:>10.4f}{:>9.4f}{:>+8.1f}%{:>14}{:>12}\n", row.strategy, row.predicted,
                          row.measured.value, row.measured.spread, in_percent(row.error(), 1), row.measured_peak.count,
                          (row.predicted_peak - row.measured_peak).count);
      if (row.legal.least != row.legal.most) {
        const Bytes beyond = outside(row.measured_peak, row.legal);
        text += fmt::format("  {:<32}its order allows live peaks of {} to {} B{}\n", "", row.legal.least.count,
                            row.legal.most.count,
                            beyond > Bytes{0} ? fmt::format(": {} B beyond", beyond.count) : std::string());
      }
      if (!row.reserved) continue;
      text += fmt::format("  {:<32}reserved {} B, predicted {} B ({:+.2f} %)\n", "", row.reserved->measured.count,
                          row.reserved->predicted.count, in_percent(row.reserved->error(), 2));
    }
    const ErrorSummary errors = errors_of(own);
    const Ranking ranking = ranking_of(own);
    text += fmt::format(
        "  time: mean {:.1f} %, median {:.1f} %, worst {:+.1f} %; guessing store_all's: mean {:.1f} %\n",
        100 * errors.mean, 100 * errors.median, in_percent(errors.worst, 1), 100 * errors_of_guess(own).mean);
    text += fmt::format("  ranking: tau-b {:.3f}; {}\n", ranking.tau_b,
                        pairs_text(ranking.pairs, ranking.outside_noise, ranking.ranked_right));
  }
  const Json summary = summary_json(rows, bars);
  const Json& all = summary["all"];
  const auto held = [&](const char* bar) { return summary["bars_held"][bar].get<bool>() ? "held" : "missed"; };
  text += fmt::format(
      "all {} schedules\n  time error: mean {:.1f} % (bar {:g} %: {}), median {:.1f} %, worst {:+.1f} % (bar {:g} %: "
      "{})\n"
      "  always guessing store_all's time: mean {:.1f} %\n"
      "  live peak: worst error {} B, beyond what the schedule's order allows {} B (bar {}: {})\n"
      "  ranking: tau-b {:.3f}, mean of the networks (bar {:g}: {}); {}\n",
      rows.size(), 100 * all["time_error_mean"].get<double>(), 100 * bars.time_mean, held("time_error_mean"),
      100 * all["time_error_median"].get<double>(), in_percent(all["time_error_worst"].get<double>(), 1),
      100 * bars.time_worst, held("time_error_worst"), 100 * all["guess_error_mean"].get<double>(),
      all["peak_error_worst_bytes"].get<std::int64_t>(), all["peak_outside_worst_bytes"].get<std::int64_t>(),
      bars.peak == 0 ? std::string("0 B") : fmt::format("{:g} %", 100 * bars.peak), held("peak_error"),
      all["tau_b"].get<double>(), bars.tau, held("tau_b"),
      pairs_text(all["pairs"].get<std::size_t>(), all["pairs_outside_noise"].get<std::size_t>(),
                 all["pairs_ranked_right"].get<std::size_t>()));
  if (const std::optional<double> reserved = worst_reserved_error(rows)) {
    text += fmt::format("  reserved: worst error {:+.2f} % (bar {:g} %: {})\n", in_percent(*reserved, 2),
                        100 * bars.reserved, held("reserved_error"));
  }
  return text;
}

}  // namespace plimsoll
