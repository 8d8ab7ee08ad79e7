#pragma once
// Arithmetic on the numbers of results, as files of expected numbers write it: `1 - 3.692448 / longest_stage_s`,
// `plain.peak_bytes / least(peak_bytes, makespan_s <= 1.2 * plain.makespan_s)`.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/io/quantity.h"

namespace plimsoll {

/// `plain.makespan_s`: a field of a result, and the point whose result it is; no point: the row's own. A field of an
/// object is `peak.step`, which only those tell from a point's who know the points.
struct NamedNumber {
  std::string point, field;

  friend bool operator==(const NamedNumber&, const NamedNumber&) = default;
};

/// A number at one of a row's budgets (unset: at the one that the row names); nothing where the result has none.
using NumberAt = std::function<std::optional<double>(const NamedNumber&, std::optional<std::size_t> budget)>;

struct Expression {
  /// A comparison is 1 or 0. `mean`, `least` and `largest` ask their first part at each budget where the second, if
  /// there is one, is not 0.
  enum class Is { number, name, negative, add, subtract, multiply, divide, at_most, mean, least, largest };

  Is is = Is::number;
  double number = 0;
  NamedNumber name;
  std::vector<Expression> of;
};

/// The expression, or what is wrong and in which column.
Parsed<Expression> parse_expression(std::string_view text);

/// All that it names, in the order of its text.
std::vector<NamedNumber> names_in(const Expression&);

/// Nothing where a number is missing, and where nothing finite comes of it. Budgets without a number are left out of
/// `mean`, `least` and `largest`.
std::optional<double> value_of(const Expression&, const NumberAt&, std::size_t budgets);

}  // namespace plimsoll
