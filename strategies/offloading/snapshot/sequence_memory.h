#pragma once
// The memory of a plan of ops at each of its runs, recounted where the plan changes only: a change costs the logarithm
// of its length. Repeated runs are left out where memory allows, and put in
// where it does not; others change their places.

#include <boost/container/small_vector.hpp>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/bound/range_maximum.h"
#include "strategies/models/op_model.h"
#include "strategies/models/op_sequence.h"

namespace plimsoll {

class SequenceMemory {
 public:
  SequenceMemory(const OpModel&, const OpSequence&);

  Bytes peak() const;
  Seconds seconds() const;  ///< that all runs take

  /// Leaves out runs that repeat others, longest first, as long as all stays within the budget.
  void leave_out(Bytes budget);

  /// The fullest run of the first ones in a row that are above the budget.
  std::optional<std::size_t> fullest_above(Bytes budget) const;

  /// What is idle while that run is on is gone there, or what else the cheapest of all ways takes to have no more than
  /// the budget then; it is made again right before its next readers. Where more than twice the budget is there, only
  /// that share of the room is used: runs after it have needs of their own. Nothing where there is no such way.
  std::optional<OpSequence> cut_at(std::size_t run, Bytes budget, double share = 1) const;

  /// Its runs in an order in which less is above the budget, as far as that was found.
  OpSequence rearranged(Bytes budget) const;
  /// Bytes above the budget, summed over all runs.
  double above(Bytes budget) const;

  OpSequence sequence() const;

 private:
  /// Most have few, and plans are built thousands of times.
  using Few = boost::container::small_vector<std::uint32_t, 4>;
  /// Of a storage, from the run that fills it anew to the last that uses it.
  struct Life {
    std::uint32_t storage = 0;
    std::uint32_t begin = 0;
    Few uses;  ///< runs after `begin`, ascending
    bool gone = false;

    std::uint32_t end() const { return uses.empty() ? begin : uses.back(); }
  };
  struct Run {
    std::uint32_t op = 0;
    std::uint32_t way = 0;
    std::uint32_t implementation = 0;
    Bytes gradients;  ///< that exist by then
    Few lives;        ///< that it begins or uses
    bool left_out = false;
  };
  struct Trial;
  class Cut;
  class Moved;

  bool is_simple(std::uint32_t op) const;
  bool makes_version(std::uint32_t run, std::uint32_t storage) const;
  bool is_whole(std::uint32_t life) const;
  std::vector<std::uint32_t> makers_of(std::uint32_t run) const;
  bool writes(std::uint32_t run, std::uint32_t life) const {
    return lives_[life].begin == run || makes_version(run, lives_[life].storage);
  }
  std::vector<std::uint32_t> followers(std::uint32_t first, std::uint32_t last) const;
  std::vector<std::uint32_t> leaders(std::uint32_t first, std::span<const std::uint32_t> runs) const;
  std::uint32_t room_before(const Life&, std::uint32_t run, Bytes budget) const;
  std::optional<OpSequence> moved_at(std::uint32_t full, Bytes budget) const;
  double seconds_of(const Run&) const;
  void count(const Life&, std::int64_t sign);
  template <class How>
  void change(Trial&, std::uint32_t life, const How&);
  void live_on(Trial&, std::uint32_t life, std::uint32_t earlier);
  bool leave_out(std::uint32_t run, Bytes budget);
  void settle(const Trial&, std::size_t lives_before);
  void take_back(const Trial&, std::size_t lives_before);

  const OpModel& model_;
  std::vector<Run> runs_;
  std::vector<Life> lives_;
  std::vector<Few> of_storage_;         // lives, in order
  std::vector<Few> of_op_;              // runs, in order
  std::vector<bool> versions_;          // by storage: one value, or each overwrites the one before
  std::vector<std::int64_t> at_first_;  // memory by run, before any is left out
  std::optional<RangeMaximum> memory_;  // the same now; unset: none was left out
};

}  // namespace plimsoll
