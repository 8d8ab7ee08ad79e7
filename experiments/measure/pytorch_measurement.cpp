#include "experiments/measure/pytorch_measurement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>

#include "experiments/study/percent.h"
#include "sim/io/input_error.h"
#include "sim/io/json/json_cursor.h"
#include "sim/io/text_file.h"

namespace plimsoll {
namespace {

double positive(JsonCursor value) {
  const double number = value.number();
  if (!(number > 0)) value.complain("expected a number above 0, " + value.found());
  return number;
}

Bytes positive_bytes(JsonCursor value) {
  const Bytes bytes = value.bytes();
  if (bytes <= Bytes{0}) value.complain("expected a number of bytes above 0");
  return bytes;
}

PytorchRun read_run(JsonCursor cursor) {
  PytorchRun run;
  const std::vector<std::string_view> required{"model", "strategy", "predicted", "measured", "differences"};
  std::vector<std::string_view> seen;
  cursor.object([&](std::string_view key, JsonCursor value) {
    if (const auto known = std::ranges::find(required, key); known != required.end()) seen.push_back(*known);
    if (key == "model") {
      run.model = value.string();
    } else if (key == "strategy") {
      run.strategy = value.string();
    } else if (key == "differences") {
      value.array([&](JsonCursor each) { run.differences.push_back(each.string()); });
    } else if (key == "predicted") {
      value.object([&](std::string_view inner, JsonCursor of) {
        if (inner == "relative") run.predicted_relative = positive(of);
        if (inner == "peak_bytes") run.predicted_peak = positive_bytes(of);
      });
      if (run.predicted_relative == 0) value.complain_missing_key("relative");
      if (run.predicted_peak == Bytes{0}) value.complain_missing_key("peak_bytes");
    } else if (key == "measured") {
      value.object([&](std::string_view inner, JsonCursor of) {
        if (inner == "relative") run.measured_relative.value = positive(of);
        if (inner == "spread") run.measured_relative.spread = of.number();
        if (inner == "peak_bytes") run.measured_peak = positive_bytes(of);
        if (inner == "issue_share") run.issue_share = of.number();
      });
      if (run.measured_relative.value == 0) value.complain_missing_key("relative");
      if (run.measured_peak == Bytes{0}) value.complain_missing_key("peak_bytes");
    } else if (key == "plain") {
      value.object([&](std::string_view inner, JsonCursor of) {
        if (inner == "issue_share") run.plain_issue_share = of.number();
      });
    } else if (key == "deviation") {
      run.deviation = value.number();
    } else if (key == "control_deviation") {
      run.control_deviation = value.number();
    }
  });
  for (const std::string_view key : required) {
    if (std::ranges::find(seen, key) == seen.end()) cursor.complain_missing_key(key);
  }
  return run;
}

/// Runs by what a function says of them, in the order of first appearance.
using RunGroup = std::pair<std::string, std::vector<PytorchRun>>;
std::vector<RunGroup> grouped(const std::vector<PytorchRun>& runs, std::string PytorchRun::*by) {
  std::vector<RunGroup> groups;
  for (const PytorchRun& run : runs) {
    auto found = std::ranges::find(groups, run.*by, &RunGroup::first);
    if (found == groups.end()) found = groups.insert(groups.end(), {run.*by, {}});
    found->second.push_back(run);
  }
  return groups;
}

struct RunScores {
  ErrorSummary time, peak, guess;  ///< guess: of always saying that a plan takes the time of plain training
  Ranking ranking;
  double above = 0;  ///< the most by which a measured peak exceeds its promise, relative; below 0: none does
};

RunScores scores_of(const std::vector<PytorchRun>& runs) {
  std::vector<double> time, peak, guess, predicted;
  std::vector<WithSpread> measured;
  double above = -1;
  for (const PytorchRun& run : runs) {
    time.push_back(run.time_error());
    peak.push_back(run.peak_error());
    guess.push_back(1 / run.measured_relative.value - 1);
    predicted.push_back(run.predicted_relative);
    measured.push_back(run.measured_relative);
    above = std::max(above, 1 / (1 + run.peak_error()) - 1);
  }
  return {summary_of(time), summary_of(peak), summary_of(guess), ranking_of(predicted, measured), above};
}

std::string scores_text(const std::string& name, const RunScores& scores, std::size_t count) {
  return fmt::format("{:<34}{:>4}{:>9.2f} %{:>8.2f} %{:>10.3f} %{:>8.3f} %{:>9.2f}{:>10.2f} %\n", name, count,
                     100 * scores.time.mean, in_percent(scores.time.worst, 2), 100 * scores.peak.mean,
                     in_percent(scores.peak.worst, 3), scores.ranking.tau_b, 100 * scores.guess.mean);
}

/// `issued` of both iterations, in percent of their times.
std::string issue_text(const PytorchRun& run) {
  const auto percent = [](const std::optional<double>& share) {
    return share ? fmt::format("{:.0f} %", 100 * *share) : std::string("-");
  };
  return fmt::format("{:>8}{:>8}", percent(run.issue_share), percent(run.plain_issue_share));
}

/// What is to be known of a row before its numbers are believed.
std::string remarks_on(const PytorchRun& run) {
  std::string text = run.is_bound_by_host() ? "  bound by the host" : "";
  if (run.differences.empty()) return text;
  text += "  differs: " + run.differences.front();
  if (run.deviation == 0) return text;
  return text + fmt::format(" and {} more, by {:.1e}, plain training from itself by {:.1e}", run.differences.size() - 1,
                            run.deviation, run.control_deviation);
}

Json or_null(const std::optional<double>& number) {
  return number ? Json(*number) : Json(nullptr);
}

/// Those whose times are the device's.
std::vector<PytorchRun> bound_by_device(const std::vector<PytorchRun>& runs) {
  std::vector<PytorchRun> found;
  std::ranges::copy_if(runs, std::back_inserter(found), [](const auto& run) { return !run.is_bound_by_host(); });
  return found;
}

std::string sameness_text(const std::vector<PytorchRun>& runs) {
  const auto count = [&](auto counts) { return static_cast<std::size_t>(std::ranges::count_if(runs, counts)); };
  const std::size_t same = count([](const auto& run) { return run.differences.empty(); });
  const std::size_t near =
      count([](const auto& run) { return !run.differences.empty() && run.differs_no_more_than_control(); });
  return fmt::format("{} of {} plans train as plain training does, bit for bit; ", same, runs.size()) +
         (near > 0 ? fmt::format("{} more differ by at most {} times what plain training differs from itself; ", near,
                                 PytorchRun::control_multiple)
                   : "");
}

Json scores_json(const RunScores& scores, std::size_t count) {
  return {{"plans", count},
          {"time_error_mean", scores.time.mean},
          {"time_error_worst", scores.time.worst},
          {"peak_error_mean", scores.peak.mean},
          {"peak_error_worst", scores.peak.worst},
          {"most_above_promise", scores.above},
          {"tau_b", scores.ranking.tau_b},
          {"guessing_1_time_error_mean", scores.guess.mean}};
}

}  // namespace

PytorchMeasurement read_pytorch_measurement(const std::filesystem::path& path) {
  PytorchMeasurement measurement;
  JsonDocument document(read_text_file(path), path.string());
  constexpr std::string_view format = "plimsoll.pytorch_measurement.v1";
  if (document.peek_string("format") != format) {
    throw InputError(
        located(path.string(), {}, "format",
                fmt::format("expected \"{}\": this is not a file of validate/pytorch/measure.py", format)));
  }
  document.read([&](JsonCursor root) {
    root.object([&](std::string_view key, JsonCursor value) {
      if (key == "device") measurement.device = value.string();
      if (key == "date") measurement.date = value.string();
      if (key == "versions") {
        value.object([&](std::string_view of, JsonCursor version) {
          if (of == "torch") measurement.torch = version.string();
        });
      }
      if (key == "rows") value.array([&](JsonCursor row) { measurement.runs.push_back(read_run(row)); });
    });
    if (measurement.runs.empty()) root.complain_missing_key("rows");
  });
  return measurement;
}

std::string pytorch_table(const PytorchMeasurement& measurement) {
  std::string text = fmt::format("{} plans run by PyTorch {} on {}, {}\n\n", measurement.runs.size(), measurement.torch,
                                 measurement.device, measurement.date);
  text += fmt::format("{:<23}{:<32}{:>20}{:>10}{:>26}{:>10}{:>15}\n", "model", "strategy", "time / plain training",
                      "error", "peak, predicted/measured", "error", "issued, plain");
  for (const PytorchRun& run : measurement.runs) {
    text += fmt::format("{:<23}{:<32}{:>12.3f}{:>8.3f}{:>+9.1f} %{:>13}{:>13}{:>+8.2f} %{}{}\n", run.model,
                        run.strategy, run.predicted_relative, run.measured_relative.value,
                        in_percent(run.time_error(), 1), run.predicted_peak.count, run.measured_peak.count,
                        in_percent(run.peak_error(), 2), issue_text(run), remarks_on(run));
  }
  text += fmt::format("\n{:<34}{:>4}{:>11}{:>10}{:>12}{:>10}{:>9}{:>12}\n", "error of", "", "time: mean", "worst",
                      "peak: mean", "worst", "tau-b", "guessing 1");
  for (const auto& by : {&PytorchRun::model, &PytorchRun::strategy}) {
    for (const auto& [name, runs] : grouped(measurement.runs, by))
      text += scores_text(name, scores_of(runs), runs.size());
  }
  const RunScores all = scores_of(measurement.runs);
  text += scores_text("all", all, measurement.runs.size());
  const std::vector<PytorchRun> by_device = bound_by_device(measurement.runs);
  if (!by_device.empty() && by_device.size() < measurement.runs.size()) {
    text += scores_text("all that the host does not bind", scores_of(by_device), by_device.size());
  }
  text += sameness_text(measurement.runs);
  return text + (all.above > 0 ? fmt::format("the most that one needs above its promise is {:.3f} %\n", 100 * all.above)
                               : "none needs more than it promised\n");
}

Json pytorch_json(const PytorchMeasurement& measurement) {
  Json object{{"device", measurement.device}, {"date", measurement.date}, {"torch", measurement.torch}};
  const RunScores all = scores_of(measurement.runs);
  object["all"] = scores_json(all, measurement.runs.size());
  const std::vector<PytorchRun> by_device = bound_by_device(measurement.runs);
  if (!by_device.empty()) object["not_bound_by_host"] = scores_json(scores_of(by_device), by_device.size());
  for (const auto& [key, by] :
       {std::pair{"models", &PytorchRun::model}, std::pair{"strategies", &PytorchRun::strategy}}) {
    Json& of = object[key] = Json::object();
    for (const auto& [name, runs] : grouped(measurement.runs, by)) of[name] = scores_json(scores_of(runs), runs.size());
  }
  Json& rows = object["rows"] = Json::array();
  for (const PytorchRun& run : measurement.runs) {
    rows.push_back({{"model", run.model},
                    {"strategy", run.strategy},
                    {"predicted_relative", run.predicted_relative},
                    {"measured_relative", run.measured_relative.value},
                    {"time_error", run.time_error()},
                    {"predicted_peak_bytes", run.predicted_peak.count},
                    {"measured_peak_bytes", run.measured_peak.count},
                    {"peak_error", run.peak_error()},
                    {"issue_share", or_null(run.issue_share)},
                    {"plain_issue_share", or_null(run.plain_issue_share)},
                    {"bound_by_host", run.is_bound_by_host()},
                    {"differences", run.differences},
                    {"deviation", run.deviation},
                    {"control_deviation", run.control_deviation}});
  }
  return object;
}

}  // namespace plimsoll
