#include "experiments/load/load_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "experiments/load/load_mark.h"
#include "experiments/study/percent.h"
#include "sim/io/quantity.h"

namespace plimsoll {
namespace {

using LoadRow = std::vector<std::string>;

std::string load_seconds_each(const LoadPoint& point, const std::optional<double>& count) {
  return count ? format_seconds(Seconds{point.makespan->value / *count}) : "-";
}

std::string load_class_words(const std::optional<double>& gap) {
  if (!gap) return "-";
  return *gap <= 0 ? "optimal" : fmt::format("{:.1f} %", in_percent(*gap, 1));
}

LoadRow load_row_of(const LoadQuestion& question, const LoadLine& line) {
  const LoadMark mark = mark_of(question, line);
  LoadRow row{line.strategy};
  if (mark.largest == nullptr) {
    row.resize(7, "-");
  } else {
    const LoadPoint& point = *mark.largest;
    row.push_back(std::to_string(point.value));
    row.push_back(format_seconds(*point.makespan));
    row.push_back(load_seconds_each(point, question.samples_at(point.value)));
    row.push_back(load_seconds_each(point, question.tokens_at(point.value)));
    row.push_back(format_bytes(*point.peak));
    row.push_back(load_class_words(point.gap));
  }
  if (question.within) {
    const LoadPoint* within = line.largest_within(*question.within);
    row.push_back(within == nullptr ? "-" : std::to_string(within->value));
  }
  row.push_back(fmt::format("{}", line.points.size()));
  row.push_back(mark.largest == nullptr ? "-" : fmt::format("{}", mark.beyond.size()));
  std::string then = sentence_on_next(question, line, mark);
  for (const std::uint32_t hole : mark.holes) then += fmt::format("; {} does not fit", hole);
  row.push_back(std::move(then));
  return row;
}

/// The first and the last column to the left, the others to the right.
std::string aligned_load_rows(const std::vector<LoadRow>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const LoadRow& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  for (const LoadRow& row : rows) {
    text += fmt::format("  {:<{}}", row.front(), widths.front());
    for (std::size_t c = 1; c + 1 < row.size(); ++c) text += fmt::format("  {:>{}}", row[c], widths[c]);
    text += "  " + row.back() + "\n";
  }
  return text;
}

std::string load_bound_sentence(const LoadQuestion& question, const LoadAnswer& answer) {
  const LoadBoundPoint *last = nullptr, *next = nullptr;
  for (const LoadBoundPoint& point : answer.bounds) {
    if (point.least <= question.memory) last = &point;
  }
  if (last == nullptr) return "";
  for (const LoadBoundPoint& point : answer.bounds) {
    if (point.value == last->value + question.range.step) next = &point;
  }
  if (next == nullptr) return "";
  return fmt::format("on one device that keeps parameters, gradients and states no schedule fits {}: {} needs {}\n",
                     next->value,
                     next->by.empty() ? "what stays there" : fmt::format("the working set of '{}'", next->by),
                     format_bytes(next->least));
}

std::string strategies_that_chose(const LoadAnswer& answer) {
  std::string text;
  for (const LoadLine& line : answer.lines) {
    const LoadPoint* largest = line.largest();
    if (largest == nullptr || largest->chosen.empty()) continue;
    text += fmt::format("at {} '{}' chose {}\n", largest->value, line.strategy, largest->chosen);
  }
  return text;
}

}  // namespace

std::string load_table(const LoadQuestion& question, const LoadAnswer& answer) {
  const Question& asked = question.base;
  std::string text = fmt::format("{} on {}{} within {}: the largest {} of {} to {}", asked.trace, asked.platform,
                                 answer.times_rescaled ? " (times re-scaled)" : "", format_bytes(question.memory),
                                 written(question.varied), question.range.from, question.range.to);
  if (question.range.step > 1) text += fmt::format(" in steps of {}", question.range.step);
  if (asked.micro_batches > 1) text += fmt::format(", {} micro-batches", asked.micro_batches);
  LoadRow heads{"strategy", "largest", "iteration time", "per sample", "per token", "peak memory", "of its class"};
  if (question.within) heads.push_back("within " + format_seconds(*question.within));
  heads.insert(heads.end(), {"tried", "above", "next"});
  std::vector<LoadRow> rows{heads};
  for (const LoadLine& line : answer.lines) rows.push_back(load_row_of(question, line));
  text += "\n" + aligned_load_rows(rows) + strategies_that_chose(answer) + load_bound_sentence(question, answer);
  return text +
         "above: larger values that were tried; none of them fits. Nothing is known of values that were not tried\n";
}

std::string nothing_fits(const LoadQuestion& question, const LoadAnswer& answer) {
  const std::string what = fmt::format("infeasible: no strategy fits {}, whatever the {}",
                                       format_bytes(question.memory), written(question.varied));
  const LeastLoad least = least_load(question, answer);
  if (least.point == nullptr) return what + "; none says how much it needs";
  return fmt::format("{}; at {}={} {} needs the least, {}{} B ({})", what, written(question.varied),
                     question.range.from, least.line->strategy, least.point->smallest_is_proven ? "" : "at most ",
                     least.point->smallest->count, format_bytes(*least.point->smallest));
}

}  // namespace plimsoll
