#include "experiments/measure/training_course.h"

namespace plimsoll {
namespace {

double mean_loss(const Score& score) {
  return score.loss / static_cast<double>(score.rows);
}

/// Numbers of its own for every step.
Chance chance_at(const TrainingSettings& settings, std::int64_t step) {
  return {settings.rounding, (settings.seed << 32U) + static_cast<std::uint64_t>(step)};
}

}  // namespace

std::int64_t rows_of_step(const Network& network, std::uint32_t micro_batches) {
  return network.graph[network.boundaries[0]].shape[0] * micro_batches;
}

std::variant<Course, ReplayFailure> train(Trainee& trained, Trainee& plain, const LabelledRows& data,
                                          const TrainingSettings& settings, const WatchCourse& watch) {
  RowOrder order(data.count(), rows_of_step(plain.network(), settings.micro_batches), settings.seed);
  Course course;
  Score since, plain_since;
  while (course.steps < settings.steps) {
    const Batch batch = batch_of(data, order.rows_of(course.steps), settings.micro_batches);
    const UpdateStep update = update_step(settings.rate, course.steps + 1);
    const Chance chance = chance_at(settings, course.steps);
    const std::variant<Score, ReplayFailure> made = trained.step(batch, update, chance);
    if (const auto* failure = std::get_if<ReplayFailure>(&made)) return *failure;
    const std::variant<Score, ReplayFailure> plainly = plain.step(batch, update, chance);
    if (const auto* failure = std::get_if<ReplayFailure>(&plainly)) return *failure;
    since += std::get<Score>(made);
    plain_since += std::get<Score>(plainly);
    ++course.steps;
    std::optional<CoursePoint> point;
    if (course.steps % settings.every == 0 || course.steps == settings.steps) {
      point = {course.steps, mean_loss(since), mean_loss(plain_since)};
      course.points.push_back(*point);
      since = plain_since = {};
    }
    if (!watch(course.steps, point)) break;
  }
  if (since.rows > 0) course.points.push_back({course.steps, mean_loss(since), mean_loss(plain_since)});
  course.epochs = order.epochs_of(course.steps);
  return course;
}

}  // namespace plimsoll
