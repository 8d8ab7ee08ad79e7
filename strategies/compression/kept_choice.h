#pragma once
// What an instant of the iteration keeps, how, and what runs again for that, changed bit by bit until it is the fastest
// within a budget and an error; from the cuts of a bound (sim/bound/packed_cuts.h).

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/bound/packed_cuts.h"

namespace plimsoll {

/// Ops run in the graph's order: those that come after the instant there have not run before.
class KeptChoice {
 public:
  /// Nothing runs again, and all values are kept in the ways that cost the least at these prices.
  KeptChoice(const PackedCuts&, double memory_price, double error_price);

  void set_again(std::uint32_t op, bool);
  void set_way(std::uint32_t value, std::uint32_t way);

  /// Whether it came before the instant and may run again.
  bool can_run_again(std::uint32_t op) const;
  bool again(std::uint32_t op) const { return again_[op]; }
  bool is_kept(std::uint32_t value) const;
  /// In which it is kept: as it is where a forward reads it that runs again.
  std::uint32_t way(std::uint32_t value) const { return forwards_[value] > 0 ? 0 : ways_[value]; }

  bool can_change_way(std::uint32_t value) const;

  double weight() const { return weight_; }    ///< as of PackedCut
  double square() const { return square_; }    ///< of errors
  double seconds() const { return seconds_; }  ///< of what runs again, packs and unpacks

 private:
  void count(std::uint32_t value, int sign);

  const PackedCuts* cuts_;
  const SnapshotModel* model_;
  std::vector<bool> again_, counts_;                      // by op; by value: it may be kept
  std::vector<std::uint32_t> ways_, readers_, forwards_;  // by value: those that run after the instant
  double weight_ = 0, square_ = 0, seconds_ = 0;
};

struct ChoiceLimits {
  double weight = 0, square = 0;
};

/// The fastest that is found within the limits, from the cuts that a bound mixes; nothing where none is.
std::optional<KeptChoice> best_choice(PackedCuts&, const PackedBound&, const ChoiceLimits&);

}  // namespace plimsoll
