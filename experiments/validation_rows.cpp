#include "experiments/validation_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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

double tau_of(const std::vector<ValidationRow>& rows) {
  std::vector<double> predicted;
  std::vector<WithSpread> measured;
  predicted.reserve(rows.size());
  measured.reserve(rows.size());
  for (const ValidationRow& row : rows) {
    predicted.push_back(row.predicted);
    measured.push_back(row.measured);
  }
  return tau_b(predicted, measured);
}

ErrorSummary errors_of(const std::vector<ValidationRow>& rows) {
  std::vector<double> errors;
  errors.reserve(rows.size());
  for (const ValidationRow& row : rows) errors.push_back(row.error());
  return summary_of(errors);
}

std::int64_t worst_peak_error(const std::vector<ValidationRow>& rows) {
  std::int64_t worst = 0;
  for (const ValidationRow& row : rows) {
    const std::int64_t error = (row.predicted_peak - row.measured_peak).count;
    if (std::abs(error) > std::abs(worst)) worst = error;
  }
  return worst;
}

/// Relative to the measured one, with its sign.
double worst_relative_peak_error(const std::vector<ValidationRow>& rows) {
  double worst = 0;
  for (const ValidationRow& row : rows) {
    const double error = PredictedAndMeasured{row.predicted_peak, row.measured_peak}.error();
    if (std::abs(error) > std::abs(worst)) worst = error;
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

Json errors_json(const std::vector<ValidationRow>& rows) {
  const ErrorSummary errors = errors_of(rows);
  Json object{{"schedules", rows.size()},
              {"time_error_mean", errors.mean},
              {"time_error_median", errors.median},
              {"time_error_worst", errors.worst},
              {"peak_error_worst_bytes", worst_peak_error(rows)},
              {"peak_error_worst", worst_relative_peak_error(rows)},
              {"tau_b", tau_of(rows)}};
  if (const std::optional<double> reserved = worst_reserved_error(rows)) object["reserved_error_worst"] = *reserved;
  return object;
}

}  // namespace

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
  Json networks = Json::array();
  const std::vector<std::string> names = networks_of(rows);
  for (const std::string& name : names) {
    Json own = errors_json(of_network(rows, name));
    tau += own["tau_b"].get<double>() / static_cast<double>(names.size());
    networks.push_back({{"network", name}, {"errors", std::move(own)}});
  }
  all["tau_b"] = tau;
  const ErrorSummary errors = errors_of(rows);
  Json bars{{"time_error_mean", errors.mean <= asked.time_mean},
            {"time_error_worst", std::abs(errors.worst) <= asked.time_worst},
            {"peak_error", std::abs(worst_relative_peak_error(rows)) <= asked.peak},
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
                          row.measured.value, row.measured.spread, 100 * row.error(), row.measured_peak.count,
                          (row.predicted_peak - row.measured_peak).count);
      if (!row.reserved) continue;
      text += fmt::format("  {:<32}reserved {} B, predicted {} B ({:+.2f} %)\n", "", row.reserved->measured.count,
                          row.reserved->predicted.count, 100 * row.reserved->error());
    }
    const ErrorSummary errors = errors_of(own);
    text += fmt::format("  time: mean {:.1f} %, median {:.1f} %, worst {:+.1f} %; tau-b {:.3f}\n", 100 * errors.mean,
                        100 * errors.median, 100 * errors.worst, tau_of(own));
  }
  const Json summary = summary_json(rows, bars);
  const Json& all = summary["all"];
  const auto held = [&](const char* bar) { return summary["bars_held"][bar].get<bool>() ? "held" : "missed"; };
  text += fmt::format(
      "all {} schedules\n  time error: mean {:.1f} % (bar {:g} %: {}), median {:.1f} %, worst {:+.1f} % (bar {:g} %: "
      "{})\n"
      "  live peak: worst error {} B (bar {}: {})\n  ranking: tau-b {:.3f}, mean of the networks (bar {:g}: {})\n",
      rows.size(), 100 * all["time_error_mean"].get<double>(), 100 * bars.time_mean, held("time_error_mean"),
      100 * all["time_error_median"].get<double>(), 100 * all["time_error_worst"].get<double>(), 100 * bars.time_worst,
      held("time_error_worst"), all["peak_error_worst_bytes"].get<std::int64_t>(),
      bars.peak == 0 ? std::string("0 B") : fmt::format("{:g} %", 100 * bars.peak), held("peak_error"),
      all["tau_b"].get<double>(), bars.tau, held("tau_b"));
  if (const std::optional<double> reserved = worst_reserved_error(rows)) {
    text += fmt::format("  reserved: worst error {:+.2f} % (bar {:g} %: {})\n", 100 * *reserved, 100 * bars.reserved,
                        held("reserved_error"));
  }
  return text;
}

}  // namespace plimsoll
