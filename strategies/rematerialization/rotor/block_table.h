#pragma once
// rotor's recursion over blocks that can be run in several ways, in slots of memory. A block is a run of stages; an
// option of it is a forward phase that keeps some bytes, and a backward phase that needs nothing else but the block's
// input and output gradient. With x_i there and m bytes for everything else, the least extra time of blocks i..l is
//   O(i, l, m) = min( min_k extra_i,k + O(i+1, l, m - kept_i,k)           if m >= held_l + forward_i,k and backward_i,k
//                     min_j nograd_i..j-1 + O(j, l, m - x_j) + O(i, j-1, m)      if m >= held_l + the need of i..j-1 )
// where of x_j only counts what is not part of x_i.
// Source: the outer level of Zhao, Le Hellard, Eyraud-Dubois, Gusak, Beaumont, "Rockmate: an efficient, fast, automatic
// and generic tool for re-materialization in PyTorch", ICML 2023; with one option a block rotor, and where only the
// last block has options the heterogeneous variant of Revolve.

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/core/units.h"

namespace plimsoll {

struct BlockOption {
  Bytes kept;      ///< between forward and backward phase, the block's output included
  Bytes forward;   ///< the most that the forward phase needs beside the input and what the blocks behind hold
  Bytes backward;  ///< the most that the backward phase needs beside the input
  Seconds extra;   ///< recomputation
};

struct Block {
  Bytes x;     ///< the input
  Bytes held;  ///< when its backward begins: the gradient of its output and the parameter gradients of later blocks
  Bytes first_forward;   ///< of its first stage, nothing kept: output and workspace
  Bytes later_forwards;  ///< the most of its other stages, nothing kept: input, output and workspace
  Seconds nograd;        ///< of all its stages, nothing kept
  bool recomputable;
  std::vector<BlockOption> options;
  std::vector<Bytes> shared = {};  ///< of the input, what is part of the inputs of blocks 0, 1, .. too; none if empty
};

/// Where options may be used: everywhere, or only for the last block of a sub-chain.
enum class OptionUse : std::uint8_t { anywhere, last_block };

struct BlockStep {
  enum class Kind : std::uint8_t { forward_nothing, forward_option, backward_option };
  Kind kind;
  std::size_t block, option;
};

class BlockTable {
 public:
  /// Sizes are rounded up to 1 / slots of `most`, the memory from which on nothing is gained; fewer slots for long
  /// chains, so that the table has at most 2^25 entries.
  BlockTable(std::vector<Block>, OptionUse, Bytes most, std::int64_t slots);

  /// For each of the whole chain's times the steps that reach it with the least memory, by ascending memory; first the
  /// steps that need the least memory without any rounding.
  std::size_t plans() const { return changes_.size() + 1; }
  std::vector<BlockStep> plan(std::size_t k) const;

  /// Least extra time with `memory` for everything but the first input and what is resident.
  std::optional<Seconds> extra(Bytes memory) const;

 private:
  using Slots = std::int64_t;
  struct Choice {
    bool splits;
    std::size_t at;  // the option, or the block after the split
  };
  struct Least {
    Bytes need;
    Choice choice;
  };

  void fill(std::size_t i, std::size_t l);
  void fill_least(std::size_t i, std::size_t l);
  Choice choice(std::size_t i, std::size_t l, Slots m) const;
  void append(std::vector<BlockStep>&, std::size_t i, std::size_t l, std::optional<Slots> m) const;

  bool uses_options(std::size_t i, std::size_t l) const { return use_ == OptionUse::anywhere || i == l; }
  Bytes need(const BlockOption& option, std::size_t l) const;
  Bytes x_beside(std::size_t i, std::size_t j) const;
  Bytes step_need(std::size_t i, std::size_t k) const;
  Slots slots_for(Bytes) const;
  static std::size_t at(std::size_t i, std::size_t l) { return l * (l + 1) / 2 + i; }
  const double* row(std::size_t i, std::size_t l) const { return times_.data() + at(i, l) * width_; }
  double time(std::size_t i, std::size_t l, Slots m) const;

  std::vector<Block> blocks_;
  OptionUse use_;
  std::int64_t unit_ = 1;
  Slots capacity_ = 0;
  std::size_t width_ = 0;      // capacity and 0
  std::vector<double> times_;  // (i, l) by l, then i, then m
  std::vector<Least> least_;   // (i, l) by l, then i
  std::vector<Slots> changes_;
};

}  // namespace plimsoll
