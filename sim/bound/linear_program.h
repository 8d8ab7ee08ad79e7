#pragma once
// A linear program with or without whole-number variables. Who solves it is above the core (strategies/solve/milp.h).

#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

namespace plimsoll {

inline constexpr double unbounded = std::numeric_limits<double>::infinity();

/// Minimise the sum of cost times variable. Sizes should be scaled so that numbers are neither tiny nor huge.
class LinearProgram {
 public:
  struct Variable {
    double cost = 0, lower = 0, upper = 1;
    bool whole = false;
  };
  using Terms = std::vector<std::pair<std::size_t, double>>;  ///< variable, factor
  struct Row {
    Terms terms;
    double lower = -unbounded, upper = unbounded;
  };

  std::size_t variable(Variable v) {
    variables.push_back(v);
    return variables.size() - 1;
  }
  std::size_t row(Terms terms, double lower, double upper) {
    nonzeros += terms.size();
    rows.push_back({std::move(terms), lower, upper});
    return rows.size() - 1;
  }

  std::vector<Variable> variables;
  std::vector<Row> rows;
  std::size_t nonzeros = 0;  ///< of all rows
};

}  // namespace plimsoll
