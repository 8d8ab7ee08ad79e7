#pragma once
// rotor's recursion without slots: for every sub-chain the front of (bytes, least recompute time), exact to the byte.
// The recursion and its source: rotor_conditions.h.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "strategies/models/chain_sequence.h"
#include "strategies/rematerialization/rotor/rotor_conditions.h"
#include "strategies/rematerialization/rotor/rotor_grid.h"

namespace plimsoll {

// Which sub-chains, in how much memory, can be a part of a sequence no slower than one that is known: of all others no
// solver has to know anything. Found on a grid (rotor_grid.h) that bounds times from below, from the whole chain to its
// parts: what the rest of a sequence takes at least when a sub-chain is given so much memory. What is left of the known
// time may be the sub-chain's.

class RotorRegion {
 public:
  /// Feasible budgets from `low` to `high`, for all of which a sequence is known.
  struct Known {
    Bytes low, high;
    Seconds recompute;
  };
  /// What a sub-chain is given in such sequences.
  struct Part {
    std::int64_t low = 0, high = -1;  ///< bytes; more than it can use counts as what it can
    double longest = 0;               ///< seconds that it may recompute

    bool is_used() const { return low <= high; }
  };

  /// By a grid that is rounded down and has all of its parts.
  RotorRegion(const RotorGrid&, std::span<const Known>);

  const Part& part(std::size_t i, std::size_t l, Entry entry) const { return parts_[at(i, l, entry)]; }

 private:
  class Search;

  static std::size_t at(std::size_t i, std::size_t l, Entry entry) {
    return l * (l + 1) + 2 * i + (entry == Entry::checkpoint ? 1 : 0);
  }

  std::vector<Part> parts_;  // (i, l) by l, then i, then entry
};

/// What becomes of the points of a front that has too many.
enum class FrontRounding : std::uint8_t {
  up,    ///< the slower ones stay: every time is reached by a sequence
  down,  ///< the faster times stay, at the smaller memory: no sequence is faster
};

/// What is asked of fronts: the less, the sooner they are there. Nothing in the window depends on it.
struct FrontWindow {
  Bytes most{std::numeric_limits<std::int64_t>::max()};  ///< no larger budget below store_all's peak
  std::optional<RotorRegion> region = std::nullopt;      ///< what fast sequences use; unset: everything
};

/// Fronts of all sub-chains up to store_all's memory. Nothing is rounded while no front has more
/// than `most_points`.
class RotorFronts {
 public:
  RotorFronts(ChainModel, FrontRounding, std::size_t most_points, FrontWindow = {});

  /// Least recompute time within `budget`; nothing where no sequence fits.
  std::optional<Seconds> recompute(Bytes budget) const;

  /// The sequence that recompute() promises, where fronts are rounded up; store_all from its peak on.
  std::optional<ChainSequence> solve(Bytes budget) const;

  /// The least budget in which a sequence within the window runs; rounding does not move it.
  Bytes smallest_feasible() const;

  /// The budgets at which the time falls, ascending, below store_all's peak.
  std::vector<Bytes> steps() const;

  /// Whether nothing was rounded.
  bool exact() const { return exact_; }

  std::size_t points() const { return points_; }

 private:
  struct Point {
    std::int64_t bytes;
    double seconds;
  };
  // `edges[c]` is the time at the lower edge of cell c of memory, infinite below the first point.
  struct Front {
    std::span<const Point> points;
    const double* edges;
  };
  // One way to solve a sub-chain: `time` = nograd + late(m - shift) + early(m), from `low` bytes on.
  struct Choice {
    std::size_t j;  // split before j; i stands for saving at i
    std::int64_t shift, low;
    double nograd;
    const Front *late, *early;
  };
  struct Scratch;

  void build();
  void find_choices(std::size_t i, std::size_t l, Entry, std::vector<Choice>&) const;
  Front combine(Scratch&);
  RotorRegion::Part used(std::size_t i, std::size_t l, Entry) const;
  Front front_of(std::size_t i, std::size_t l, Entry, Scratch&);
  void bound(Scratch&) const;
  void gather(Scratch&) const;
  void gather(const Choice&, std::int64_t first, std::int64_t end, Scratch&) const;
  void sort(Scratch&) const;
  void keep_front(std::vector<Point>&);
  void round(std::vector<Point>&) const;
  Front store(std::span<const Point>);

  static std::size_t at(std::size_t i, std::size_t l, Entry entry) {
    return l * (l + 1) + 2 * i + (entry == Entry::checkpoint ? 1 : 0);
  }
  const Front& front(std::size_t i, std::size_t l, Entry entry) const { return fronts_[at(i, l, entry)]; }
  const Front& whole() const { return front(0, model_.stages() - 1, Entry::saved); }
  static const Point* point_at(std::span<const Point>, std::int64_t bytes);
  static double time(const Front&, std::int64_t bytes);
  static double time(const Choice&, std::int64_t bytes);
  void append(ChainSequence&, std::size_t i, std::size_t l, Entry, std::int64_t bytes) const;

  ChainModel model_;
  RotorConditions conditions_;
  FrontRounding rounding_;
  std::size_t most_points_;
  bool exact_ = true;
  std::int64_t cells_ = 0;
  // Bytes: not counted by sub-problem (0, n - 1); what it needs to repeat nothing; the most that is asked for; of a
  // cell.
  std::int64_t base_, enough_, range_, cell_;
  std::optional<RotorRegion> region_;
  std::vector<Front> fronts_;  // (i, l) by l, then i, then entry
  Front nothing_, unused_;     // 0 s from 0 bytes on; of sub-chains that are not asked for
  std::vector<std::unique_ptr<Point[]>> point_blocks_;
  std::vector<std::unique_ptr<double[]>> edge_blocks_;
  Point* next_point_ = nullptr;
  std::size_t points_left_ = 0, points_ = 0;
};

}  // namespace plimsoll
