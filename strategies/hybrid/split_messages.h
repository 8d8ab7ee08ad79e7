#pragma once
// A lower bound on what the choices of a table cost, and good choices, by messages between neighbours: what each choice
// of one costs at best beside those before it, as far as the edges share out the node's own costs among them
// (sequential tree-reweighted message passing). The limit of memory counts by prices of bytes, raised where too many
// are held and lowered where there is room (Lagrangian relaxation).
// Source: Kolmogorov, "Convergent Tree-Reweighted Message Passing for Energy Minimization", IEEE TPAMI 2006; Held and
// Karp's subgradients for the prices.

#include <cstdint>
#include <optional>
#include <vector>

#include "strategies/api/deadline.h"
#include "strategies/hybrid/split_table.h"

namespace plimsoll {

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

}  // namespace plimsoll
