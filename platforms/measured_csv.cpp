#include "platforms/measured_csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "platforms/sort_shares.h"
#include "sim/core/names.h"
#include "sim/io/input_error.h"
#include "sim/io/quantity.h"

namespace plimsoll {
namespace {

std::vector<std::string_view> fields_of(std::string_view line) {
  std::vector<std::string_view> fields;
  for (std::size_t at = 0; at <= line.size();) {
    const std::size_t end = std::min(line.find(',', at), line.size());
    fields.push_back(line.substr(at, end - at));
    at = end + 1;
  }
  return fields;
}

/// Why a word is none of its column; empty: it is one.
std::string wrong_word(std::string_view column, std::string_view word) {
  if (column == operation_column) {
    if (operation_named(word)) return {};
    return fmt::format("operation: expected all_reduce, reduce_scatter, all_gather or all_to_all, found '{}'", word);
  }
  const std::span<const std::string_view> sorts = measured_sorts();
  if (std::ranges::find(sorts, word) != sorts.end()) return {};
  return fmt::format("sort: expected {}, found '{}'{}", alternatives(sorts), word, suggestion(word, sorts));
}

MeasuredRow row_of(const MeasuredCsv& csv, std::string_view line, std::size_t number, const std::string& file) {
  const std::vector<std::string_view> fields = fields_of(line);
  if (fields.size() != csv.columns.size()) {
    refuse_row(file, number, 1, fmt::format("expected {} fields, found {}", csv.columns.size(), fields.size()));
  }
  MeasuredRow row{number, {}, {}};
  for (std::size_t f = 0; f < fields.size(); ++f) {
    const auto column = static_cast<std::size_t>(fields[f].data() - line.data()) + 1;
    if (csv.columns[f] == operation_column || csv.columns[f] == sort_column) {
      if (const std::string why = wrong_word(csv.columns[f], fields[f]); !why.empty()) {
        refuse_row(file, number, column, why);
      }
      row.word = fields[f];
      row.numbers.push_back(0);
      continue;
    }
    const Parsed<double> value = parse_number(fields[f]);
    if (!value.fine() || !(value.value > 0)) {
      refuse_row(file, number, column,
                 fmt::format("{}: expected a number above 0, found '{}'", csv.columns[f], fields[f]));
    }
    row.numbers.push_back(value.value);
  }
  return row;
}

}  // namespace

std::optional<CollectiveKind> operation_named(std::string_view word) {
  const std::optional<CollectiveKind> kind = from_name<CollectiveKind>(word == "alltoall" ? "all_to_all" : word);
  return kind == CollectiveKind::broadcast ? std::nullopt : kind;
}

void refuse_row(const std::string& file, std::size_t line, std::size_t column, const std::string& what) {
  throw InputError(fmt::format("{}:{}:{}: {}", file, line, column, what));
}

MeasuredCsv read_measured_csv(const std::string& text, const std::string& file) {
  MeasuredCsv csv;
  std::size_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    if (!csv.columns.empty()) {
      csv.rows.push_back(row_of(csv, line, number, file));
      continue;
    }
    for (const std::string_view field : fields_of(line)) {
      if (std::ranges::find(csv.columns, field) != csv.columns.end()) {
        refuse_row(file, number, static_cast<std::size_t>(field.data() - line.data()) + 1,
                   fmt::format("{}: expected a column once, found it twice", field));
      }
      csv.columns.emplace_back(field);
    }
  }
  return csv;
}

std::optional<std::size_t> column_of(const MeasuredCsv& csv, std::string_view name) {
  const auto found = std::ranges::find(csv.columns, name);
  if (found == csv.columns.end()) return std::nullopt;
  return static_cast<std::size_t>(found - csv.columns.begin());
}

TimeColumn time_column_of(const MeasuredCsv& csv, const std::string& file) {
  for (const auto& [name, unit] : {std::pair{"time_us", 1e-6}, std::pair{"time_ms", 1e-3}, std::pair{"time_s", 1.0}}) {
    if (const std::optional<std::size_t> at = column_of(csv, name)) return {*at, unit};
  }
  std::string columns;
  for (const std::string& column : csv.columns) columns += (columns.empty() ? "" : ",") + column;
  refuse_row(file, 1, 1, fmt::format("expected a column time_us, time_ms or time_s, found '{}'", columns));
}

void refuse_few_rows(const MeasuredCsv& csv, const std::string& file) {
  constexpr std::size_t fewest_rows = 8;
  if (csv.rows.size() >= fewest_rows) return;
  refuse_row(file, csv.rows.empty() ? 1 : csv.rows.back().line, 1,
             fmt::format("expected at least {} rows, found {}", fewest_rows, csv.rows.size()));
}

}  // namespace plimsoll
