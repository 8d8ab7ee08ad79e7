#pragma once
// What must be known of an experiment's cases before their points can be answered, as far as it is known: planned once,
// by workers, and kept in the manifest.

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "experiments/sweep/experiment_file.h"
#include "experiments/sweep/sweep_inputs.h"
#include "experiments/sweep/sweep_points.h"
#include "sim/io/input_error.h"
#include "sim/io/json/json.h"

namespace plimsoll {

class SweepFacts {
 public:
  /// Of the cases of these groups.
  SweepFacts(const Experiment&, const std::vector<std::size_t>& groups);

  /// Takes over what a manifest says of the same cases; of those that limits stopped only with the same limits.
  void reuse(const Json& manifest);

  /// What is to be planned: first cases, then for those that are possible the least budgets of strategies.
  std::vector<Json> missing_cases() const;
  std::vector<Json> missing_smallest() const;

  /// What a worker does.
  static Json plan(const Experiment&, const SweepInputs&, const Json& task);

  void take(const Json& task, const Json& fact);
  void take_beyond_limits(const Json& task, const std::string& reason);

  /// What the task was about, for messages.
  std::string name_of(const Json& task) const;

  /// Makes the budgets of all cases of which everything is known. Calls `wrong` where that cannot be.
  template <class Wrong>
  void make_budgets(Wrong wrong) {
    for (auto& [index, facts] : cases_) {
      try {
        complete(index, facts);
      } catch (const InputError& error) {
        wrong(index, error);
      }
    }
  }

  const std::map<std::size_t, CaseFacts>& cases() const { return cases_; }

  /// As the manifest has them.
  Json cases_json() const;
  Json smallest_json() const;

 private:
  using Place = std::pair<std::size_t, std::string>;  // a case and a strategy
  struct Smallest {
    std::optional<Bytes> bytes;  ///< unset: the strategy cannot tell
    bool stopped = false;        ///< by the experiment's limits
  };

  void complete(std::size_t index, CaseFacts&) const;

  const Experiment& experiment_;
  std::set<std::size_t> wanted_;
  std::map<std::size_t, CaseFacts> cases_;
  std::map<Place, Smallest> smallest_;
};

}  // namespace plimsoll
