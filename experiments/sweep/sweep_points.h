#pragma once
// The points of an experiment, numbered, and how one of them is answered. A case is a trace on a platform with a number
// of micro-batches and an optimizer; a group is a case and a strategy; a point is a group and a budget.

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "experiments/study/run.h"
#include "experiments/sweep/experiment_file.h"
#include "experiments/sweep/sweep_inputs.h"
#include "sim/io/json/json.h"

namespace plimsoll {

/// `k` of `n` machines that share an experiment; groups are dealt out in turn.
struct Shard {
  std::uint32_t k = 1, n = 1;
};

/// With those that are left out.
std::size_t cases(const Experiment&);

/// Those that are asked.
std::size_t points(const Experiment&);

/// Whether a strategy (its place in the list) is asked for a case.
bool asks(const Experiment&, std::size_t case_index, std::size_t strategy);

/// The groups of a shard that are asked, ascending. Numbers count all groups, so that of those that are left out has
/// gaps.
std::vector<std::size_t> groups_of(const Experiment&, Shard);

/// The question of a group.
Question question_of(const Experiment&, std::size_t group);

/// What a case is, whatever the strategy: names, bounds, the load line, and the budgets that a range comes to.
struct CaseFacts {
  std::string trace, platform, model, machine;  ///< references as in the experiment, then the names in the files
  std::uint32_t micro_batches = 1;
  std::string optimizer;
  bool times_rescaled = false;
  std::optional<Bytes> capacity;   ///< of the first device
  std::optional<Bytes> store_all;  ///< the peak of store_all
  std::optional<Bytes> smallest;   ///< the least feasible budget of the strategies, if a range begins there
  Bytes lower_bound_bytes;
  Seconds lower_bound;
  std::vector<std::optional<Bytes>> budgets;  ///< empty: not known yet
  std::optional<Json> bound_curves;           ///< bound_curves_of; unset: not known
  std::string impossible;                     ///< why there are no answers; then all the rest is unknown
};

/// Whether budgets begin at the least one of some strategy.
bool begins_at_smallest(const Experiment&);

/// All but `smallest`, `budgets` and `bound_curves`, which come of other plans.
CaseFacts facts_of(const Experiment&, const SweepInputs&, std::size_t case_index);

/// The least budget of a strategy (its place in the list) for a case that is possible; nothing where it cannot tell.
std::optional<Bytes> smallest_of(const Experiment&, const SweepInputs&, std::size_t case_index, std::size_t strategy);

/// The bound on time against memory, from the bound on memory to the peak of store_all (bound_curve.h).
Json bound_curves_of(const Experiment&, const SweepInputs&, std::size_t case_index, const CaseFacts&);

/// The budgets of a case by all else that is known of it. Throws InputError where a range ends before it begins.
std::vector<std::optional<Bytes>> budgets_of(const Experiment&, const CaseFacts&);

/// What is known of a case that has no problem, or whose facts are not to be had within the experiment's limits.
CaseFacts impossible_case(const Experiment&, std::size_t case_index, const std::string& reason);

/// Whether this is why the limits of an experiment ended what was to be known or answered.
bool is_of_limits(const std::string& reason);

/// Bytes, or null.
Json or_null(const std::optional<Bytes>&);
std::optional<Bytes> maybe_bytes(const Json&);

Json to_json(const CaseFacts&);
CaseFacts case_facts(const Json&);

/// The problem of a group, which is made once for neighbouring groups of a case whose strategies do not change it.
class CaseProblem {
 public:
  /// As long as no other is asked for. There is one: else the case is impossible, and nobody asks.
  const Problem& of(const Experiment&, const SweepInputs&, std::size_t group);
  /// How long that has taken.
  double made_in_s() const { return made_in_s_; }

 private:
  bool is_for(std::size_t case_index, std::span<const Pass>) const;

  std::optional<Problem> problem_;
  std::size_t case_ = 0;
  Backward backward_ = Backward::whole;
  Inner inner_ = Inner::together;
  double made_in_s_ = 0;
};

/// Answers the points of a group for these budgets (indices into the case's) and hands over each as one record, with
/// its key (PointKeys) where there are keys.
void answer_points(const Experiment&, const SweepInputs&, CaseProblem&, std::size_t group,
                   std::span<const std::optional<Bytes>> budgets, std::span<const std::size_t> wanted,
                   const std::function<void(const Json&)>& record, std::span<const std::string> keys = {});

/// The record of a point that has no answer, and why: refused, or stopped.
Json unanswered_point(const Experiment&, std::size_t group, std::size_t place, std::optional<Bytes> budget,
                      const std::string& reason, const std::string& key);

/// `count` whole numbers of bytes from `from` to `to`, ends included.
std::vector<Bytes> evenly(Bytes from, Bytes to, std::uint32_t count);

/// The same at equal ratios, but for rounding; `from` is at least a byte.
std::vector<Bytes> by_ratio(Bytes from, Bytes to, std::uint32_t count);

}  // namespace plimsoll
