#pragma once
// A network trained on rows of a file by a strategy's schedule and, on the same rows in the same order, by plain
// training.

#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "sim/core/schedule.h"
#include "sim/model/problem.h"
#include "validate/cpu/trainee.h"
#include "validate/gradient_error.h"
#include "validate/labelled_rows.h"

namespace plimsoll {

struct TrainingSettings {
  std::int64_t steps = 100, every = 10;  ///< `every` so many steps the loss is told
  std::uint32_t micro_batches = 1;
  float rate = 0.001F;
  std::uint64_t seed = 0;
  Rounding rounding = Rounding::stochastic;
};

/// Mean losses a row of the steps up to this one since the last that was told.
struct CoursePoint {
  std::int64_t step = 0;
  double loss = 0, plain_loss = 0;
};

struct Course {
  std::int64_t steps = 0;  ///< made
  double epochs = 0;
  std::vector<CoursePoint> points;
};

/// Told after every step: how many are made and, every so many steps, the point. False: it ends there.
using WatchCourse = std::function<bool(std::int64_t steps, const std::optional<CoursePoint>&)>;

std::variant<Course, ReplayFailure> train(Trainee& trained, Trainee& plain, const LabelledRows&,
                                          const TrainingSettings&, const WatchCourse&);

/// Rows of a step: the network's batch, as many times as there are micro-batches.
std::int64_t rows_of_step(const Network&, std::uint32_t micro_batches);

}  // namespace plimsoll
