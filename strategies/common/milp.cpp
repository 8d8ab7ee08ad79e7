#include "strategies/common/milp.h"

#include <coin/Cbc_C_Interface.h>
#include <fmt/format.h>
#include <coin/ClpSimplex.hpp>

#include <array>

#include "sim/core/expects.h"
#include "strategies/common/limited_process.h"

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

using End = MilpResult::End;

End end_of(Cbc_Model* model) {
  if (Cbc_isProvenInfeasible(model) != 0) return End::infeasible;
  if (Cbc_isProvenOptimal(model) != 0 && Cbc_bestSolution(model) != nullptr) return End::optimal;
  return Cbc_isNodeLimitReached(model) != 0 ? End::out_of_nodes : End::out_of_time;
}

MilpResult solve_here(const LinearProgram& program, std::span<const double> start, const MilpLimits& limits) {
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
  Cbc_setParameter(model.get(), "timeMode", "elapsed");
  Cbc_setMaximumSeconds(model.get(), limits.seconds);
  Cbc_setMaximumNodes(model.get(), limits.nodes);
  Cbc_setAllowableGap(model.get(), 0);
  Cbc_setAllowableFractionGap(model.get(), 0);
  if (!whole.empty()) {
    Cbc_setMIPStartI(model.get(), static_cast<int>(whole.size()), whole.data(), start_values.data());
  }
  Cbc_solve(model.get());

  MilpResult result{end_of(model.get()), {}, 0, Cbc_getBestPossibleObjValue(model.get())};
  const double* best = Cbc_bestSolution(model.get());
  if (result.end == End::infeasible || best == nullptr) return result;
  result.values = copied(best, program.variables.size());
  result.objective = Cbc_getObjValue(model.get());
  if (result.end == End::optimal) result.bound = result.objective;  // CBC's own bound may lag behind
  return result;
}

}  // namespace

std::string why_stopped(End end, const MilpLimits& limits) {
  switch (end) {
    case End::optimal:
    case End::infeasible:
      return {};
    case End::out_of_time:
      return fmt::format("the integer program stopped after {} s (time_limit)", limits.seconds);
    case End::out_of_nodes:
      return fmt::format("the integer program stopped after {} nodes (nodes)", limits.nodes);
    case End::out_of_memory:
      return fmt::format("the integer program stopped at {} MB of memory", limits.memory.count / 1'000'000);
  }
  EXPECTS(false && "every end is named");
  return {};
}

// CBC looks at the clock between its phases only. It stops by itself a little before its process is ended, so that
// what it has found by then is not lost.
MilpResult solve_milp(const LinearProgram& program, std::span<const double> start, const MilpLimits& limits) {
  constexpr double of_the_time = 0.9;
  const ProcessLimits outer{limits.seconds, limits.memory};
  const ProcessResult process = run_limited(outer, [&](const SendMessage& send) {
    const MilpResult found = solve_here(program, start, {of_the_time * limits.seconds, limits.nodes, limits.memory});
    send(std::array{static_cast<double>(static_cast<int>(found.end)), found.objective, found.bound});
    send(found.values);
  });
  if (process.end != ProcessResult::End::finished) {
    const bool late = process.end == ProcessResult::End::out_of_time;
    return {late ? End::out_of_time : End::out_of_memory, {}, 0, -unbounded};
  }
  EXPECTS(process.messages.size() == 2 && process.messages[0].size() == 3);
  const std::vector<double>& head = process.messages[0];
  return {static_cast<End>(static_cast<int>(head[0])), process.messages[1], head[1], head[2]};
}

struct Relaxation::Solver {
  explicit Solver(const LinearProgram& of) : columns(of), variables(of.variables.size()), rows(of.rows.size()) {
    model.setLogLevel(0);
    model.loadProblem(static_cast<int>(variables), static_cast<int>(rows), columns.start.data(), columns.index.data(),
                      columns.value.data(), columns.lower.data(), columns.upper.data(), columns.cost.data(),
                      columns.row_lower.data(), columns.row_upper.data());
  }

  Columns columns;
  std::size_t variables, rows;
  ClpSimplex model;
};

Relaxation::Relaxation(const LinearProgram& program, double seconds) : solver_(std::make_unique<Solver>(program)) {
  solver_->model.setMaximumWallSeconds(seconds);
}

Relaxation::~Relaxation() = default;

void Relaxation::set_upper(std::size_t row, double upper) {
  EXPECTS(row < solver_->rows);
  solver_->columns.row_upper[row] = upper;
}

std::optional<std::vector<double>> Relaxation::solve() {
  solver_->model.chgRowUpper(solver_->columns.row_upper.data());
  solver_->model.dual();
  if (solver_->model.status() != 0) return std::nullopt;
  return copied(solver_->model.primalColumnSolution(), solver_->variables);
}

}  // namespace plimsoll
