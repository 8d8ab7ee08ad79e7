#pragma once
// Plans in which each saved value waits as it is, packed, or not at all, and is made again: what compress_plan tries.

#include <map>
#include <optional>
#include <vector>

#include "strategies/compression/compression_choice.h"
#include "strategies/models/recompute_order.h"
#include "strategies/offloading/activations/tape_pool.h"

namespace plimsoll {

/// Makes tapes, has the event engine run them, and keeps those whose predicted error is within a bound, which may rise.
class FormPlans {
 public:
  /// Values are those of the model's tape. `ops`: of plain training, if that is its tape and values may be made again;
  /// else null. No bound is above `largest_error`. Refers to all of them.
  FormPlans(const PartTask&, const OffloadModel&, std::span<const SavedTensor>, const KeptForms&, const OpModel* ops,
            double largest_error);

  /// From now on; 0 at first.
  void allow(double error);

  /// By saved value which of its forms. Does nothing if that has been tried.
  void add(const std::vector<std::uint32_t>& forms);

  /// On a tape of runs and drops that makes values anew.
  void add(const Tape&, const std::vector<std::uint32_t>& forms);

  /// Changes the form of one value of one of the plans that no other beats in both time and memory, and so on from
  /// there, as often as `trials`.
  void improve(std::size_t trials);

  const TapePool& pool() const& { return pool_; }  ///< within the bound
  TapePool pool() && { return std::move(pool_); }

 private:
  struct Measured {
    Bytes peak;
    Seconds makespan;
    double error = 0;
  };
  using Tried = std::map<std::vector<std::uint32_t>, std::optional<Measured>>;

  std::optional<Tape> tape_again(const std::vector<std::uint32_t>& forms) const;
  std::optional<Measured> measure(Tape);
  std::vector<std::vector<std::uint32_t>> front() const;

  const PartTask& task_;
  const OffloadModel& model_;
  std::span<const SavedTensor> saved_;
  const KeptForms& kept_forms_;
  const OpModel* ops_;
  double largest_error_, error_ = 0;                 // of any bound, and the bound
  std::map<std::uint32_t, std::uint32_t> value_in_;  // by storage of the graph: of values that may be made again
  Evicted dies_;                                     // by value: in the forward
  Tried tried_;                                      // by forms; unset: no plan, or too great an error for any bound
  TapePool pool_;
  std::vector<std::pair<double, PlannedTape>> later_;  // with errors that a later bound may allow
};

}  // namespace plimsoll
