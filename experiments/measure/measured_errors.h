#pragma once
// What `replay` says of gradients that were made from approximations: how far they are from those of plain training,
// over seeds, beside how far the gradients of other batches are.

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "sim/core/names.h"
#include "sim/core/schedule.h"
#include "sim/io/json/json.h"
#include "sim/model/problem.h"
#include "validate/backend.h"
#include "validate/gradient_error.h"

namespace plimsoll {

template <>
struct Names<Rounding> {
  static constexpr std::array all{std::pair{Rounding::stochastic, "stochastic"},
                                  std::pair{Rounding::nearest, "nearest"}};
};

struct ErrorQuestion {
  std::uint32_t seeds = 8;    ///< runs, where numbers are drawn or rounded by chance; else one says all
  std::uint32_t batches = 4;  ///< others of the same size
  Rounding rounding = Rounding::stochastic;
  /// Parameters and statistics by name; null: initial_value() of each.
  const std::map<std::string, std::vector<std::byte>>* start = nullptr;
  /// The batch itself, number 0, and others; unset: the made-up ones of networks/initial_values.h.
  std::function<Batch(std::uint32_t number)> batch = {};
};

/// In as much memory as it takes. Nothing where the schedule calls no gradient approximate.
std::variant<std::optional<MeasuredErrors>, ReplayFailure> measure_errors(const Problem&, const Schedule&,
                                                                          RunnableNetwork&, const ErrorQuestion&);

/// Of all gradients as one vector, and of each that the schedule calls approximate.
Json errors_json(const Problem&, const Schedule&, const MeasuredErrors&, Rounding);
std::string errors_text(const Problem&, const Schedule&, const MeasuredErrors&, Rounding);

}  // namespace plimsoll
