#include <algorithm>

#include "experiments/host_bounds.h"
#include "experiments/kept_whole.h"
#include "experiments/memory_by_kind.h"
#include "experiments/run.h"
#include "sim/core/codec.h"
#include "sim/core/memory_profile.h"
#include "sim/core/names.h"

namespace plimsoll {
namespace {

/// What fills the fullest device at its peak, by tensor kind.
Json peak_json(const Problem& problem, const Answer& answer) {
  const std::vector<DeviceMetrics>& devices = answer.metrics->devices;
  const auto fullest = std::ranges::max_element(devices, {}, &DeviceMetrics::peak_live) - devices.begin();
  const MemoryId memory = problem.platform.devices[static_cast<std::size_t>(fullest)].memory;
  const AtPeak peak = at_peak(*answer.schedule, *answer.timeline, problem.platform, memory);
  const MemoryPeak& moment = answer.timeline->peaks[memory.index];
  Json object{{"device", devices[static_cast<std::size_t>(fullest)].name}};
  if (!moment.at_start) {
    const Step& step = (*answer.schedule)[moment.step];
    object["step"] = moment.step.index;
    object["op"] = step.op == no_op ? std::string(written(step.kind)) : problem.graph[step.op].name;
  }
  BytesByKind by_kind{};
  for (const BufferId b : peak.buffers) {
    const Buffer& buffer = (*answer.schedule)[b];
    by_kind[memory_kind(problem.graph, buffer)] += buffer.bytes.count;
  }
  by_kind[workspace_kind] = peak.workspace.count;
  Json& kinds = object["bytes_by_kind"] = Json::object();
  for (std::size_t k = 0; k < memory_kinds; ++k) kinds[std::string(memory_kind_names[k])] = by_kind[k];
  Json& largest = object["largest_buffers"] = Json::array();
  for (std::size_t b = 0; b < std::min<std::size_t>(8, peak.buffers.size()); ++b) {
    const Buffer& buffer = (*answer.schedule)[peak.buffers[b]];
    const Tensor& tensor = problem.graph[buffer.tensor];
    largest.push_back({{"name", tensor.name}, {"kind", written(tensor.kind)}, {"bytes", buffer.bytes.count}});
    if (buffer.is_packed()) largest.back()["codec"] = text_of(answer.schedule->codecs[buffer.codec.index]);
  }
  return object;
}

Json candidate_json(const Candidate& candidate) {
  return {{"strategy", candidate.strategy},
          {"makespan_s", candidate.makespan ? Json(candidate.makespan->value) : Json(nullptr)},
          {"reason", candidate.reason.empty() ? Json(nullptr) : Json(candidate.reason)},
          {"taken", candidate.taken}};
}

Json out_of_memory_json(const OutOfMemory& failed) {
  return {{"reason", failed.is_fragmentation() ? "fragmented" : "too few bytes"},
          {"step", failed.step ? Json(failed.step->index) : Json(nullptr)},
          {"requested_bytes", failed.requested.count},
          {"limit_bytes", failed.limit.count},
          {"reserved_bytes", failed.reserved.count},
          {"active_bytes", failed.active.count},
          {"allocated_bytes", failed.allocated.count},
          {"largest_free_bytes", failed.largest_free.count}};
}

Json device_json(const Question& question, const Answer& answer, std::size_t d) {
  const DeviceMetrics& device = answer.metrics->devices[d];
  const ReservedPeak& peak = answer.reserved[d];
  Json object{{"name", device.name},
              {"peak_live_bytes", device.peak_live.count},
              {"peak_reserved_bytes", peak.reserved.count},
              {"busy_s", device.busy.value},
              {"micro_batches_in_flight", device.in_flight}};
  if (question.allocator.kind == AllocatorKind::exact) return object;
  object["peak_active_bytes"] = peak.active.count;
  object["peak_allocated_bytes"] = peak.allocated.count;
  object["peak_requested_bytes"] = peak.requested.count;
  object["fragmentation"] = peak.fragmentation();
  object["largest_free_bytes"] = peak.fullest.largest_free.count;
  object["inactive_split_bytes"] = peak.fullest.inactive_split.count;
  object["allocation_retries"] = peak.retries;
  object["out_of_memory"] = peak.out_of_memory ? out_of_memory_json(*peak.out_of_memory) : Json(nullptr);
  return object;
}

Json kept_whole_json(const Problem& problem, const Schedule& schedule) {
  Json list = Json::array();
  for (const KeptWhole& kept : kept_whole(problem.graph, schedule)) {
    Json holders = Json::array();
    for (const OpId op : kept.holders) holders.push_back(problem.graph[op].name);
    list.push_back({{"tensor", problem.graph[kept.tensor].name},
                    {"codec", text_of(schedule.codecs[kept.codec.index])},
                    {"bytes", kept.bytes.count},
                    {"holders", std::move(holders)}});
  }
  return list;
}

/// Of all gradients as one vector, and of each that is approximate; null where all are exact.
Json errors_json(const Problem& problem, const PredictedErrors& errors) {
  if (errors.of.empty()) return nullptr;
  Json object{{"whole", {{"relative", errors.whole}}}, {"approximate", Json::object()}};
  for (const auto& [gradient, relative] : errors.of) {
    object["approximate"][problem.graph[gradient].name] = {{"relative", relative}};
  }
  return object;
}

template <class Optional, class Value>
Json or_null(const Optional& optional, Value value) {
  return optional ? Json(value(*optional)) : Json(nullptr);
}

/// By axis of the mesh.
Json exchanges_json(const Metrics& metrics) {
  Json list = Json::array();
  for (const AxisMetrics& each : metrics.axes) {
    list.push_back(
        {{"axes", each.axis}, {"exchange_s", each.exchange.value}, {"exposed_exchange_s", each.exposed.value}});
  }
  return list;
}

/// Those that are no device's and hold something.
Json memories_json(const Metrics& metrics) {
  Json list = Json::array();
  for (const MemoryMetrics& memory : metrics.memories) {
    list.push_back({{"name", memory.name},
                    {"peak_live_bytes", memory.peak.count},
                    {"capacity_bytes", or_null(memory.capacity, [](Bytes bytes) { return bytes.count; })}});
  }
  return list;
}

/// What was asked.
Json question_json(const Question& question, bool times_rescaled, std::optional<Bytes> budget, Outcome outcome) {
  return {{"trace", question.trace},
          {"platform", question.platform},
          {"strategy", question.strategy.text},
          {"micro_batches", question.micro_batches},
          {"optimizer", written(question.optimizer)},
          {"gradients", written(question.gradients)},
          {"engine", written(question.engine)},
          {"transfers", written(question.transfers)},
          {"allocator", question.allocator.text},
          {"times_rescaled", times_rescaled},
          {"memory_budget_bytes", budget ? Json(budget->count) : Json(nullptr)},
          {"feasible", outcome == Outcome::feasible},
          {"outcome", written(outcome)}};
}

}  // namespace

Json to_json(const Question& question, const Problem& problem, const Answer& answer) {
  const auto count = [](Bytes bytes) { return bytes.count; };
  const auto of_metrics = [&](auto value) { return or_null(answer.metrics, value); };
  Json object = question_json(question, problem.times_rescaled, answer.budget, answer.outcome);
  object["states"] = or_null(problem.states, [](States s) { return written(s); });
  object["update_kernels"] = or_null(problem.states, [&](States) { return written(problem.update_kernels); });
  object["state_bytes"] = bytes_of_kind(problem.graph, TensorKind::optimizer_state).count;
  object["makespan_s"] = of_metrics([](const Metrics& m) { return m.makespan.value; });
  object["peak_bytes"] = of_metrics([](const Metrics& m) { return m.peak.count; });
  object["host_peak_bytes"] = of_metrics([](const Metrics& m) { return host_peak(m).count; });
  object["promised_makespan_s"] = or_null(answer.promised_makespan, [](Seconds s) { return s.value; });
  object["promised_peak_bytes"] = or_null(answer.promised_peak, count);
  object["gap"] = or_null(answer.gap, [](double gap) { return gap; });
  object["note"] = answer.note.empty() ? Json(nullptr) : Json(answer.note);
  if (!problem.notes.empty()) object["problem_notes"] = problem.notes;
  if (!answer.candidates.empty()) {
    object["candidates"] = Json::array();
    for (const Candidate& each : answer.candidates) object["candidates"].push_back(candidate_json(each));
  }
  object["lower_bound_s"] = or_null(answer.bounds, [](const LowerBounds& bounds) { return bounds.time().value; });
  object["lower_bound_bytes"] = or_null(answer.bounds, [](const LowerBounds& bounds) { return bounds.memory.count; });
  object["lower_bound_stays"] = or_null(answer.bounds, [&](const LowerBounds&) { return written(answer.stays); });
  object["recompute_s"] = of_metrics([](const Metrics& m) { return m.recompute.value; });
  object["bytes_moved"] = of_metrics([](const Metrics& m) { return m.moved.count; });
  object["exposed_transfer_s"] = of_metrics([](const Metrics& m) { return m.exposed_transfer.value; });
  object["cutting_s"] = or_null(answer.cutting, [](Seconds s) { return s.value; });
  object["exchange_s"] = of_metrics([](const Metrics& m) { return m.exchange.value; });
  object["exposed_exchange_s"] = of_metrics([](const Metrics& m) { return m.exposed_exchange.value; });
  object["exchanges"] = answer.metrics ? exchanges_json(*answer.metrics) : Json::array();
  object["contention_s"] = answer.metrics ? Json(answer.contention.value) : Json(nullptr);
  object["gradient_error"] = answer.metrics ? errors_json(problem, answer.errors) : Json(nullptr);
  if (answer.schedule && !answer.schedule->codecs.empty()) {
    object["kept_whole"] = kept_whole_json(problem, *answer.schedule);
  }
  object["upper_bounds_used"] = or_null(answer.schedule, [&](const Schedule& schedule) {
    Json used = Json::array();
    for (const HostBound& bound : host_bounds_used(schedule, problem.platform)) {
      used.push_back({{"memory", bound.memory}, {"rate", bound.rate}, {"bytes_per_s", bound.value.value}});
    }
    return used;
  });
  object["bubble_fraction"] = of_metrics([](const Metrics& m) { return m.bubble; });
  object["longest_stage_s"] = of_metrics([](const Metrics& m) { return m.longest_stage.value; });
  object["ideal_s"] = of_metrics([](const Metrics& m) { return m.ideal.value; });
  object["period_s"] =
      of_metrics([](const Metrics& m) { return or_null(m.period, [](Seconds s) { return s.value; }); });
  object["steps"] = or_null(answer.schedule, [](const Schedule& s) { return s.steps.size(); });
  object["devices"] = Json::array();
  if (answer.metrics) {
    for (std::size_t d = 0; d < answer.metrics->devices.size(); ++d)
      object["devices"].push_back(device_json(question, answer, d));
    object["memories"] = memories_json(*answer.metrics);
    object["peak"] = peak_json(problem, answer);
    if (!answer.feasible()) object["reason"] = answer.reason;
  } else {
    object["memories"] = Json::array();
    object["peak"] = nullptr;
    object["reason"] = answer.reason;
    object["smallest_feasible_bytes"] = or_null(answer.smallest_feasible, count);
    object["smallest_is_proven"] = answer.smallest_feasible ? Json(answer.smallest_is_proven) : Json(nullptr);
    if (!answer.smallest_by.empty()) object["smallest_feasible_op"] = answer.smallest_by;
  }
  object["solve_s"] = answer.metrics && !answer.promised_peak ? Json(nullptr) : Json(answer.solve_s);
  object["simulate_s"] = answer.simulate_s;
  return object;
}

Json unanswered_json(const Question& question, std::optional<Bytes> budget, Outcome outcome,
                     const std::string& reason) {
  Json object = question_json(question, false, budget, outcome);
  for (const char* key :
       {"makespan_s",   "peak_bytes",     "host_peak_bytes",    "promised_makespan_s", "promised_peak_bytes",
        "gap",          "lower_bound_s",  "lower_bound_bytes",  "lower_bound_stays",   "cutting_s",
        "recompute_s",  "bytes_moved",    "exposed_transfer_s", "exchange_s",          "exposed_exchange_s",
        "contention_s", "gradient_error", "bubble_fraction",    "longest_stage_s",     "ideal_s",
        "period_s",     "steps"}) {
    object[key] = nullptr;
  }
  object["devices"] = object["memories"] = object["exchanges"] = Json::array();
  object["peak"] = nullptr;
  object["reason"] = reason;
  object["smallest_feasible_bytes"] = nullptr;
  object["solve_s"] = object["simulate_s"] = nullptr;
  return object;
}

}  // namespace plimsoll
