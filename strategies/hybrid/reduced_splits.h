#pragma once
// A table of splits with fewer nodes and choices, of which the cheapest are the cheapest of the whole: without choices
// that no choice of a neighbour can be beside or that cannot fit, and with nodes whose choice follows from a
// neighbour's joined to that neighbour.

#include <cstdint>
#include <optional>
#include <vector>

#include "strategies/hybrid/split_table.h"

namespace plimsoll {

class ReducedSplits {
 public:
  /// Sums of gradients by their weight become part of `seconds`. Nothing where no choices can be together, or none can
  /// keep the limit: a proof.
  static std::optional<ReducedSplits> of(const SplitTable&, double weight);

  const SplitTable& table() const { return table_; }
  SplitChoices whole(const SplitChoices& of_reduced) const;
  /// Nothing where the choices cannot be together, or do not keep the limit.
  std::optional<SplitChoices> reduced(const SplitChoices& of_whole) const;

 private:
  class Reduction;
  /// Where a node of the whole table has gone, and its choice by that node's.
  struct Gone {
    std::uint32_t node = 0;
    std::vector<std::uint32_t> choices;
  };

  SplitTable table_;
  std::vector<Gone> gone_;
};

}  // namespace plimsoll
