#pragma once
// Choices that cost less, by messages (split_messages.h) and a search around them: one node at a time takes another
// choice, as cheap as can be beside it for the nodes around (elimination.h), and what comes of it is kept if it is
// cheaper, or not much dearer.

#include <cstdint>

#include "strategies/api/deadline.h"
#include "strategies/hybrid/split_table.h"

namespace plimsoll {

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
