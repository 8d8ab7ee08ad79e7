#include "experiments/truth/truth.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "experiments/study/allocator_spec.h"
#include "experiments/study/model.h"
#include "experiments/study/progress.h"
#include "experiments/sweep/worker_pool.h"
#include "platforms/efficiency_file.h"
#include "platforms/nearest_efficiency.h"
#include "platforms/platform_file.h"
#include "sim/core/expects.h"
#include "sim/ops/efficiency.h"

namespace plimsoll {
namespace {

/// The parts of measured efficiencies up to a factor.
Efficiency up_to(TruthFactor factor, const Efficiency& whole) {
  Efficiency part;
  part.name = whole.name;
  part.model = whole.model;
  part.kernel_floor = whole.kernel_floor;
  if (factor >= TruthFactor::products) {
    part.product = whole.product;
    part.batched_product = whole.batched_product;
    part.batched_product_by_size = whole.batched_product_by_size;
    part.product_without_table = whole.product_without_table;
    part.unaligned_product = whole.unaligned_product;
  }
  if (factor >= TruthFactor::kernels) {
    part = whole;
    part.collectives.clear();
    part.network_share = 1;
  }
  if (factor >= TruthFactor::collectives) part.collectives = whole.collectives;
  if (factor >= TruthFactor::network) part.network_share = whole.network_share;
  return part;
}

Json predict(const MeasuredRun& run, const std::string& efficiency, TruthFactor factor) {
  Question question = run.question;
  if (factor == TruthFactor::free_sends) {
    question.strategy = with_free_sends(question.strategy);
  }
  if (run.reserved) question.allocator = parse_allocator("cuda", "allocator");
  Platform platform = load_platform(question.platform);
  if (factor > TruthFactor::rooflines) {
    const auto shared = std::make_shared<const Efficiency>(up_to(factor, load_efficiency(efficiency)));
    for (Device& device : platform.devices) device.efficiency = lent_to(device, shared);
  }
  const BudgetedProblem of = budgeted_problem_of(question, load_model(question.trace), std::move(platform));
  const Answer made = std::move(answer(question, of.problem, std::span(&of.budget, 1)).front());
  if (!made.feasible()) return {{"reason", made.reason}};
  Json found{{"makespan_s", made.metrics->makespan.value}, {"peak_bytes", made.metrics->peak.count}};
  if (run.reserved)
    found["reserved_bytes"] = std::ranges::max(made.reserved, {}, &ReservedPeak::reserved).reserved.count;
  if (made.interval) {
    found["low_s"] = made.interval->low.value;
    found["high_s"] = made.interval->high.value;
  }
  return found;
}

struct Prediction {
  std::size_t row = 0;
  TruthFactor factor{};
};

double sign_of(double value) {
  return value > 0 ? 1 : value < 0 ? -1 : 0;
}

}  // namespace

RelativeErrors relative_errors(std::span<const double> errors) {
  RelativeErrors summary{.runs = errors.size()};
  if (errors.empty()) return summary;
  std::vector<double> sizes;
  for (const double error : errors) sizes.push_back(std::abs(error));
  std::ranges::sort(sizes);
  const auto count = static_cast<double>(errors.size());
  summary.mean = std::accumulate(sizes.begin(), sizes.end(), 0.0) / count;
  summary.with_signs = std::accumulate(errors.begin(), errors.end(), 0.0) / count;
  summary.median = (sizes[(sizes.size() - 1) / 2] + sizes[sizes.size() / 2]) / 2;
  summary.worst = sizes.back();
  return summary;
}

ChosenRun chosen_run(std::string choice, std::span<const TruthRow* const> rows) {
  EXPECTS(rows.size() > 1);
  const auto measured = [](const TruthRow* row) { return row->run->measured->value; };
  const auto predicted = [](const TruthRow* row) { return row->whole().value; };
  double agreeing = 0, pairs = 0;
  for (std::size_t a = 0; a < rows.size(); ++a) {
    for (std::size_t b = a + 1; b < rows.size(); ++b, ++pairs) {
      agreeing += sign_of(predicted(rows[a]) - predicted(rows[b])) * sign_of(measured(rows[a]) - measured(rows[b]));
    }
  }
  const TruthRow* chosen = *std::ranges::min_element(rows, {}, predicted);
  const TruthRow* fastest = *std::ranges::min_element(rows, {}, measured);
  return {std::move(choice), rows.size(), agreeing / pairs, measured(chosen) / measured(fastest) - 1};
}

std::vector<ChosenRun> chosen_runs(std::span<const TruthRow> rows) {
  std::vector<std::pair<std::string, std::vector<const TruthRow*>>> choices;
  for (const TruthRow& row : rows) {
    if (row.run->choice.empty() || !row.reason.empty()) continue;
    const auto same = [&](const auto& choice) { return choice.first == row.run->choice; };
    auto found = std::ranges::find_if(choices, same);
    if (found == choices.end()) found = choices.emplace(choices.end(), row.run->choice, std::vector<const TruthRow*>());
    found->second.push_back(&row);
  }
  std::vector<ChosenRun> chosen;
  for (const auto& [choice, of] : choices) {
    if (of.size() > 1) chosen.push_back(chosen_run(choice, of));
  }
  return chosen;
}

std::optional<std::vector<TruthRow>> truth_of(std::span<const MeasuredGroup> groups, bool every_factor,
                                              std::size_t jobs) {
  std::vector<TruthRow> rows;
  std::vector<Prediction> predictions;
  std::vector<Json> tasks;
  for (const MeasuredGroup& group : groups) {
    for (const MeasuredRun& run : group.runs) {
      rows.push_back({.group = &group,
                      .run = &run,
                      .predicted = {},
                      .peak = {},
                      .reserved = {},
                      .low = {},
                      .high = {},
                      .reason = run.why_not});
      if (!run.why_not.empty()) continue;
      for (std::size_t f = truth_factors; f-- > 0;) {
        const auto factor = static_cast<TruthFactor>(f);
        if (!every_factor && factor != TruthFactor::rooflines && factor != TruthFactor::network) continue;
        predictions.push_back({rows.size() - 1, factor});
        tasks.push_back({{"prediction", tasks.size()}});
      }
    }
  }
  const auto work = [&](const Json& task, const std::function<void(const Json&)>& reply) {
    const Prediction& asked = predictions[task.at("prediction").get<std::size_t>()];
    const TruthRow& row = rows[asked.row];
    try {
      reply(predict(*row.run, row.group->efficiency, asked.factor));
    } catch (const InputError& wrong) {
      reply({{"reason", wrong.what()}});
    }
  };
  const Interruption interruption;
  WorkerPool pool(std::max<std::size_t>(1, std::min(jobs, tasks.size())), interruption, work);
  Progress progress(tasks.size(), "predictions");
  std::string failed;
  const PoolEvents events{.record =
                              [&](std::size_t task, std::string_view record) {
                                const Json found = Json::parse(record);
                                TruthRow& row = rows[predictions[task].row];
                                const TruthFactor factor = predictions[task].factor;
                                if (found.contains("reason")) {
                                  row.reason = found.at("reason").get<std::string>();
                                } else {
                                  row.predicted[static_cast<std::size_t>(factor)] =
                                      Seconds{found.at("makespan_s").get<double>()};
                                  if (factor != TruthFactor::network) return progress.add();
                                  row.peak = Bytes{found.at("peak_bytes").get<std::int64_t>()};
                                  if (found.contains("reserved_bytes")) {
                                    row.reserved = Bytes{found.at("reserved_bytes").get<std::int64_t>()};
                                  }
                                  if (found.contains("low_s")) {
                                    row.low = Seconds{found.at("low_s").get<double>()};
                                    row.high = Seconds{found.at("high_s").get<double>()};
                                  }
                                }
                                progress.add();
                              },
                          .failed =
                              [&](std::size_t task, const TaskFailure& failure) {
                                progress.clear_line();
                                progress.add();
                                failed = fmt::format("{}: {}", rows[predictions[task].row].run->name, failure.message);
                              },
                          .tick = [&] { progress.show(); }};
  if (!pool.run(tasks, events)) return std::nullopt;
  if (!failed.empty()) throw std::runtime_error(failed);
  return rows;
}

}  // namespace plimsoll
