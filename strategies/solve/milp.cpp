#include "strategies/solve/milp.h"

#include <fmt/format.h>

#include <array>

#include "sim/core/expects.h"
#include "sim/engine/late_library.h"
#include "strategies/solve/coin.h"
#include "strategies/solve/limited_process.h"

namespace plimsoll {
namespace {

using SearchEnd = MilpResult::End;

const Coin& coin() {
  static const Coin& library = late_library<Coin>("coin");
  return library;
}

}  // namespace

std::string why_stopped(SearchEnd end, const MilpLimits& limits) {
  switch (end) {
    case SearchEnd::optimal:
    case SearchEnd::infeasible:
      return {};
    case SearchEnd::out_of_time:
      return fmt::format("the integer program stopped after {} s (time_limit)", limits.seconds);
    case SearchEnd::out_of_nodes:
      return fmt::format("the integer program stopped after {} nodes (nodes)", limits.nodes);
    case SearchEnd::out_of_memory:
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
  const Coin& solver = coin();  // loaded before the process that is limited
  const ProcessResult process = run_limited(outer, [&](const SendMessage& send) {
    const MilpResult found =
        solver.branch_and_cut(program, start, {of_the_time * limits.seconds, limits.nodes, limits.memory});
    send(std::array{static_cast<double>(static_cast<int>(found.end)), found.objective, found.bound});
    send(found.values);
  });
  if (process.end != ProcessResult::End::finished) {
    const bool late = process.end == ProcessResult::End::out_of_time;
    return {late ? SearchEnd::out_of_time : SearchEnd::out_of_memory, {}, 0, -unbounded};
  }
  EXPECTS(process.messages.size() == 2 && process.messages[0].size() == 3);
  const std::vector<double>& head = process.messages[0];
  return {static_cast<SearchEnd>(static_cast<int>(head[0])), process.messages[1], head[1], head[2]};
}

Relaxation::Relaxation(const LinearProgram& program, double seconds) : simplex_(coin().simplex(program, seconds)) {}

Relaxation::~Relaxation() = default;

void Relaxation::set_upper(std::size_t row, double upper) {
  simplex_->set_upper(row, upper);
}

std::optional<std::vector<double>> Relaxation::solve() {
  return simplex_->solve();
}

}  // namespace plimsoll
