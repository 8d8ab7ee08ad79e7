#include "strategies/hybrid/split_program.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace plimsoll {
namespace {

class SplitProgram {
 public:
  SplitProgram(const SplitTable& table, const SplitChoices& start) : table_(table), start_(start) {
    // Costs around one: the cost of the start.
    const double whole = table.priced(start).value;
    scale_ = whole > 0 ? 1 / whole : 1;
    for (std::size_t n = 0; n < table.nodes.size(); ++n) add_node(n);
    for (const SplitTable::Edge& edge : table.edges) add_edge(edge);
    if (table.limit) add_memory();
  }

  ProgrammedSplit solve(const MilpLimits& limits) {
    const MilpResult found = solve_milp(program_, values_, limits);
    ProgrammedSplit made{start_, {}, why_stopped(found.end, limits), found.end == MilpResult::End::out_of_time};
    made.bound = Seconds{std::max(0.0, found.bound / scale_)};
    if (found.values.empty()) return made;
    SplitChoices choices(table_.nodes.size(), 0);
    for (std::size_t n = 0; n < choices.size(); ++n) {
      for (std::uint32_t c = 0; c < table_.choices(n).size(); ++c) {
        if (found.values[first_[n] + c] > 0.5) choices[n] = c;
      }
    }
    if (table_.keeps_limit(choices) && table_.priced(choices) < table_.priced(start_))
      made.choices = std::move(choices);
    return made;
  }

 private:
  std::size_t variable(double seconds, bool whole, bool is_taken) {
    values_.push_back(is_taken ? 1 : 0);
    return program_.variable({.cost = scale_ * seconds, .whole = whole});
  }

  void add_node(std::size_t n) {
    LinearProgram::Terms one;
    for (std::uint32_t c = 0; c < table_.choices(n).size(); ++c) {
      const std::size_t choice =
          variable((table_.choices(n)[c].seconds + table_.choices(n)[c].sums).value, true, start_[n] == c);
      if (c == 0) first_.push_back(choice);
      one.emplace_back(choice, 1);
    }
    program_.row(std::move(one), 1, 1);
  }

  /// Pairs of choices sum to each end's choice. Where all pairs cost the same, or one end's choice says it, there are
  /// fewer to decide; the solver finds that itself.
  void add_edge(const SplitTable::Edge& edge) {
    const std::size_t rows = table_.choices(edge.from).size(), columns = table_.choices(edge.to).size();
    std::vector<LinearProgram::Terms> by_row(rows), by_column(columns);
    for (std::size_t a = 0; a < rows; ++a) {
      for (std::size_t b = 0; b < columns; ++b) {
        const bool is_taken = start_[edge.from] == a && start_[edge.to] == b;
        const std::size_t pair = variable((*edge.seconds)[a * columns + b].value, false, is_taken);
        by_row[a].emplace_back(pair, 1);
        by_column[b].emplace_back(pair, 1);
      }
    }
    for (std::size_t a = 0; a < rows; ++a) {
      by_row[a].emplace_back(first_[edge.from] + a, -1);
      program_.row(std::move(by_row[a]), 0, 0);
    }
    for (std::size_t b = 0; b < columns; ++b) {
      by_column[b].emplace_back(first_[edge.to] + b, -1);
      program_.row(std::move(by_column[b]), 0, 0);
    }
  }

  /// A row a moment, in shares of the limit.
  void add_memory() {
    const double whole = std::max(1.0, static_cast<double>(table_.limit->count));
    std::vector<LinearProgram::Terms> held(table_.moments);
    for (std::size_t n = 0; n < table_.nodes.size(); ++n) {
      for (std::uint32_t c = 0; c < table_.choices(n).size(); ++c) {
        std::vector<Bytes> bytes(table_.moments);
        for (const SplitTable::Held& each : table_.held[n]) {
          for (std::uint32_t m = each.from; m < each.to; ++m) bytes[m] += (*each.bytes)[c];
        }
        for (std::uint32_t m = 0; m < table_.moments; ++m) {
          if (bytes[m] > Bytes{0}) held[m].emplace_back(first_[n] + c, static_cast<double>(bytes[m].count) / whole);
        }
      }
    }
    const double limit = static_cast<double>(table_.limit->count) / whole;
    for (LinearProgram::Terms& terms : held) {
      if (!terms.empty()) program_.row(std::move(terms), -unbounded, limit);
    }
  }

  const SplitTable& table_;
  const SplitChoices& start_;
  double scale_ = 1;
  LinearProgram program_;
  std::vector<std::size_t> first_;  // by node: the variable of its first choice
  std::vector<double> values_;      // of the start
};

}  // namespace

ProgrammedSplit solve_split_program(const SplitTable& table, const SplitChoices& start, const MilpLimits& limits) {
  return SplitProgram(table, start).solve(limits);
}

}  // namespace plimsoll
