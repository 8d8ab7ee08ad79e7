#pragma once
// The numbers that an experiment of a paper has to come to: experiments/papers/NAME/expected.yaml, whose format
// experiments/README.md describes.

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "experiments/published/expression.h"
#include "experiments/sweep/experiment_file.h"
#include "sim/core/names.h"
#include "sim/core/units.h"

namespace plimsoll {

/// How far a number may be from what is expected: so much, or such a share of it.
struct AllowedDifference {
  double amount = 0;
  bool is_share = false;
};

enum class LastBudget { is };

/// A budget of a point: its bytes, its place from 1 on among those of its sweep, or the last of them.
using BudgetChoice = std::variant<Bytes, std::uint32_t, LastBudget>;

/// A point of the sweep, or its row of budgets: a value of each of combined_lists.
struct ExpectedPoint {
  Combination of;
  std::optional<BudgetChoice> budget;  ///< unset: the only one
  bool has_own_budget = true;          ///< else, in `mean` and its like, the budget that they are at
};

struct ExpectedRow {
  std::string name, series, where, unit, why_not;  ///< `why_not` our models do not come to the published number
  std::optional<double> x;                         ///< in the figure
  std::optional<double> published, recorded;       ///< `recorded`: what this program once came to
  AllowedDifference within, recorded_within;
  std::optional<std::uint32_t> decimals;
  std::optional<Expression> ours;                            ///< unset: nothing of the sweep says it
  ExpectedPoint at;                                          ///< the row's own
  std::map<std::string, ExpectedPoint, std::less<>> points;  ///< others, by the names that `ours` has for them
};

struct ExpectedGroup {
  std::string title;
  std::vector<ExpectedRow> rows;
};

enum class FigureKind {
  bars,     ///< a bar a row, a panel a group
  lines,    ///< a line a series through its rows' x, a panel a group
  budgets,  ///< slow-down by budget of all strategies of the sweep, a panel a case
};

template <>
struct Names<FigureKind> {
  static constexpr std::array all{std::pair{FigureKind::bars, "bars"}, std::pair{FigureKind::lines, "lines"},
                                  std::pair{FigureKind::budgets, "budgets"}};
};

struct PaperFigure {
  FigureKind kind = FigureKind::bars;
  std::string x, y;            ///< of the axes; no `y`: each panel has the unit of its rows
  std::optional<double> most;  ///< where the vertical axis ends
};

struct ExpectedNumbers {
  std::string paper;
  std::string preset;  ///< of the experiment; empty: all of it
  PaperFigure figure;
  std::vector<ExpectedGroup> groups;
};

/// Throws InputError with everything that is wrong, points that the experiment does not have among it.
ExpectedNumbers parse_expected_numbers(const std::string& text, const std::string& file,
                                       const std::filesystem::path& experiment);

/// Names that `plimsoll reproduce` takes, in alphabetical order.
std::vector<std::string> paper_names();

}  // namespace plimsoll
