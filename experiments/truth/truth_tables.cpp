#include "experiments/truth/truth_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "experiments/study/csv.h"
#include "experiments/study/percent.h"
#include "sim/io/input_error.h"
#include "sim/io/quantity.h"

namespace plimsoll {
namespace {

/// Rows of one group, those that were predicted first in `predicted`.
struct GroupRows {
  const MeasuredGroup* group = nullptr;
  std::vector<const TruthRow*> predicted, left_out;

  std::vector<double> errors(const std::function<double(const TruthRow&)>& of) const {
    std::vector<double> list;
    for (const TruthRow* row : predicted) list.push_back(of(*row));
    return list;
  }
};

std::vector<GroupRows> by_group(std::span<const TruthRow> rows) {
  std::vector<GroupRows> groups;
  for (const TruthRow& row : rows) {
    if (groups.empty() || groups.back().group != row.group) groups.push_back({row.group, {}, {}});
    (row.reason.empty() ? groups.back().predicted : groups.back().left_out).push_back(&row);
  }
  return groups;
}

double error_of(Bytes predicted, Bytes measured) {
  return static_cast<double>(predicted.count) / static_cast<double>(measured.count) - 1;
}

/// Of those rows of a group whose peaks were measured.
std::vector<double> peak_errors(const GroupRows& group) {
  std::vector<double> list;
  for (const TruthRow* row : group.predicted) {
    if (row->run->peak && row->peak) list.push_back(error_of(*row->peak, *row->run->peak));
  }
  return list;
}

/// Likewise of what the allocator reserved.
std::vector<double> reserved_errors(const GroupRows& group) {
  std::vector<double> list;
  for (const TruthRow* row : group.predicted) {
    if (row->reserved) list.push_back(error_of(*row->reserved, *row->run->reserved));
  }
  return list;
}

Json errors_json_of(const RelativeErrors& of) {
  return {
      {"runs", of.runs}, {"mean", of.mean}, {"median", of.median}, {"worst", of.worst}, {"with_signs", of.with_signs}};
}

bool has_every_factor(const GroupRows& group) {
  return std::ranges::all_of(group.predicted, [](const TruthRow* row) {
    return std::ranges::all_of(row->predicted, [](const std::optional<Seconds>& time) { return time.has_value(); });
  });
}

double whole_error(const TruthRow& row) {
  return row.error();
}
double roofline_error(const TruthRow& row) {
  return row.error_of(TruthFactor::rooflines);
}

Json group_json(const GroupRows& of) {
  Json json{{"name", of.group->name},
            {"title", of.group->title},
            {"origin", of.group->origin},
            {"efficiency", of.group->efficiency},
            {"time", errors_json_of(relative_errors(of.errors(whole_error)))},
            {"time_by_rooflines", errors_json_of(relative_errors(of.errors(roofline_error)))}};
  const std::vector<double> peaks = peak_errors(of);
  json["peak"] = peaks.empty() ? Json(nullptr) : errors_json_of(relative_errors(peaks));
  const std::vector<double> reserved = reserved_errors(of);
  json["reserved"] = reserved.empty() ? Json(nullptr) : errors_json_of(relative_errors(reserved));
  json["factors"] = nullptr;
  if (of.predicted.empty() || !has_every_factor(of)) return json;
  json["factors"] = Json::array();
  for (const auto& [factor, name] : Names<TruthFactor>::all) {
    const RelativeErrors summary =
        relative_errors(of.errors([&](const TruthRow& row) { return row.error_of(factor); }));
    json["factors"].push_back({{"factor", name}, {"ratio", 1 + summary.with_signs}, {"mean", summary.mean}});
  }
  return json;
}

/// What a shell is told to predict a run again.
std::string command_of(const TruthRow& row) {
  const Question& question = row.run->question;
  const char joined = question.platform.find(':') == std::string::npos ? ':' : ',';
  std::string text = fmt::format("plimsoll simulate -t '{}' -p '{}{}efficiency={}' -s '{}' --optimizer {}",
                                 question.trace, question.platform, joined, row.group->efficiency,
                                 question.strategy.text, written(question.optimizer));
  if (question.states != States::by_dtype) text += fmt::format(" --states {}", written(question.states));
  if (question.update_kernels != UpdateKernels::fused) {
    text += fmt::format(" --update-kernels {}", written(question.update_kernels));
  }
  if (question.gradients != Gradients::fresh) text += fmt::format(" --gradients {}", written(question.gradients));
  if (row.run->reserved) text += " --allocator cuda";
  if (question.micro_batches > 1) text += fmt::format(" --micro-batches {}", question.micro_batches);
  return text + " --engine event";
}

Json run_json(const TruthRow& row, const std::string& choice) {
  const Question& question = row.run->question;
  return {{"group", row.group->name},
          {"name", row.run->name},
          {"choice", choice.empty() ? Json(nullptr) : Json(choice)},
          {"trace", question.trace},
          {"platform", question.platform},
          {"strategy", question.strategy.text},
          {"micro_batches", question.micro_batches},
          {"predicted_s", row.whole().value},
          {"low_s", row.low ? Json(row.low->value) : Json(nullptr)},
          {"high_s", row.high ? Json(row.high->value) : Json(nullptr)},
          {"rooflines_s", row.rooflines().value},
          {"measured_s", row.run->measured->value},
          {"error", row.error()},
          {"predicted_peak_bytes", row.peak ? Json(row.peak->count) : Json(nullptr)},
          {"measured_peak_bytes", row.run->peak ? Json(row.run->peak->count) : Json(nullptr)},
          {"predicted_reserved_bytes", row.reserved ? Json(row.reserved->count) : Json(nullptr)},
          {"measured_reserved_bytes", row.run->reserved ? Json(row.run->reserved->count) : Json(nullptr)},
          {"command", command_of(row)}};
}

/// `1.2 %`, with its sign where that matters.
std::string percent_of(double share) {
  return fmt::format("{:.1f} %", in_percent(share, 1));
}
std::string signed_percent(double share) {
  return fmt::format("{:+.1f} %", in_percent(share, 1));
}

std::string runs_table(std::span<const GroupRows> groups) {
  std::string text =
      "| runs | how many | error in the mean | in the middle | at worst | with signs | within their interval | by "
      "rooflines, mean |\n"
      "|---|--:|--:|--:|--:|--:|--:|--:|\n";
  std::vector<double> all, rooflines;
  std::size_t all_within = 0;
  const auto row = [&](const std::string& title, std::span<const double> of, std::span<const double> by_rooflines,
                       std::size_t within) {
    const RelativeErrors summary = relative_errors(of);
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} |\n", title, summary.runs, percent_of(summary.mean),
                        percent_of(summary.median), percent_of(summary.worst), signed_percent(summary.with_signs),
                        within, percent_of(relative_errors(by_rooflines).mean));
  };
  for (const GroupRows& group : groups) {
    if (group.predicted.empty()) continue;
    const std::vector<double> of = group.errors(whole_error), by_rooflines = group.errors(roofline_error);
    const auto within = static_cast<std::size_t>(std::ranges::count_if(group.predicted, &TruthRow::is_within));
    row(group.group->title, of, by_rooflines, within);
    all_within += within;
    all.insert(all.end(), of.begin(), of.end());
    rooflines.insert(rooflines.end(), by_rooflines.begin(), by_rooflines.end());
  }
  row("all", all, rooflines, all_within);
  return text;
}

std::string order_table(std::span<const PlanOrder> orders) {
  std::string text =
      "| choice among | runs | Kendall's tau-b | the chosen one is slower than the fastest by |\n|---|--:|--:|--:|\n";
  for (const PlanOrder& each : orders) {
    text += fmt::format("| {} | {} | {} | {} |\n", each.name, each.rows.size(),
                        each.tau ? fmt::format("{:.2f}", *each.tau) : "", percent_of(each.regret));
  }
  return text;
}

/// The name of the order that a run is in; empty: no other run does its work.
std::string choice_of(const TruthRow& row, std::span<const PlanOrder> orders) {
  const auto of = std::ranges::find_if(
      orders, [&](const PlanOrder& order) { return std::ranges::find(order.rows, &row) != order.rows.end(); });
  return of == orders.end() ? "" : of->name;
}

Json order_json(const PlanOrder& order) {
  const auto run = [](const TruthRow& row) { return Json{{"group", row.group->name}, {"name", row.run->name}}; };
  return {{"choice", order.name},   {"runs", order.rows.size()},  {"tau", order.tau ? Json(*order.tau) : Json(nullptr)},
          {"regret", order.regret}, {"taken", run(*order.taken)}, {"fastest", run(*order.fastest)}};
}

std::string gigabytes(Bytes bytes) {
  return fmt::format("{:.2f}", static_cast<double>(bytes.count) / 1e9);
}

std::string interval_of(const TruthRow& row) {
  return row.low ? fmt::format("{}, {}", format_seconds(*row.low), format_seconds(*row.high)) : "";
}

/// `13.89, 13.97 GB | -0.5 % |`, or empty cells.
std::string bytes_cells(const std::optional<Bytes>& predicted, const std::optional<Bytes>& measured) {
  if (!predicted || !measured) return " | |";
  return fmt::format(" {}, {} GB | {} |", gigabytes(*predicted), gigabytes(*measured),
                     signed_percent(error_of(*predicted, *measured)));
}

std::string group_table(const GroupRows& group) {
  const std::vector<double> peaks = peak_errors(group), reserved = reserved_errors(group);
  std::string head = "| run | predicted | from, to | measured | error | by rooflines |",
              line = "|---|--:|--:|--:|--:|--:|";
  const auto add_columns = [&](const char* what) {
    head += fmt::format(" {}: predicted, measured | error |", what);
    line += "--:|--:|";
  };
  if (!peaks.empty()) add_columns("peak");
  if (!reserved.empty()) add_columns("reserved");
  std::string text = head + '\n' + line + '\n';
  for (const TruthRow* row : group.predicted) {
    text += fmt::format("| {} | {} | {} | {} | {} | {} |", row->run->name, format_seconds(row->whole()),
                        interval_of(*row), format_seconds(*row->run->measured), signed_percent(row->error()),
                        signed_percent(roofline_error(*row)));
    if (!peaks.empty()) text += bytes_cells(row->peak, row->run->peak);
    if (!reserved.empty()) text += bytes_cells(row->reserved, row->run->reserved);
    text += '\n';
  }
  const auto summary_of = [&](const char* of, std::span<const double> errors) {
    const RelativeErrors summary = relative_errors(errors);
    return fmt::format("The error of {} is {} in the mean, {} at worst.\n", of, percent_of(summary.mean),
                       percent_of(summary.worst));
  };
  if (!peaks.empty()) text += "\n" + summary_of("peaks", peaks);
  if (!reserved.empty()) text += summary_of("reserved memory", reserved);
  return text;
}

std::string left_out_table(std::span<const GroupRows> groups) {
  std::string text = "| run | measured | why |\n|---|--:|---|\n";
  for (const GroupRows& group : groups) {
    for (const TruthRow* row : group.left_out) {
      text += fmt::format("| {} | {} | {} |\n", row->run->name,
                          row->run->measured ? format_seconds(*row->run->measured) : "", row->reason);
    }
  }
  return text;
}

}  // namespace

Json truth_json(std::span<const TruthRow> rows) {
  Json json{
      {"groups", Json::array()}, {"runs", Json::array()}, {"choices", Json::array()}, {"not_expressed", Json::array()}};
  const std::vector<PlanOrder> orders = plan_orders(rows);
  for (const GroupRows& group : by_group(rows)) json["groups"].push_back(group_json(group));
  for (const TruthRow& row : rows) {
    if (row.reason.empty()) {
      json["runs"].push_back(run_json(row, choice_of(row, orders)));
    } else {
      json["not_expressed"].push_back(
          {{"group", row.group->name},
           {"name", row.run->name},
           {"measured_s", row.run->measured ? Json(row.run->measured->value) : Json(nullptr)},
           {"reason", row.reason}});
    }
  }
  for (const PlanOrder& each : orders) json["choices"].push_back(order_json(each));
  return json;
}

std::string truth_csv(std::span<const TruthRow> rows) {
  std::string text =
      "group,run,choice,predicted_s,low_s,high_s,rooflines_s,measured_s,error,predicted_peak_bytes,"
      "measured_peak_bytes,predicted_reserved_bytes,measured_reserved_bytes,not_expressed,command\n";
  const std::vector<PlanOrder> orders = plan_orders(rows);
  const auto end = [](const std::optional<Seconds>& of) { return of ? fmt::format("{:.6g}", of->value) : ""; };
  const auto bytes = [](const std::optional<Bytes>& of) { return of ? std::to_string(of->count) : ""; };
  for (const TruthRow& row : rows) {
    const std::string measured = row.run->measured ? fmt::format("{:.6g}", row.run->measured->value) : "";
    text += fmt::format("{},{},{},", csv_field(row.group->name), csv_field(row.run->name),
                        csv_field(choice_of(row, orders)));
    if (row.reason.empty()) {
      text +=
          fmt::format("{:.6g},{},{},{:.6g},{},{:.4f},{},{},{},{},,{}\n", row.whole().value, end(row.low), end(row.high),
                      row.rooflines().value, measured, row.error(), bytes(row.peak), bytes(row.run->peak),
                      bytes(row.reserved), bytes(row.run->reserved), csv_field(command_of(row)));
    } else {
      text += fmt::format(",,,,{},,,{},,{},{},\n", measured, bytes(row.run->peak), bytes(row.run->reserved),
                          csv_field(row.reason));
    }
  }
  return text;
}

std::vector<TruthTable> truth_tables(std::span<const TruthRow> rows) {
  const std::vector<GroupRows> groups = by_group(rows);
  std::vector<TruthTable> tables{{"runs", runs_table(groups)}, {"order", order_table(plan_orders(rows))}};
  for (const GroupRows& group : groups) {
    if (!group.predicted.empty()) tables.push_back({"group " + group.group->name, group_table(group)});
  }
  tables.push_back({"not expressed", left_out_table(groups)});
  return tables;
}

std::string with_truth_tables(std::string page, const std::string& file_name, std::span<const TruthTable> tables) {
  for (const TruthTable& table : tables) {
    const std::string begin = fmt::format("<!-- {} -->\n", table.name),
                      end = fmt::format("<!-- end of {} -->", table.name);
    const std::size_t from = page.find(begin), to = page.find(end);
    if (from == std::string::npos || to == std::string::npos || to < from + begin.size()) {
      throw InputError(fmt::format("{}: no place for '{}': <!-- {} --> and <!-- end of {} -->", file_name, table.name,
                                   table.name, table.name));
    }
    page.replace(from + begin.size(), to - from - begin.size(), table.text);
  }
  return page;
}

}  // namespace plimsoll
