#pragma once
// The memory conditions of rotor's recursion over sub-chains, in exact bytes. Shared by its table and exact solvers.
//
// Sub-problem (i, l, m): run the forwards and backwards of stages i..l once x_i and the gradient of x_{l+1} are there,
// with m bytes for everything but x_i and what is resident. Least recompute time:
//   O(i, i, m) = 0                                                             if m >= all(i, i)
//   save:     O(i+1, l, m - kept_i)                                            if m >= all(i, l)
//   split j:  nograd_i + .. + nograd_{j-1} + O(j, l, m - x_j) + O(i, j-1, m)   if m >= null(i, j, l), i < j <= l
// Optimal among sequences in which what a sub-problem's forward sweep stores stays until its backward.
// Source: Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova, "Optimal checkpointing for heterogeneous chains", 2019,
// with these differences: the forward of `save` counts the gradient of x_{l+1} (not of x_{i+1}); gradients have their
// own sizes; a forward that keeps nothing has its own time and workspace; parameter gradients are counted from the
// backward that makes them on; null() holds for the forwards that the split runs, not for all of i..l; boundary tensors
// that no backward reads are gone once the forward behind them has saved (kept_i = saved_i - x_i, but never less than
// 0), and x_{i+1} is gone at B(i) where only B(i+1) reads it. Whether B(i-1) reads this x_i depends on how it came to
// be there, so that where it matters sub-problems are solved for either Entry.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "strategies/models/chain_model.h"
#include "strategies/models/chain_sequence.h"

namespace plimsoll {

/// How x_i came to a sub-problem that begins at i.
enum class Entry : std::uint8_t {
  saved,       ///< as a part of what stage i - 1 saved, for its backward too; x_0 is always there
  checkpoint,  ///< kept by itself: when B(i - 1) runs, x_i has been made again
};

class RotorConditions {
 public:
  explicit RotorConditions(const ChainModel&);

  std::size_t stages() const { return held_.size(); }

  /// Needed to save at i within (i, l); for i = l the need of the whole sub-problem.
  Bytes all(std::size_t i, std::size_t l, Entry entry = Entry::saved) const {
    return std::max(held_[l] + forward_[i], backward(i, entry));
  }

  /// Of null(i, j, l), which is held(l) and the largest of these for k = i .. j - 1: forward k of a run from i that
  /// keeps nothing but x_i and its result.
  Bytes null_step(std::size_t i, std::size_t k) const { return (k > i ? x_[k] : Bytes{0}) + nograd_[k]; }

  /// Needed beside x_i by the forward that saves, without what (., l) holds, and by the backward.
  Bytes forward(std::size_t i) const { return forward_[i]; }
  Bytes backward(std::size_t i, Entry entry = Entry::saved) const { return backward_[i] - dead_input(i, entry); }

  /// x_i where it is gone once forward i has saved, else nothing; backward(i) has it subtracted.
  Bytes dead_input(std::size_t i, Entry entry = Entry::saved) const {
    return input_dies_[i] || (entry == Entry::checkpoint && checkpoint_dies_[i]) ? x_[i] : Bytes{0};
  }

  /// What saving at i leaves less for the stages behind it.
  Bytes kept(std::size_t i, Entry entry = Entry::saved) const {
    return std::max(Bytes{0}, saved_[i] - dead_input(i, entry));
  }

  /// Whether it matters how x_i came to a sub-problem.
  bool entries_differ(std::size_t i) const { return checkpoint_dies_[i] && !input_dies_[i] && x_[i] > Bytes{0}; }

  /// Gradient of x_{l+1} and the parameter gradients of stages > l.
  Bytes held(std::size_t l) const { return held_[l]; }

  bool recomputable(std::size_t i) const { return recomputable_[i]; }

 private:
  std::vector<Bytes> held_, saved_;
  std::vector<Bytes> forward_, nograd_;  // result and workspace of a forward
  std::vector<Bytes> backward_;          // everything live in B(i) but x_i, which is there
  std::vector<Bytes> x_;
  std::vector<bool> recomputable_;
  std::vector<bool> input_dies_, checkpoint_dies_;  // x_i once forward i has saved, however it came and as checkpoint
};

// The least memory in which rotor's recursion (rotor_conditions.h) can run a chain, to the byte:
//   need(i, i) = all(i, i)
//   need(i, l) = min( max(all(i, l), kept_i + need(i+1, l)),
//                     min_j max(null(i, j, l), x_j + need(j, l), need(i, j-1)) )

struct LeastMemory {
  Bytes budget;            ///< everything counted
  ChainSequence sequence;  ///< one that keeps it; not the fastest
};

LeastMemory rotor_least_memory(const ChainModel&);

}  // namespace plimsoll
