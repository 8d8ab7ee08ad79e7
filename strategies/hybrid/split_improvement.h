#pragma once
// A table of splits with fewer nodes and choices, of which the cheapest are the cheapest of the whole: without choices
// that no choice of a neighbour can be beside or that cannot fit, and with nodes whose choice follows from a
// neighbour's joined to that neighbour.

#include <cstdint>
#include <optional>
#include <vector>

#include "strategies/api/deadline.h"
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

// A lower bound on what the choices of a table cost, and good choices, by messages between neighbours: what each choice
// of one costs at best beside those before it, as far as the edges share out the node's own costs among them
// (sequential tree-reweighted message passing). The limit of memory counts by prices of bytes, raised where too many
// are held and lowered where there is room (Lagrangian relaxation).
// Source: Kolmogorov, "Convergent Tree-Reweighted Message Passing for Energy Minimization", IEEE TPAMI 2006; Held and
// Karp's subgradients for the prices.

struct MessagedSplit {
  std::optional<SplitChoices> choices;  ///< the cheapest met that can be together and keep the limit
  double cost = 0;                      ///< of these
  double bound = 0;                     ///< nothing that keeps the limit costs less; costs are not negative
  std::vector<double> prices;           ///< by moment: of a byte that is held, where the bound is this
};

/// So many rounds there and back through all nodes, until the deadline, or until the choices are proven. What costs
/// more than `known` is of no interest: the cost of choices that are known, or else more than all together. Sums of
/// gradients count as `seconds` does. A round is linear in the size of the table.
MessagedSplit pass_messages(const SplitTable&, double known, std::uint64_t rounds, const Deadline* = nullptr);

// Choices that cost less, by messages and a search around them: one node at a time takes another
// choice, as cheap as can be beside it for the nodes around (elimination.h), and what comes of it is kept if it is
// cheaper, or not much dearer.

struct SplitEffort {
  std::uint64_t rounds = 3000;
  std::uint64_t seed = 1;
  const Deadline* deadline = nullptr;  ///< of the rounds; null: none
};

struct ImprovedSplit {
  SplitChoices choices;
  double cost = 0;       ///< of all together, in seconds; means nothing unless `fits`
  bool fits = true;      ///< choices that can be together keep the limit of memory
  bool is_none = false;  ///< proven: there are no such choices
  double bound = 0;      ///< no choices that keep the limit cost less
};

/// From choices to begin with, which need not fit: then those of least memory are looked for first. Never dearer than a
/// beginning that fits. The same seed gives the same choices.
ImprovedSplit improved(const SplitTable&, const SplitChoices& start, const SplitEffort&, double weight = 1);

/// Choices that can be together and keep little, from the beginning that is given: those that keep the limit, if there
/// is one and some are found, else those found that keep least over all moments.
SplitChoices least_kept(const SplitTable&, const SplitChoices& start, std::uint64_t seed = 1,
                        const Deadline* deadline = nullptr);

}  // namespace plimsoll
