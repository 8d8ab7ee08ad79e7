#pragma once
// What planners of placements move as a whole: groups of nodes that share a processor, and single nodes; where each may
// run, and what processors have to do.

#include <optional>
#include <variant>
#include <vector>

#include "strategies/api/strategy.h"
#include "strategies/placement/op_dag.h"

namespace plimsoll {

/// Units are numbered by their first nodes.
struct Units {
  std::vector<std::uint32_t> of;               ///< by node: its unit
  Rows<std::uint32_t> nodes;                   ///< by unit: ascending
  std::vector<std::vector<Nanoseconds>> time;  ///< by processor, by unit; cannot_run also where there is no memory
  std::vector<bool> is_free;                   ///< by unit: whether every processor of the field can run it
  std::vector<std::uint32_t> field;  ///< processors that the planner chooses among, ascending: those of the most work

  std::uint32_t size() const { return static_cast<std::uint32_t>(nodes.size()); }
  /// Of the field, by the time of all free units there; of equals the smallest number first.
  std::vector<std::uint32_t> fastest_first() const;
};

/// Infeasible where no processor with memory can run one of them.
std::variant<Units, Infeasible> units_of(const OpDag&, const Machine&);

/// Where units are put, and how long each processor has to run what is there.
class Assignment {
 public:
  explicit Assignment(const Units&);

  void put(std::uint32_t unit, std::uint32_t processor);
  /// Together, where they would end first by loads alone; of equals the smallest number. One processor can run all.
  void put_least_loaded(std::span<const std::uint32_t> units);
  /// What is nowhere yet, in the order of numbers, each to the least loaded one.
  void put_rest();

  bool is_put(std::uint32_t unit) const { return on_[unit] != no_node; }
  std::uint32_t on(std::uint32_t unit) const { return on_[unit]; }
  const std::vector<Nanoseconds>& load() const { return load_; }
  Placement placement() const;

 private:
  const Units& units_;
  std::vector<std::uint32_t> on_;  // by unit
  std::vector<Nanoseconds> load_;  // by processor
};

/// The share of the free units' work that each processor of the field is given so that all end at one time, which
/// includes what only one processor can run. They sum to 1.
std::vector<double> shares(const Units&);

/// The first processor whose memory does not hold what it is given, in the order and times of an emulation.
std::optional<std::uint32_t> overfull(const OpDag&, const Machine&, const Placement&);

}  // namespace plimsoll
