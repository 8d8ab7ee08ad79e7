#pragma once
// rotor: which activations of a chain to keep, found by dynamic programming over (first stage, last stage, memory),
// with memory counted in slots. One table answers every budget. The recursion and its source: rotor_conditions.h.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "strategies/common/chain_sequence.h"
#include "strategies/rematerialization/rotor_conditions.h"

namespace plimsoll {

/// Which way sizes that stay live are rounded to whole slots.
enum class SlotRounding : std::uint8_t {
  up,    ///< every sequence keeps its budget
  down,  ///< times are lower bounds, sequences may exceed the budget
};

/// Sizes that stay live are rounded to whole slots, conditions are tested in bytes. A slot is the greatest common
/// divisor of all sizes where `slots` of them reach what store_all needs (then the table is exact), else 1 / slots of
/// that need. Optimal in its class but for this rounding.
class RotorTable {
 public:
  RotorTable(ChainModel, std::int64_t slots, SlotRounding = SlotRounding::up);

  /// A sequence with a peak of at most `budget`, or nothing. From store_all's peak on it is store_all.
  std::optional<ChainSequence> solve(Bytes budget) const;

  /// Least recompute time by this table; rounded down, no sequence of rotor's class is faster.
  std::optional<Seconds> recompute(Bytes budget) const;

  /// The least budget that solve() answers.
  Bytes smallest_feasible() const;

  Bytes store_all_peak() const { return store_all_peak_; }
  Bytes slot() const { return Bytes{unit_}; }
  bool exact() const { return exact_; }  ///< nothing was rounded

 private:
  using Slots = std::int32_t;

  // Least recompute time of one sub-chain: infinite below `need` slots, 0 from `enough` on, between them values[m -
  // need].
  struct Row {
    const double* values = nullptr;
    Slots need = 0, enough = 0;
  };
  struct Scratch;

  std::optional<Slots> slots_within(Bytes budget) const;
  void choose_slot(std::int64_t slots);
  void build();
  Row best_row(std::size_t i, std::size_t l, Scratch&);
  void relax_splits(std::size_t i, std::size_t l, std::size_t end, Slots need, Slots high, Scratch&) const;
  const double* store(const double* first, const double* last);

  Slots slots_for(Bytes need) const;
  const Row& row(std::size_t i, std::size_t l) const { return rows_[l * (l + 1) / 2 + i]; }
  const Row& early_row(std::size_t i, std::size_t l) const {
    return early_rows_[i * model_.stages() - i * (i + 1) / 2 + l];
  }
  Row& early_row(std::size_t i, std::size_t l) { return early_rows_[i * model_.stages() - i * (i + 1) / 2 + l]; }
  double time(std::size_t i, std::size_t l, Slots m) const;
  void append(ChainSequence&, std::size_t i, std::size_t l, Slots m) const;
  std::size_t split(std::size_t i, std::size_t l, Slots m) const;

  ChainModel model_;
  RotorConditions conditions_;
  SlotRounding rounding_;
  Bytes store_all_peak_, base_;  // base: what sub-problem (0, n - 1) does not count
  std::int64_t unit_ = 1;
  bool exact_ = false;
  Slots capacity_ = 0;                             // the largest m
  std::vector<Slots> x_, kept_;                    // in slots
  std::vector<double> nograd_;                     // seconds
  std::vector<Row> rows_;                          // (i, l) by l, then i
  std::vector<Row> early_rows_;                    // the same by i, then l
  std::vector<std::unique_ptr<double[]>> blocks_;  // what rows point into
  std::size_t block_left_ = 0;
};

}  // namespace plimsoll
