#pragma once
// Rows of measured times: CSV text with names of columns in its first line, numbers above 0, and at most one column of
// words.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/schedule.h"

namespace plimsoll {

/// Columns of words: a collective (operation_named), or a sort of kernels (measured_sorts).
inline constexpr std::string_view operation_column = "operation", sort_column = "sort";

struct MeasuredRow {
  std::size_t line = 0;
  std::vector<double> numbers;  ///< of the columns; 0 for a word
  std::string word;
};

struct MeasuredCsv {
  std::vector<std::string> columns;
  std::vector<MeasuredRow> rows;
};

/// As platforms write it, or as nccl-tests calls its program.
std::optional<CollectiveKind> operation_named(std::string_view word);

/// Throws InputError, with the place, for a field that is no such number or word, a row of another length, and a column
/// that comes twice.
MeasuredCsv read_measured_csv(const std::string& text, const std::string& file);

[[noreturn]] void refuse_row(const std::string& file, std::size_t line, std::size_t column, const std::string& what);

/// By name; nothing where there is none.
std::optional<std::size_t> column_of(const MeasuredCsv&, std::string_view name);

struct TimeColumn {
  std::size_t at = 0;
  double unit = 1;  ///< seconds
};

/// time_us, time_ms or time_s; throws where there is none.
TimeColumn time_column_of(const MeasuredCsv&, const std::string& file);

/// Fewer than 8 rows make no table.
void refuse_few_rows(const MeasuredCsv&, const std::string& file);

}  // namespace plimsoll
