#include "strategies/common/milp.h"

#include <coin/Cbc_C_Interface.h>
#include <coin/Clp_C_Interface.h>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

/// The columns of a program, as COIN-OR wants them.
struct Columns {
  explicit Columns(const LinearProgram& program) {
    const std::size_t n = program.variables.size();
    std::vector<int> count(n + 1, 0);
    for (const LinearProgram::Row& row : program.rows) {
      for (const auto& [variable, factor] : row.terms) ++count[variable + 1];
      row_lower.push_back(row.lower);
      row_upper.push_back(row.upper);
    }
    for (std::size_t v = 0; v < n; ++v) count[v + 1] += count[v];
    start.assign(count.begin(), count.end());
    index.resize(static_cast<std::size_t>(count[n]));
    value.resize(index.size());
    for (std::size_t r = 0; r < program.rows.size(); ++r) {
      for (const auto& [variable, factor] : program.rows[r].terms) {
        const auto at = static_cast<std::size_t>(count[variable]++);
        index[at] = static_cast<int>(r);
        value[at] = factor;
      }
    }
    for (const LinearProgram::Variable& v : program.variables) {
      lower.push_back(v.lower);
      upper.push_back(v.upper);
      cost.push_back(v.cost);
    }
  }

  std::vector<CoinBigIndex> start;
  std::vector<int> index;
  std::vector<double> value, lower, upper, cost, row_lower, row_upper;
};

std::vector<double> copied(const double* values, std::size_t count) {
  return {values, values + count};
}

}  // namespace

MilpResult solve_milp(const LinearProgram& program, std::span<const double> start, const MilpLimits& limits) {
  const Columns columns(program);
  const auto n = static_cast<int>(program.variables.size());
  const std::unique_ptr<Cbc_Model, decltype(&Cbc_deleteModel)> model(Cbc_newModel(), &Cbc_deleteModel);
  Cbc_loadProblem(model.get(), n, static_cast<int>(program.rows.size()), columns.start.data(), columns.index.data(),
                  columns.value.data(), columns.lower.data(), columns.upper.data(), columns.cost.data(),
                  columns.row_lower.data(), columns.row_upper.data());
  std::vector<int> whole;
  std::vector<double> start_values;
  for (int v = 0; v < n; ++v) {
    if (!program.variables[static_cast<std::size_t>(v)].whole) continue;
    Cbc_setInteger(model.get(), v);
    if (start.empty()) continue;
    whole.push_back(v);
    start_values.push_back(start[static_cast<std::size_t>(v)]);
  }
  Cbc_setLogLevel(model.get(), 0);
  Cbc_setMaximumSeconds(model.get(), limits.seconds);
  Cbc_setMaximumNodes(model.get(), limits.nodes);
  Cbc_setAllowableGap(model.get(), 0);
  Cbc_setAllowableFractionGap(model.get(), 0);
  if (!whole.empty()) {
    Cbc_setMIPStartI(model.get(), static_cast<int>(whole.size()), whole.data(), start_values.data());
  }
  Cbc_solve(model.get());

  MilpResult result;
  result.bound = Cbc_getBestPossibleObjValue(model.get());
  if (Cbc_isProvenInfeasible(model.get()) != 0) {
    result.end = MilpResult::End::infeasible;
    return result;
  }
  if (const double* best = Cbc_bestSolution(model.get())) {
    result.values = copied(best, program.variables.size());
    result.objective = Cbc_getObjValue(model.get());
    if (Cbc_isProvenOptimal(model.get()) != 0) {
      result.end = MilpResult::End::optimal;
      result.bound = result.objective;  // CBC's own bound may lag behind
    }
  }
  return result;
}

struct Relaxation::Solver {
  explicit Solver(const LinearProgram& of)
      : columns(of), variables(of.variables.size()), rows(of.rows.size()), model(Clp_newModel(), &Clp_deleteModel) {
    Clp_setLogLevel(model.get(), 0);
    Clp_loadProblem(model.get(), static_cast<int>(variables), static_cast<int>(rows), columns.start.data(),
                    columns.index.data(), columns.value.data(), columns.lower.data(), columns.upper.data(),
                    columns.cost.data(), columns.row_lower.data(), columns.row_upper.data());
  }

  Columns columns;
  std::size_t variables, rows;
  std::unique_ptr<Clp_Simplex, decltype(&Clp_deleteModel)> model;
};

Relaxation::Relaxation(const LinearProgram& program, double seconds) : solver_(std::make_unique<Solver>(program)) {
  Clp_setMaximumSeconds(solver_->model.get(), seconds);
}

Relaxation::~Relaxation() = default;

void Relaxation::set_upper(std::size_t row, double upper) {
  EXPECTS(row < solver_->rows);
  solver_->columns.row_upper[row] = upper;
}

std::optional<std::vector<double>> Relaxation::solve() {
  Clp_chgRowUpper(solver_->model.get(), solver_->columns.row_upper.data());
  Clp_dual(solver_->model.get(), 0);
  if (Clp_status(solver_->model.get()) != 0) return std::nullopt;
  return copied(Clp_getColSolution(solver_->model.get()), solver_->variables);
}

}  // namespace plimsoll
