#pragma once
// rotor as it was published: which activations of a chain to keep, found by dynamic programming over (first stage, last
// stage, memory), with memory counted in slots. The recursion and its source: rotor_conditions.h.

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "strategies/models/chain_sequence.h"
#include "strategies/rematerialization/rotor/rotor_conditions.h"
#include "strategies/rematerialization/rotor/rotor_exact.h"

namespace plimsoll {

/// The slot of the published implementation, a part of the budget: what is left beside parameters, divided by `slots`
/// and rounded down; or the greatest common divisor of all sizes, where that is no smaller.
Bytes slot_for(const ChainModel&, Bytes budget, std::int64_t slots);

/// Sizes that stay live are rounded up to whole slots, conditions are tested in bytes. Optimal in its class but for
/// this rounding, so exact where the slot divides all sizes.
class RotorTable {
 public:
  /// For budgets up to `most`. Sequences that repeat forwards for longer than `longest_recompute` are left out.
  RotorTable(ChainModel, Bytes slot, Bytes most, Seconds longest_recompute = {std::numeric_limits<double>::infinity()});

  /// A sequence with a peak of at most `budget`, or nothing. From store_all's peak on it is store_all.
  std::optional<ChainSequence> solve(Bytes budget) const;

  /// Least recompute time by this table.
  std::optional<Seconds> recompute(Bytes budget) const;

  /// The least budget that solve() answers.
  Bytes smallest_feasible() const;

 private:
  using Slots = std::int32_t;

  // Least recompute time of one sub-chain: infinite below `need` slots, 0 from `enough` on, between them values[m -
  // need].
  struct Row {
    const double* values = nullptr;
    Slots need = 0, enough = 0;
  };
  // Rows of all sub-chains with one Entry, in the two orders in which they are read.
  struct Rows {
    std::vector<Row> late, early;  // (i, l) by l, then i; by i, then l
  };
  struct Scratch;

  std::optional<Slots> slots_within(Bytes budget) const;
  void build();
  Row best_row(std::size_t i, std::size_t l, Entry, Scratch&);
  void relax_splits(std::size_t i, std::size_t l, Entry, std::size_t end, Slots need, Slots high, Scratch&) const;
  double limit(std::size_t i, std::size_t l) const;
  const double* store(const double* first, const double* last);

  Slots slots_for(Bytes need) const;
  static std::size_t at(Entry entry) { return entry == Entry::saved ? 0 : 1; }
  std::size_t early_at(std::size_t i, std::size_t l) const { return i * model_.stages() - i * (i + 1) / 2 + l; }
  const Row& row(std::size_t i, std::size_t l, Entry entry) const { return rows_[at(entry)].late[l * (l + 1) / 2 + i]; }
  const Row& early_row(std::size_t i, std::size_t l, Entry entry) const {
    return rows_[at(entry)].early[early_at(i, l)];
  }
  void set(std::size_t i, std::size_t l, Entry entry, Row);
  const Row& whole() const { return row(0, model_.stages() - 1, Entry::saved); }
  double time(std::size_t i, std::size_t l, Entry, Slots m) const;
  void append(ChainSequence&, std::size_t i, std::size_t l, Entry, Slots m) const;
  std::size_t split(std::size_t i, std::size_t l, Entry, Slots m) const;

  ChainModel model_;
  RotorConditions conditions_;
  Bytes store_all_peak_, base_;  // base: what sub-problem (0, n - 1) does not count
  std::int64_t unit_;
  double longest_recompute_;
  Slots capacity_ = 0;                             // the largest m
  std::vector<Slots> x_, kept_[2];                 // in slots; kept by entry
  std::vector<double> nograd_, nograd_before_;     // seconds; of one stage, of all before it
  Rows rows_[2];                                   // by entry
  std::vector<std::unique_ptr<double[]>> blocks_;  // what rows point into
  std::size_t block_left_ = 0;
};

// rotor with sizes rounded as in the published implementation, to a part of each budget (rotor_table.h), and never
// slower than what is found without (rotor_exact.h). Where that is proven to be optimal no table is filled.

class RotorSlots {
 public:
  /// Budgets as for RotorExact.
  RotorSlots(const ChainModel&, std::int64_t slots, std::span<const Bytes> budgets = {});

  std::optional<ExactPlan> solve(Bytes budget) const;

  Bytes smallest_feasible() const { return unrounded_.smallest_feasible(); }

  /// Ascending budgets from the least to store_all's peak.
  std::vector<Bytes> steps() const;

 private:
  ChainModel model_;
  std::int64_t slots_;
  RotorExact unrounded_;
};

}  // namespace plimsoll
