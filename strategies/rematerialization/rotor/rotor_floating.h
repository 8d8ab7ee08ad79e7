#pragma once
// rotor's recursion with weak persistence: a checkpoint may move forward once what is before it is not needed any more.
//
// Sub-problem (s, t, l, m), s <= t <= l: with x_s there, run the backwards of stages l..t, with m bytes for everything
// but x_s. Where s < t, x_s belongs to the sub-problem. Least recompute time:
//   save, s = t:   O(s+1, s+1, l, m - kept_s)
//   move, s < t:   nograd_s + O(s+1, t, l, m + x_s - x_{s+1})
//   split j, u:    nograd_s + .. + nograd_{j-1} + O(j, u, l, m - x_j) + O(s, t, u-1, m)   s < j <= u, t < u <= l
// With j = u and no moves this is rotor's recursion (rotor_conditions.h).
// Source: Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova, "Optimal re-materialization strategies for heterogeneous
// chains: how to train deep neural networks with limited memory", ACM TOMS 50(2), 2024, weakly persistent schedules;
// their choice of a new checkpoint r is here r - s moves.

#include <cstdint>
#include <optional>
#include <vector>

#include "strategies/models/chain_sequence.h"
#include "strategies/rematerialization/rotor/rotor_conditions.h"

namespace plimsoll {

/// O(L^3 slots) times; O(L^5 slots) steps.
inline constexpr std::size_t longest_floating_chain = 40;

class FloatingTable {
 public:
  /// Sizes are rounded up to 1 / slots of store_all's peak, not where their common divisor is that large.
  FloatingTable(const ChainModel&, std::int64_t slots);

  /// Least recompute time within `budget`; nothing where no sequence fits.
  std::optional<Seconds> recompute(Bytes budget) const;

  /// One sequence for each time of the whole chain, by ascending memory.
  std::size_t plans() const { return changes_.size(); }
  ChainSequence plan(std::size_t k) const;

 private:
  using Slots = std::int64_t;

  void fill(std::size_t s, std::size_t t, std::size_t l);
  void fill_splits(std::size_t s, std::size_t t, std::size_t l, double* best) const;
  void append(ChainSequence&, std::size_t s, std::size_t t, std::size_t l, Slots m) const;
  bool append_split(ChainSequence&, std::size_t s, std::size_t t, std::size_t l, Slots m) const;

  Slots slots_for(Bytes) const;
  Slots moved(std::size_t s, Slots m) const;
  double time(std::size_t s, std::size_t t, std::size_t l, Slots m) const;
  const double* row(std::size_t s, std::size_t t, std::size_t l) const;

  ChainModel model_;
  RotorConditions conditions_;
  Bytes base_;
  std::int64_t unit_ = 1;
  Slots capacity_ = 0;
  std::vector<Slots> x_, kept_;
  std::vector<double> times_;  // by l, then t, then s, then m
  std::vector<Slots> changes_;
};

}  // namespace plimsoll
