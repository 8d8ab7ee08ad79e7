#include "experiments/measure/measured_errors.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/core/expects.h"
#include "strategies/compose/plan.h"
#include "strategies/list.h"
#include "validate/cpu/kernels/codec_kernels.h"
#include "validate/cpu/stored_outputs.h"
#include "validate/networks/initial_values.h"
#include "validate/replay.h"

namespace plimsoll {
namespace {

/// A problem without limits, and plain training in it.
struct Plain {
  Problem problem;
  Schedule schedule;
};

Plain plain_training(const Problem& problem) {
  Plain plain{problem, {}};
  for (Memory& memory : plain.problem.platform.memories) memory.capacity.reset();
  const Pass store_all = pass_of(store_all_strategy);
  PlanOutcome outcome = plan(plain.problem, std::span(&store_all, 1), std::nullopt);
  EXPECTS(std::holds_alternative<Plan>(outcome));
  plain.schedule = std::move(std::get<Plan>(outcome).schedule);
  return plain;
}

bool draws(const Schedule& schedule, Rounding rounding) {
  return std::ranges::any_of(schedule.buffers, [&](const Buffer& buffer) {
    return buffer.is_packed() && is_drawn(schedule.codecs[buffer.codec.index], rounding);
  });
}

/// `4.2 x`, as often as the one is in the other.
std::string share(double of, double in) {
  return in > 0 ? fmt::format("{:.3g}", of / in) : std::string("-");
}

std::string error_line(std::string_view name, const MeasuredError& error) {
  return fmt::format("    {:<32}{:>10.4g}{:>10.2g}{:>11.6f}{:>10.2g}{:>11.4g}{:>11.4f}{:>9}\n", name,
                     error.mean.relative, error.deviation, error.mean.cosine, error.bias, error.noise.relative,
                     error.noise.cosine, share(error.mean.relative, error.noise.relative));
}

Json error_json(const MeasuredError& error) {
  return {{"relative", error.mean.relative},
          {"relative_deviation", error.deviation},
          {"cosine", error.mean.cosine},
          {"bias", error.bias},
          {"noise", {{"relative", error.noise.relative}, {"cosine", error.noise.cosine}}}};
}

}  // namespace

std::variant<std::optional<MeasuredErrors>, ReplayFailure> measure_errors(const Problem& problem,
                                                                          const Schedule& schedule,
                                                                          RunnableNetwork& network,
                                                                          const ErrorQuestion& question) {
  if (schedule.approximate.empty()) return std::nullopt;
  const Plain plain = plain_training(problem);
  const Network& first = first_of(network.network());
  const auto batch_of_number = [&](std::uint32_t number) {
    return question.batch ? question.batch(number) : Batch{input_values(first, schedule.micro_batches, number), {}};
  };
  const Batch own = batch_of_number(0);
  ReplayOptions options{
      .pace = Pace::memcpy, .keeps_values = true, .keeps_gradients = true, .batch = &own, .start = question.start};
  const auto plainly = [&] { return replay(plain.problem, plain.schedule, network, options); };
  std::variant<Replayed, ReplayFailure> exact = plainly();
  if (const auto* failure = std::get_if<ReplayFailure>(&exact)) {
    return ReplayFailure{"plain training, which gradients are compared with: " + failure->what};
  }
  ErrorMeter meter(problem.graph, std::get<Replayed>(exact));
  for (std::uint32_t b = 1; b <= question.batches; ++b) {
    const Batch other = batch_of_number(b);
    options.batch = &other;
    std::variant<Replayed, ReplayFailure> run = plainly();
    if (const auto* failure = std::get_if<ReplayFailure>(&run)) return *failure;
    meter.add_batch(std::get<Replayed>(run));
  }
  options.batch = &own;
  const std::uint32_t runs = draws(schedule, question.rounding) ? question.seeds : 1;
  for (std::uint32_t seed = 0; seed < runs; ++seed) {
    options.chance = {question.rounding, seed};
    std::variant<Replayed, ReplayFailure> run = replay(problem, schedule, network, options);
    if (const auto* failure = std::get_if<ReplayFailure>(&run)) return *failure;
    meter.add_run(std::get<Replayed>(run));
  }
  return meter.errors();
}

Json errors_json(const Problem& problem, const Schedule& schedule, const MeasuredErrors& errors, Rounding rounding) {
  Json object{{"rounding", written(rounding)},
              {"seeds", errors.runs},
              {"other_batches", errors.batches},
              {"whole", error_json(errors.whole)},
              {"approximate", Json::object()}};
  for (const TensorId t : schedule.approximate) {
    const std::string& name = problem.graph[t].name;
    object["approximate"][name] = error_json(errors.of.at(name));
  }
  return object;
}

std::string errors_text(const Problem& problem, const Schedule& schedule, const MeasuredErrors& errors,
                        Rounding rounding) {
  std::string text = fmt::format(
      "  gradients  relative error {:.4g}, cosine {:.6f} of all, against plain training; {} x the distance to another "
      "batch's\n"
      "             means over {} run{} ({} rounding), distances over {} other batch{}; approximate are {}:\n"
      "    {:<32}{:>10}{:>10}{:>11}{:>10}{:>11}{:>11}{:>9}\n",
      errors.whole.mean.relative, errors.whole.mean.cosine,
      share(errors.whole.mean.relative, errors.whole.noise.relative), errors.runs, errors.runs == 1 ? "" : "s",
      written(rounding), errors.batches, errors.batches == 1 ? "" : "es", schedule.approximate.size(), "", "error",
      "deviation", "cosine", "bias", "distance", "its cosine", "ratio");
  text += error_line("all as one vector", errors.whole);
  for (const TensorId t : schedule.approximate) {
    const std::string& name = problem.graph[t].name;
    text += error_line(name, errors.of.at(name));
  }
  return text;
}

}  // namespace plimsoll
