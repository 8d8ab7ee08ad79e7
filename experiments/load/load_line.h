#pragma once
// How deep a machine may be loaded: for each strategy the largest batch, sequence, number of layers or width that fits
// the memory, in what time, and what has been tried.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "experiments/load/largest.h"
#include "experiments/study/run.h"
#include "sim/io/reference_options.h"

namespace plimsoll {

/// What is made larger.
enum class Varied : std::uint8_t { batch, sequence, layers, width };
template <>
struct Names<Varied> {
  static constexpr std::array all{std::pair{Varied::batch, "batch"}, std::pair{Varied::sequence, "sequence"},
                                  std::pair{Varied::layers, "layers"}, std::pair{Varied::width, "width"}};
};

struct LoadQuestion {
  Question base;  ///< the model's other numbers; its strategy is none of those asked
  std::vector<Pipeline> strategies;
  Varied varied = Varied::batch;
  ReferenceNumber number;  ///< of the model, which is varied
  LoadRange range;
  Bytes memory;                   ///< of each device
  std::optional<Seconds> within;  ///< of an iteration: then the largest within this is looked for, too
  std::uint32_t points = 0;       ///< values per strategy, evenly apart up to the largest, beside those of the search
  std::optional<std::int64_t> batch, sequence;  ///< of the model, where it has them

  std::string model_at(std::uint32_t value) const { return with_number(base.trace, number, value); }

  /// Of an iteration, all micro-batches together; unset: the model has no batch.
  std::optional<double> samples_at(std::uint32_t value) const;
  std::optional<double> tokens_at(std::uint32_t value) const;
};

/// What became of one value.
struct LoadPoint {
  std::uint32_t value = 0;
  Outcome outcome = Outcome::infeasible;  ///< refused: no such model, or the strategy cannot treat it
  std::string reason;                     ///< why it is not feasible
  std::string chosen;                     ///< what a strategy that chooses among others has chosen; else empty
  std::optional<Bytes> peak;              ///< of the fullest device
  std::optional<Seconds> makespan;
  std::optional<double> gap;       ///< proven, to the best of its class, relative
  std::optional<Bytes> smallest;   ///< the least budget of the strategy, where the point is infeasible
  bool smallest_is_proven = true;  ///< else it may need less
  std::optional<Bytes> bound;      ///< no schedule that keeps as much on the devices needs less
};

/// A strategy's values.
struct LoadLine {
  std::string strategy;
  std::vector<LoadPoint> points;  ///< all that were tried, ascending

  const LoadPoint* at(std::uint32_t value) const;
  const LoadPoint* largest() const;                ///< that fits; null: none does
  const LoadPoint* largest_within(Seconds) const;  ///< that fits and takes no longer
};

/// The least memory of any schedule on one device that keeps parameters, gradients and optimizer states there.
struct LoadBoundPoint {
  std::uint32_t value = 0;
  Bytes least;
  std::string by;  ///< the op whose working set it is
};

struct LoadAnswer {
  std::vector<LoadLine> lines;         ///< by strategy
  std::vector<LoadBoundPoint> bounds;  ///< ascending
  int exit_code = 0;                   ///< of a worker that broke or found no room; 0: none did
  std::string trouble;                 ///< what it said
  bool times_rescaled = false;         ///< of the model, to the platform
};

/// Strategies where the user names none: plain training, full recomputation, the best recomputation, offloading, both;
/// with several devices also those that use them all.
std::vector<std::string> default_load_strategies(const Trace&, const Platform&);

/// The problem of one value, which plain training on one device has. Throws InputError where there is none.
Problem plain_problem(const LoadQuestion&, const Platform&, std::uint32_t value);

/// One value by one strategy.
LoadPoint load_point(const LoadQuestion&, const Platform&, std::size_t strategy, std::uint32_t value);

/// All strategies, each a task of one of `jobs` worker processes; the same answer for any number of them. Nothing where
/// Ctrl-C came.
std::optional<LoadAnswer> load_lines(const LoadQuestion&, const Platform&, std::size_t jobs);

}  // namespace plimsoll
