#include "strategies/solve/coin.h"

#include <coin/Cbc_C_Interface.h>
#include <coin/ClpSimplex.hpp>

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

using End = MilpResult::End;

End end_of(Cbc_Model* model) {
  if (Cbc_isProvenInfeasible(model) != 0) return End::infeasible;
  if (Cbc_isProvenOptimal(model) != 0 && Cbc_bestSolution(model) != nullptr) return End::optimal;
  return Cbc_isNodeLimitReached(model) != 0 ? End::out_of_nodes : End::out_of_time;
}

MilpResult branch_and_cut(const LinearProgram& program, std::span<const double> start, const MilpLimits& limits) {
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

class ClpProgram : public Simplex {
 public:
  ClpProgram(const LinearProgram& program, double seconds)
      : columns_(program), variables_(program.variables.size()), rows_(program.rows.size()) {
    model_.setLogLevel(0);
    model_.loadProblem(static_cast<int>(variables_), static_cast<int>(rows_), columns_.start.data(),
                       columns_.index.data(), columns_.value.data(), columns_.lower.data(), columns_.upper.data(),
                       columns_.cost.data(), columns_.row_lower.data(), columns_.row_upper.data());
    model_.setMaximumWallSeconds(seconds);
  }

  void set_upper(std::size_t row, double upper) override {
    EXPECTS(row < rows_);
    columns_.row_upper[row] = upper;
  }

  std::optional<std::vector<double>> solve() override {
    model_.chgRowUpper(columns_.row_upper.data());
    model_.dual();
    if (model_.status() != 0) return std::nullopt;
    return copied(model_.primalColumnSolution(), variables_);
  }

 private:
  Columns columns_;
  std::size_t variables_, rows_;
  ClpSimplex model_;
};

std::unique_ptr<Simplex> simplex(const LinearProgram& program, double seconds) {
  return std::make_unique<ClpProgram>(program, seconds);
}

}  // namespace
}  // namespace plimsoll

extern "C" {
extern const plimsoll::Coin plimsoll_coin;
const plimsoll::Coin plimsoll_coin{&plimsoll::branch_and_cut, &plimsoll::simplex};
}
