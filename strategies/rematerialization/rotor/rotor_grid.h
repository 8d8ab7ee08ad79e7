#pragma once
// rotor's recursion (rotor_conditions.h) on grids of memory that fit each sub-chain, for chains too long to be solved
// exactly. One build serves every budget: as a bound, or as estimates that a plan follows.
//
// A table of slots adds up a rounding error for every stage. Here there are two things against that. The points of
// sub-chains that begin at i lie at -(kept_0 + .. + kept_{i-1}) modulo their distance, so that saving, which takes
// kept_i of the memory, leads from point to point and rounds nothing; only checkpoints do. And the distance, a power of
// two, is that of the sub-chain's own range between what it needs and what it can use: the parts of a sub-chain are on
// grids as fine or finer. Sub-chains that end the chain are in use at all times and so few that they have many more
// points.

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "strategies/models/chain_sequence.h"
#include "strategies/rematerialization/rotor/rotor_conditions.h"

namespace plimsoll {

/// What a time at memory between two points of a grid is taken to be.
enum class GridRounding : std::uint8_t {
  down,     ///< that of the point above: no sequence is faster
  nearest,  ///< that of the nearer point: an estimate
};

/// The most points of a sub-chain's grid.
struct GridPoints {
  std::int64_t inner;  ///< of those that end before the chain does
  std::int64_t last;   ///< of those that end it

  /// So many that a grid of the chain takes 300 MB at most.
  static GridPoints affordable(std::size_t stages);
};

class RotorGrid {
 public:
  /// Sub-chains that no sequence uses which repeats forwards for `longest_recompute` or less may be left out: the less
  /// of that, the fewer are left.
  RotorGrid(ChainModel, GridRounding, GridPoints,
            Seconds longest_recompute = {std::numeric_limits<double>::infinity()});

  /// Least recompute time within `budget` by this grid, nothing below the least budget. Rounded down it is a bound.
  std::optional<Seconds> recompute(Bytes budget) const;

  /// The sequence that at every choice does what the grid takes for the fastest. It keeps the budget, which must be
  /// feasible, to the byte, whatever the grid's rounding.
  ChainSequence follow(Bytes budget) const;

  /// To the byte, of the sequences that are not left out.
  Bytes smallest_feasible() const { return base_ + Bytes{whole_.need}; }

  /// Frees what only follow() uses.
  void drop_parts();

  /// Least recompute time of a sub-chain: infinite below `need`, 0 from `enough` on, between them values[k] at `first`
  /// + k << shift. Before the first and behind the last value there is one more, the same and 0.
  struct Row {
    const float* values = nullptr;
    std::int64_t need = 0, enough = 0, first = 0;  ///< bytes
    std::int32_t count = 0, shift = 0;

    std::int64_t point(std::int64_t k) const { return first + (k << shift); }
    std::int64_t at_or_above(std::int64_t bytes) const { return -((first - bytes) >> shift); }  ///< the point's number
  };
  const Row& row(std::size_t i, std::size_t l, Entry entry) const { return rows_[at(entry)].late[late_at(i, l)]; }
  /// The same, laid out by i, then l.
  const Row& early(std::size_t i, std::size_t l, Entry entry) const { return rows_[at(entry)].early[early_at(i, l)]; }
  float time(const Row&, std::int64_t bytes) const;

  /// What a budget leaves for the whole chain as a sub-chain.
  Bytes memory(Bytes budget) const { return budget - base_; }
  /// No less than the time, nor than what times of the grid that should add up to it do.
  float rounded_up(Seconds) const;

  const ChainModel& model() const { return model_; }
  const RotorConditions& conditions() const { return conditions_; }

 private:
  struct Rows {
    std::vector<Row> late, early;  // (i, l) by l, then i; by i, then l
  };
  // The choice to split before j.
  struct Split {
    const Row *late, *early;
    std::int64_t x;
    float nograd;
  };
  struct Scratch {
    std::vector<float> best;        // by point
    std::vector<std::int64_t> low;  // by j: the least memory of split j
  };

  void build(Seconds longest_recompute);
  Row best_row(std::size_t i, std::size_t l, Entry, Scratch&);
  std::size_t find_needs(std::size_t i, std::size_t l, Entry, Row&, Scratch&) const;
  void place(std::size_t i, std::size_t l, Entry, Row&) const;
  void relax_saving(std::size_t i, std::size_t l, Entry, const Row&, float* best) const;
  void relax(const Row&, const Split&, std::int64_t low, std::int64_t high, float* best) const;
  void relax_coarser(const Row&, const Split&, std::int64_t low, std::int64_t high, float* best) const;
  std::int64_t rounded(const Row&, std::int64_t bytes) const;
  void store(Row&, const float* best);

  static std::size_t at(Entry entry) { return entry == Entry::saved ? 0 : 1; }
  std::size_t late_at(std::size_t i, std::size_t l) const { return l * (l + 1) / 2 + i; }
  std::size_t early_at(std::size_t i, std::size_t l) const { return i * model_.stages() - i * (i + 1) / 2 + l; }
  double rounding_error() const;  // of a time, as a part of it
  std::optional<Seconds> seconds(float time) const;
  std::size_t choice(std::size_t i, std::size_t l, Entry, std::int64_t bytes) const;
  void append(ChainSequence&, std::size_t i, std::size_t l, Entry, std::int64_t bytes) const;

  ChainModel model_;
  RotorConditions conditions_;
  GridRounding rounding_;
  GridPoints points_;
  Bytes base_;                           // what sub-problem (0, n - 1) does not count
  std::int64_t range_;                   // the most it can use
  std::vector<std::int64_t> phases_[2];  // by entry: where the grids of sub-chains from i on lie
  Rows rows_[2];                         // by entry
  Row whole_;                            // (0, n - 1)
  std::vector<std::unique_ptr<float[]>> blocks_;
  float* next_ = nullptr;
  std::size_t left_ = 0;
};

}  // namespace plimsoll
