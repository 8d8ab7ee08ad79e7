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
#include "sim/io/reference_options.h"
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

/// Vocabularies are padded to 128 t for t tensor ranks. All paddings of one for ranks that divide 16 are equal once
/// they are padded for 16, too.
constexpr std::int64_t vocabulary_multiple = std::int64_t{128} * 16;

std::int64_t samples_in(std::span<const ReferenceNumber> numbers) {
  const ReferenceNumber* batch = number_named(numbers, "batch");
  return batch != nullptr ? batch->value : 1;
}

/// The same text for all references of a model: each number is written, in one order.
std::string model_of(std::string reference, std::span<const ReferenceNumber> numbers) {
  for (const ReferenceNumber& number : numbers) {
    std::int64_t value = number.value;
    if (number.name == "batch") value = 1;
    if (number.name == "vocabulary")
      value = (value + vocabulary_multiple - 1) / vocabulary_multiple * vocabulary_multiple;
    reference = with_number(reference, number, value);
  }
  const std::size_t colon = reference.find(':');
  if (numbers.empty() || colon == std::string::npos) return reference;
  std::vector<std::string> options;
  for (std::size_t from = colon + 1; from <= reference.size();) {
    const std::size_t to = std::min(reference.find(',', from), reference.size());
    options.push_back(reference.substr(from, to - from));
    from = to + 1;
  }
  std::ranges::sort(options);
  return fmt::format("{}:{}", reference.substr(0, colon), fmt::join(options, ","));
}

/// What all names begin with, up to a comma or a blank.
std::string common_name(std::span<const TruthRow* const> rows) {
  std::string common = rows.front()->run->name;
  for (const TruthRow* row : rows) {
    const std::string& name = row->run->name;
    if (name == common) continue;
    const auto differ = std::ranges::mismatch(common, name);
    const char next = differ.in1 == common.end() ? *differ.in2 : differ.in2 == name.end() ? *differ.in1 : 'x';
    const bool ends_there = next == ',' || next == ' ';
    common.erase(differ.in1, common.end());
    if (ends_there) continue;
    const std::size_t comma = common.find_last_of(',');
    common.erase(comma != std::string::npos ? comma : common.find_last_of(' ') + 1);
  }
  while (common.ends_with(' ') || common.ends_with(',')) common.pop_back();
  return common.empty() ? rows.front()->run->name : common;
}

double measured(const TruthRow* row) {
  return row->run->measured->value;
}
double predicted(const TruthRow* row) {
  return row->whole().value;
}

/// Agreeing pairs less contradicting ones, over the mean of the pairs that differ in each of both.
std::optional<double> kendall_tau_b(std::span<const TruthRow* const> rows) {
  double agreeing = 0, differ_in_predicted = 0, differ_in_measured = 0;
  for (std::size_t a = 0; a < rows.size(); ++a) {
    for (std::size_t b = a + 1; b < rows.size(); ++b) {
      const auto by_prediction = predicted(rows[a]) <=> predicted(rows[b]);
      const auto by_measurement = measured(rows[a]) <=> measured(rows[b]);
      differ_in_predicted += by_prediction != 0 ? 1 : 0;
      differ_in_measured += by_measurement != 0 ? 1 : 0;
      if (by_prediction != 0 && by_measurement != 0) agreeing += by_prediction == by_measurement ? 1 : -1;
    }
  }
  if (differ_in_predicted == 0 || differ_in_measured == 0) return std::nullopt;
  return agreeing / std::sqrt(differ_in_predicted * differ_in_measured);
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

SharedWork shared_work(const TruthRow& row) {
  const Question& question = row.run->question;
  const std::vector<ReferenceNumber> numbers = model_numbers(question.trace);
  return {.model = model_of(question.trace, numbers),
          .platform = question.platform,
          .efficiency = row.group->efficiency,
          .samples = static_cast<std::uint32_t>(samples_in(numbers)) * question.micro_batches,
          .optimizer = question.optimizer,
          .states = question.states,
          .update_kernels = question.update_kernels,
          .gradients = question.gradients};
}

PlanOrder plan_order(std::vector<const TruthRow*> rows) {
  EXPECTS(rows.size() > 1);
  PlanOrder order;
  const SharedWork work = shared_work(*rows.front());
  order.name = fmt::format("{}, {} {} on {}", common_name(rows), work.samples, work.samples == 1 ? "sample" : "samples",
                           work.platform);
  order.tau = kendall_tau_b(rows);
  order.taken = *std::ranges::min_element(rows, [](const TruthRow* a, const TruthRow* b) {
    return std::pair(predicted(a), -measured(a)) < std::pair(predicted(b), -measured(b));
  });
  order.fastest = *std::ranges::min_element(rows, {}, measured);
  order.regret = measured(order.taken) / measured(order.fastest) - 1;
  order.rows = std::move(rows);
  return order;
}

std::vector<PlanOrder> plan_orders(std::span<const TruthRow> rows) {
  std::vector<std::pair<SharedWork, std::vector<const TruthRow*>>> works;
  for (const TruthRow& row : rows) {
    if (!row.reason.empty()) continue;
    const SharedWork work = shared_work(row);
    auto found = std::ranges::find(works, work, &std::pair<SharedWork, std::vector<const TruthRow*>>::first);
    if (found == works.end()) found = works.insert(works.end(), {work, {}});
    found->second.push_back(&row);
  }
  std::vector<PlanOrder> orders;
  for (auto& [work, of] : works) {
    if (of.size() > 1) orders.push_back(plan_order(std::move(of)));
  }
  return orders;
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
