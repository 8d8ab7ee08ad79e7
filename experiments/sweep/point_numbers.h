#pragma once
// Which points of an experiment a record answers, by what the record itself says: its number changes where the
// experiment grows.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "experiments/sweep/selection.h"
#include "experiments/sweep/sweep_points.h"
#include "sim/io/json/json.h"

namespace plimsoll {

class PointNumbers {
 public:
  /// The experiment as to_json writes it. Cases without budgets have no points yet.
  PointNumbers(const Json& experiment, const std::map<std::size_t, CaseFacts>& cases);

  /// Ascending. Several where budgets come to the same bytes, none where it is no point of the experiment.
  std::vector<std::size_t> of(const Json& record) const;

  /// The record with the number of that point.
  std::string numbered(Json record, std::size_t point) const;

  /// The same of a record whose text is known, which is that where it has the number already.
  std::string as(std::size_t point, const Json& record, const std::string& text) const;

 private:
  struct Case {
    std::size_t index = 0, budgets = 0;
    std::map<std::optional<Bytes>, std::vector<std::size_t>> places;
  };
  std::map<std::string, Case> cases_;  // by what tells cases apart
  std::map<std::string, std::size_t> strategies_;
  PointSelection selection_;
  CombinedValues values_;
  std::size_t per_case_ = 1;  ///< points
};

/// Whether the record's case and strategy are of the experiment, whatever its budget.
bool has_group_of(const Json& experiment, const Json& record);

}  // namespace plimsoll
