#include "experiments/study/result_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "experiments/study/host_bounds.h"
#include "experiments/study/kept_whole.h"
#include "experiments/study/memory_by_kind.h"
#include "sim/core/codec.h"
#include "sim/core/expects.h"
#include "sim/core/names.h"
#include "sim/io/evaluation_words.h"
#include "sim/io/parameter_groups.h"
#include "sim/measure/memory_profile.h"

namespace plimsoll {
namespace {

// The lists and objects within a result.

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

Json guaranteed_json(const Answer& answer, std::size_t device) {
  return answer.guaranteed.empty() ? Json(nullptr) : Json(answer.guaranteed[device].count);
}

Json device_json(AllocatorKind allocator, const DeviceMetrics& device, const Json& guaranteed,
                 const ReservedPeak& peak) {
  Json object{{"name", device.name},
              {"peak_live_bytes", device.peak_live.count},
              {"guaranteed_peak_bytes", guaranteed},
              {"peak_reserved_bytes", peak.reserved.count},
              {"busy_s", device.busy.value},
              {"micro_batches_in_flight", device.in_flight}};
  if (allocator == AllocatorKind::exact) return object;
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

/// What fills the fullest device at its peak, by tensor kind; null where there is no schedule.
Json peak_json(const Result& of) {
  if (!of.metrics()) return nullptr;
  const Problem& problem = *of.problem;
  const Answer& answer = *of.answer;
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

/// Of a strategy that chooses among others: what each came to.
Json candidates_json(const Result& of) {
  Json list = Json::array();
  if (of.answer) {
    for (const Candidate& each : of.answer->candidates) list.push_back(candidate_json(each));
  }
  return list;
}

/// By device what it holds, and what the allocator takes.
Json devices_json(const Result& of) {
  Json list = Json::array();
  if (!of.metrics()) return list;
  for (std::size_t d = 0; d < of.metrics()->devices.size(); ++d) {
    list.push_back(device_json(of.question.allocator.kind, of.metrics()->devices[d], guaranteed_json(*of.answer, d),
                               of.answer->reserved[d]));
  }
  return list;
}

/// Values whose packed form saves nothing.
Json kept_whole_json(const Result& of) {
  Json list = Json::array();
  if (!of.schedule() || of.schedule()->codecs.empty()) return list;
  const Graph& graph = of.problem->graph;
  for (const KeptWhole& kept : kept_whole(graph, *of.schedule())) {
    Json holders = Json::array();
    for (const OpId op : kept.holders) holders.push_back(graph[op].name);
    list.push_back({{"tensor", graph[kept.tensor].name},
                    {"codec", text_of(of.schedule()->codecs[kept.codec.index])},
                    {"bytes", kept.bytes.count},
                    {"holders", std::move(holders)}});
  }
  return list;
}

/// Of all gradients as one vector, and of each that is approximate; null where all are exact.
Json errors_json(const Result& of) {
  if (!of.metrics() || of.answer->errors.of.empty()) return nullptr;
  const PredictedErrors& errors = of.answer->errors;
  Json object{{"whole", {{"relative", errors.whole}}}, {"approximate", Json::object()}};
  for (const auto& [gradient, relative] : errors.of) {
    object["approximate"][of.problem->graph[gradient].name] = {{"relative", relative}};
  }
  return object;
}

/// By axis of the mesh.
Json exchanges_json(const Result& of) {
  Json list = Json::array();
  if (!of.metrics()) return list;
  for (const AxisMetrics& each : of.metrics()->axes) {
    list.push_back(
        {{"axes", each.axis}, {"exchange_s", each.exchange.value}, {"exposed_exchange_s", each.exposed.value}});
  }
  return list;
}

/// Memories that are no device's and hold something.
Json memories_json(const Result& of) {
  Json list = Json::array();
  if (!of.metrics()) return list;
  for (const MemoryMetrics& memory : of.metrics()->memories) {
    list.push_back({{"name", memory.name},
                    {"peak_live_bytes", memory.peak.count},
                    {"capacity_bytes", memory.capacity ? Json(memory.capacity->count) : Json(nullptr)}});
  }
  return list;
}

/// Rates of hosts that are upper bounds only.
Json upper_bounds_json(const Result& of) {
  Json list = Json::array();
  if (!of.schedule()) return list;
  for (const HostBound& bound : host_bounds_used(*of.schedule(), of.problem->platform)) {
    list.push_back({{"memory", bound.memory}, {"rate", bound.rate}, {"bytes_per_s", bound.value.value}});
  }
  return list;
}

template <class Value>
Json metric(const Result& of, Value value) {
  return of.metrics() ? Json(value(*of.metrics())) : Json(nullptr);
}
template <class Value>
Json of_bounds(const Result& of, Value value) {
  return of.answer && of.answer->bounds ? Json(value(*of.answer->bounds)) : Json(nullptr);
}
Json bytes_field(const std::optional<Bytes>& bytes) {
  return bytes ? Json(bytes->count) : Json(nullptr);
}
Json text_field(std::string_view text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

/// Whether the least budget is a part of the answer.
bool asks_for_smallest(const Result& of) {
  return of.answer && !of.answer->metrics;
}

/// Of the device for which the allocator takes most; null where it takes what is live.
Json reserved_field(const Result& of) {
  if (!of.metrics() || of.question.allocator.kind == AllocatorKind::exact) return nullptr;
  return std::ranges::max(of.answer->reserved, {}, &ReservedPeak::reserved).reserved.count;
}

/// Of all gradients as one vector.
Json whole_error(const Json& errors) {
  return errors.is_object() ? errors.at("whole").at("relative") : Json(nullptr);
}

using enum FieldUnit;
using enum FieldIs;

constexpr std::string_view no_updates = "`--optimizer` makes no updates";
constexpr std::string_view no_promise = "no schedule, or one from a file";
constexpr std::string_view not_infeasible = "there is a schedule, or it is unknown";

const ResultField fields[] = {
    {"trace", text, stated, "", "", "the model, as asked", [](const Result& of) -> Json { return of.question.trace; }},
    {"platform", text, stated, "", "", "the machine, as asked",
     [](const Result& of) -> Json { return of.question.platform; }},
    {"strategy", text, stated, "", "", "as asked", [](const Result& of) -> Json { return of.question.strategy.text; }},
    {"micro_batches", count, stated, "", "", "of an iteration",
     [](const Result& of) -> Json { return of.question.micro_batches; }},
    {"optimizer", text, stated, "", "", "whose updates are a part of the iteration",
     [](const Result& of) -> Json { return written(of.question.optimizer); }},
    {"gradients", text, stated, "", "", "`new`, or added to `existing` ones",
     [](const Result& of) -> Json { return written(of.question.gradients); }},
    {"engine", text, stated, "", "", "which engine simulated it",
     [](const Result& of) -> Json { return written(of.question.engine); }},
    {"transfers", text, stated, "", "", "how copies were simulated (`--transfers`)",
     [](const Result& of) -> Json { return written(of.question.transfers); }},
    {"allocator", text, stated, "", "", "`--allocator`, as asked",
     [](const Result& of) -> Json { return of.question.allocator.text; }},
    {"within", text, stated, "", "", "which bytes are to fit the budget (`--within`)",
     [](const Result& of) -> Json { return written(of.question.within); }},
    {"times_rescaled", flag, stated, "", "",
     "whether durations are the roofline's on this platform instead of the trace's",
     [](const Result& of) -> Json { return of.problem != nullptr && of.problem->times_rescaled; }},
    {"memory_budget_bytes", bytes, sometimes, "unlimited", "budget", "of each device: `--memory`, else the capacity",
     [](const Result& of) -> Json { return bytes_field(of.budget); }},
    {"feasible", flag, stated, "", "",
     "whether there is a schedule within the budget that the allocator serves; where not, the exit code is 1",
     [](const Result& of) -> Json { return of.outcome == Outcome::feasible; }},
    {"outcome", text, stated, "", "outcome",
     "`feasible`; `infeasible`: no schedule within the budget; `out_of_memory`: its live bytes are within the budget, "
     "but the allocator reserves more for them than the device has; of sweeps also `refused` (nothing can be planned "
     "for it) and `stopped` (by the limits)",
     [](const Result& of) -> Json { return written(of.outcome); }},
    {"reason", text, sometimes, "feasible", "reason", "why it is not feasible",
     [](const Result& of) -> Json { return text_field(of.reason); }},
    {"smallest_feasible_bytes", bytes, sometimes, not_infeasible, "fits from", "the least budget of this strategy",
     [](const Result& of) -> Json {
       if (!asks_for_smallest(of)) return nullptr;
       return bytes_field(of.answer->smallest_feasible);
     }},
    {"smallest_is_proven", flag, sometimes, not_infeasible, "",
     "false: a limit ended the search for it, and it is at most that",
     [](const Result& of) -> Json {
       if (!asks_for_smallest(of) || !of.answer->smallest_feasible) return nullptr;
       return of.answer->smallest_is_proven;
     }},
    {"smallest_feasible_op", text, sometimes, "likewise, or the strategy packs nothing", "",
     "the op at which the plan with that budget needs it",
     [](const Result& of) -> Json { return of.answer ? text_field(of.answer->smallest_by) : Json(nullptr); }},
    {"states", text, sometimes, no_updates, "", "how large optimizer states were taken",
     [](const Result& of) -> Json {
       if (!of.problem || !of.problem->states) return nullptr;
       return written(*of.problem->states);
     }},
    {"update_kernels", text, sometimes, no_updates, "", "how devices launch updates: `fused`, `foreach`, `single` or `megatron`",
     [](const Result& of) -> Json {
       if (!of.problem || !of.problem->states) return nullptr;
       return written(of.problem->update_kernels);
     }},
    {"parameter_groups", text, sometimes, "one optimizer updates all", "", "as `--parameter-group`, joined by commas: which other optimizers update",
     [](const Result& of) -> Json {
       if (!of.problem || of.problem->parameter_groups.empty()) return nullptr;
       return written(of.problem->parameter_groups);
     }},
    {"ema", flag, sometimes, "no averages are kept", "", "true: optimizer states have averages of parameters",
     [](const Result& of) -> Json {
       if (!of.problem || !of.problem->keeps_averages) return nullptr;
       return true;
     }},
    {"clip_norm", flag, sometimes, "gradients are not clipped", "", "true: by the norm of all of them, which updates wait for",
     [](const Result& of) -> Json {
       if (!of.problem || !of.problem->clips_gradients) return nullptr;
       return true;
     }},
    {"evaluation", text, sometimes, "there is none", "", "between iterations, as `--evaluate` asks for it",
     [](const Result& of) -> Json {
       if (!of.problem || !of.problem->evaluation) return nullptr;
       return written(*of.problem->evaluation);
     }},
    {"state_bytes", bytes, sometimes, "refused or stopped", "", "all optimizer states",
     [](const Result& of) -> Json {
       if (!of.problem) return nullptr;
       return bytes_of_kind(of.problem->graph, TensorKind::optimizer_state).count;
     }},
    {"makespan_s", seconds, measured, "", "time", "the time of the iteration",
     [](const Result& of) -> Json { return metric(of, [](const Metrics& m) { return m.makespan.value; }); }},
    {"time_low_s", seconds, sometimes, "`no_interval` says why", "time at least",
     "low end of an interval from how far figures are off on kernels of the same sorts that they had not seen "
     "(platforms/README.md)",
     [](const Result& of) -> Json {
       if (!of.answer || !of.answer->interval) return nullptr;
       return of.answer->interval->low.value;
     }},
    {"time_high_s", seconds, sometimes, "likewise", "time at most", "its high end",
     [](const Result& of) -> Json {
       if (!of.answer || !of.answer->interval) return nullptr;
       return of.answer->interval->high.value;
     }},
    {"no_interval", text, sometimes, "there is an interval, or no schedule", "", "why there is none",
     [](const Result& of) -> Json { return of.answer ? text_field(of.answer->no_interval) : Json(nullptr); }},
    {"time_shares", list, stated, "", "",
     "the iteration by sorts of kernels whose error is common: `sort`, `time_s`, and `low` and `high`, measured over "
     "predicted",
     [](const Result& of) -> Json {
       Json shares = Json::array();
       if (!of.answer || !of.answer->interval) return shares;
       for (const TimeShare& share : of.answer->interval->shares) {
         shares.push_back(
             {{"sort", share.sort}, {"time_s", share.time.value}, {"low", share.low}, {"high", share.high}});
       }
       return shares;
     }},
    {"time_parts", list, stated, "", "",
     "why the iteration takes as long: parts whose times sum to `makespan_s` (docs/strategies/hybrid/cluster.md): "
     "`part`, `axis` of an exchange (else null), `time_s`",
     [](const Result& of) -> Json {
       Json parts = Json::array();
       if (!of.metrics()) return parts;
       for (const TimePart& part : of.answer->time_parts) {
         parts.push_back({{"part", written(part.kind)}, {"axis", text_field(part.axis)}, {"time_s", part.time.value}});
       }
       return parts;
     }},
    {"peak_bytes", bytes, measured, "", "peak", "live bytes of the fullest device at its peak",
     [](const Result& of) -> Json { return metric(of, [](const Metrics& m) { return m.peak.count; }); }},
    {"guaranteed_peak_bytes", bytes, sometimes,
     "no schedule, or steps times devices are more than 20,000, without `--within guaranteed`", "guaranteed",
     "the most live bytes of a device by any timing that the schedule's waits allow: steps start later and take longer "
     "or shorter (sim/bound/guaranteed_peak.h)",
     [](const Result& of) -> Json {
       if (!of.metrics() || of.answer->guaranteed.empty()) return nullptr;
       return std::ranges::max(of.answer->guaranteed).count;
     }},
    {"peak_reserved_bytes", bytes, sometimes, "no schedule, or the allocator is `exact`", "reserved",
     "bytes that the allocator reserves on the device on which it reserves most",
     [](const Result& of) -> Json { return reserved_field(of); }},
    {"host_peak_bytes", bytes, measured, "", "host",
     "live bytes of the fullest host at its peak. Behind hybrid strategies this and `memories` are the share of the "
     "ranks that a device stands for",
     [](const Result& of) -> Json { return metric(of, [](const Metrics& m) { return host_peak(m).count; }); }},
    {"issue_s", seconds, sometimes, "no device of the platform has a `host_launch`", "issue",
     "what the busiest host takes to issue kernels, ahead of its device. The iteration is simulated with it",
     [](const Result& of) -> Json {
       if (!of.answer || !of.answer->issue) return nullptr;
       return of.answer->issue->value;
     }},
    {"promised_makespan_s", seconds, sometimes, no_promise, "",
     "the planner's own; the program ends with 3 where it is not the simulation's",
     [](const Result& of) -> Json {
       if (!of.answer || !of.answer->promised_makespan) return nullptr;
       return of.answer->promised_makespan->value;
     }},
    {"promised_peak_bytes", bytes, sometimes, no_promise, "", "likewise",
     [](const Result& of) -> Json { return of.answer ? bytes_field(of.answer->promised_peak) : Json(nullptr); }},
    {"gap", ratio, sometimes, "unknown", "gap",
     "proven relative distance from the best schedule of the strategy's kind, its time over a bound on theirs less 1; "
     "of "
     "what packs, in the same forms",
     [](const Result& of) -> Json {
       if (!of.answer || !of.answer->gap) return nullptr;
       return *of.answer->gap;
     }},
    {"note", text, sometimes, "there is nothing to say", "note",
     "how the plan was found where that is not the whole method, such as the limit that ended a search",
     [](const Result& of) -> Json { return of.answer ? text_field(of.answer->note) : Json(nullptr); }},
    {"problem_notes", list, stated, "", "",
     "notes of transforms on costs outside an iteration, such as the bytes of a store",
     [](const Result& of) -> Json { return of.problem ? Json(of.problem->notes) : Json::array(); }},
    {"candidates", list, stated, "", "",
     "of a strategy that chooses among others: `strategy`, `makespan_s` or a `reason`, `taken`",
     [](const Result& of) -> Json { return candidates_json(of); }},
    {"prices", list, stated, "", "",
     "of `cluster(prices=yes)`: what would be chosen if one thing were otherwise: `change`, `strategy` (null: nothing "
     "fits or is left), `samples` of a micro-batch, `makespan_s`, `proven`",
     [](const Result& of) -> Json {
       Json prices = Json::array();
       if (!of.answer) return prices;
       for (const ChangedChoice& each : of.answer->prices) {
         const bool is_found = !each.strategy.empty();
         prices.push_back({{"change", each.change},
                           {"strategy", text_field(each.strategy)},
                           {"samples", is_found ? Json(each.samples) : Json(nullptr)},
                           {"makespan_s", is_found ? Json(each.makespan.value) : Json(nullptr)},
                           {"proven", each.is_proven}});
       }
       return prices;
     }},
    {"configuration", object, sometimes, "the question is for no framework", "",
     "how a framework is told to run the plan of `cluster(for=...)`: `framework`, `text`",
     [](const Result& of) -> Json {
       if (!of.answer || !of.answer->configuration) return nullptr;
       return {{"framework", of.answer->configuration->framework}, {"text", of.answer->configuration->text}};
     }},
    {"lower_bound_s", seconds, sometimes, "refused or stopped, or the strategy packs and has no schedule", "",
     "no schedule is faster that uses as many devices, leaves as much on them as `lower_bound_stays` says, and packs "
     "by no other codecs; where infeasible: of all that the strategy could have made",
     [](const Result& of) -> Json {
       return of_bounds(of, [](const LowerBounds& bounds) { return bounds.time().value; });
     }},
    {"lower_bound_bytes", bytes, sometimes, "likewise", "", "no such schedule needs less on its fullest device",
     [](const Result& of) -> Json {
       return of_bounds(of, [](const LowerBounds& bounds) { return bounds.memory.count; });
     }},
    {"lower_bound_stays", text, sometimes, "likewise", "",
     "`all`: parameters, gradients and optimizer states, which devices update; `parameters`; or `nothing`",
     [](const Result& of) -> Json {
       return of_bounds(of, [&](const LowerBounds&) { return written(of.answer->stays); });
     }},
    {"recompute_s", seconds, measured, "", "recomputing", "durations of the steps that repeat an op, summed",
     [](const Result& of) -> Json { return metric(of, [](const Metrics& m) { return m.recompute.value; }); }},
    {"bytes_moved", bytes, measured, "", "moved", "by all transfers",
     [](const Result& of) -> Json { return metric(of, [](const Metrics& m) { return m.moved.count; }); }},
    {"exposed_transfer_s", seconds, measured, "", "waiting for copies",
     "time in which a device copies and computes nothing, summed",
     [](const Result& of) -> Json { return metric(of, [](const Metrics& m) { return m.exposed_transfer.value; }); }},
    {"cutting_s", seconds, sometimes, "no schedule, or the trace has no `plain_iteration_s` or its times do not hold",
     "cutting",
     "by how much the steps take longer, each stage run alone, than the same within plain training's one call; 0 where "
     "the schedule is that call",
     [](const Result& of) -> Json {
       if (!of.answer || !of.answer->cutting) return nullptr;
       return of.answer->cutting->value;
     }},
    {"exchange_s", seconds, measured, "", "exchanging",
     "time of a mesh's ranks in collectives between ops, summed over devices; two at once both count, since stages add "
     "them without knowing which overlap; also collectives within stages, where a later pass plans by these",
     [](const Result& of) -> Json { return metric(of, [](const Metrics& m) { return m.exchange.value; }); }},
    {"exposed_exchange_s", seconds, measured, "", "waiting for exchanges",
     "time in which a device is in any of them and computes nothing, summed over devices",
     [](const Result& of) -> Json { return metric(of, [](const Metrics& m) { return m.exposed_exchange.value; }); }},
    {"exchanges", list, stated, "", "",
     "the same for each axis of the mesh by itself: `axes`, `exchange_s`, `exposed_exchange_s`",
     [](const Result& of) -> Json { return exchanges_json(of); }},
    {"contention_s", seconds, measured, "", "contention",
     "by which copies that share links or a host's memory, or slow kernels down, and updates that share a host, make "
     "it longer than if each were alone",
     [](const Result& of) -> Json { return of.metrics() ? Json(of.answer->contention.value) : Json(nullptr); }},
    {"gradient_error", object, sometimes, "no schedule, or all gradients are exact", "gradient error",
     "where codecs are lossy: `relative` error of all gradients as one vector (`whole`; tables have this number) and "
     "of each that is `approximate`, by closed forms as if values were white noise (`sim/codec/predicted_error.h`)",
     [](const Result& of) -> Json { return errors_json(of); }, whole_error},
    {"kept_whole", list, stated, "", "",
     "of schedules that pack: values whose packed form saves nothing, since the whole stays in the same memory until "
     "that is read: `tensor`, `codec`, `bytes` of the packed form, and the `holders`, ops that read the whole "
     "meanwhile",
     [](const Result& of) -> Json { return kept_whole_json(of); }},
    {"upper_bounds_used", list, stated, "", "",
     "`memory`, `rate` (`adam` or `bandwidth`), `bytes_per_s`: rates of hosts that this result rests on and that the "
     "platform's file calls upper bounds; the true time may be longer",
     [](const Result& of) -> Json { return upper_bounds_json(of); }},
    {"bubble_fraction", ratio, measured, "", "idle", "share of (devices used x makespan) without computation",
     [](const Result& of) -> Json { return metric(of, [](const Metrics& m) { return m.bubble; }); }},
    {"longest_stage_s", seconds, measured, "", "",
     "time from a device's first compute step to its last, on the device where it is longest, as zero bubble's papers "
     "compare it",
     [](const Result& of) -> Json { return metric(of, [](const Metrics& m) { return m.longest_stage.value; }); }},
    {"ideal_s", seconds, measured, "", "",
     "all that devices compute, shared evenly by those used: the iteration without idle time",
     [](const Result& of) -> Json { return metric(of, [](const Metrics& m) { return m.ideal.value; }); }},
    {"period_s", seconds, sometimes, "no schedule, or one micro-batch", "",
     "median time from the end of one micro-batch to the end of the next, as papers on steady states compare it",
     [](const Result& of) -> Json {
       if (!of.metrics() || !of.metrics()->period) return nullptr;
       return of.metrics()->period->value;
     }},
    {"steps", index, measured, "", "", "of the schedule",
     [](const Result& of) -> Json {
       if (!of.schedule()) return nullptr;
       return of.schedule()->steps.size();
     }},
    {"devices", list, stated, "", "",
     "`name`, `peak_live_bytes`, `guaranteed_peak_bytes`, `peak_reserved_bytes` (the chosen allocator's), `busy_s`, `micro_batches_in_flight` "
     "(at most: from their first forward to their last compute there). With an allocator other than `exact` also "
     "`peak_active_bytes`, `peak_allocated_bytes`, `peak_requested_bytes`, `fragmentation` (1 - allocated / reserved, "
     "at their peaks), `largest_free_bytes` and `inactive_split_bytes` when most is reserved, `allocation_retries`, "
     "and `out_of_memory`: null, or `reason` (`fragmented`, `too few bytes`), `step`, `requested_bytes`, "
     "`limit_bytes`, and what was `reserved_bytes`, `active_bytes`, `allocated_bytes`, `largest_free_bytes` then",
     [](const Result& of) -> Json { return devices_json(of); }},
    {"memories", list, stated, "", "",
     "each memory of a host or disk that holds something: `name`, `peak_live_bytes`, `capacity_bytes` (null: "
     "unlimited)",
     [](const Result& of) -> Json { return memories_json(of); }},
    {"peak", object, measured, "", "",
     "of the fullest device: `device`, `step` and `op` that made the peak (absent where nothing exceeds the start), "
     "`bytes_by_kind` (kinds of tensors, `workspace`, and `packed`: of whatever kind, in the form that a codec has "
     "made), the eight `largest_buffers` (`name`, `kind`, `bytes`, of packed ones `codec`)",
     [](const Result& of) -> Json { return peak_json(of); }},
    {"solve_s", seconds, sometimes, "refused or stopped, or a schedule from a file", "planning",
     "wall time of planning, with the searches of transforms and hybrid passes, shared evenly by the budgets that were "
     "planned together",
     [](const Result& of) -> Json {
       if (!of.answer || (of.answer->metrics && !of.answer->promised_peak)) return nullptr;
       return of.answer->solve_s;
     }},
    {"simulate_s", seconds, sometimes, "refused or stopped", "",
     "wall time of the simulation, shared by results with the same schedule",
     [](const Result& of) -> Json {
       if (!of.answer) return nullptr;
       return of.answer->simulate_s;
     }},
};

bool is_amount(const Json& value) {
  return value.is_number() && value.get<double>() >= 0;
}
bool is_index(const Json& value) {
  return value.is_number_integer() && value >= 0 && value <= std::numeric_limits<std::int64_t>::max();
}

/// What values of a unit are, in words and as a rule; the word for the table of fields.
struct UnitRule {
  FieldUnit unit;
  std::string_view word;
  std::string_view expected;
  bool (*fits)(const Json&);
};

constexpr UnitRule unit_rules[] = {
    {text, "text", "a text", [](const Json& v) { return v.is_string(); }},
    {flag, "true or false", "true or false", [](const Json& v) { return v.is_boolean(); }},
    {ratio, "ratio", "a number of at least 0", is_amount},
    {FieldUnit::index, "number", "a whole number of at least 0", is_index},
    {count, "number", "a whole number from 1 to 1000000",
     [](const Json& v) { return is_index(v) && v >= 1 && v <= 1'000'000; }},
    {bytes, "B", "a whole number of at least 0", is_index},
    {seconds, "s", "a number of at least 0", is_amount},
    {list, "list", "a list", [](const Json& v) { return v.is_array(); }},
    {object, "object", "an object", [](const Json& v) { return v.is_object(); }},
};

const UnitRule& rule_of(FieldUnit unit) {
  const auto* const found = std::ranges::find(unit_rules, unit, &UnitRule::unit);
  EXPECTS(found != std::end(unit_rules));
  return *found;
}

}  // namespace

std::span<const ResultField> result_fields() {
  return fields;
}

Result result_of(const Question& question, const Problem& problem, const Answer& answer) {
  return {.question = question,
          .budget = answer.budget,
          .outcome = answer.outcome,
          .reason = answer.reason,
          .problem = &problem,
          .answer = &answer};
}

Json to_json(const Result& of) {
  Json result = Json::object();
  for (const ResultField& field : fields) result[std::string(field.name)] = field.value(of);
  return result;
}

std::string_view word_of(FieldUnit unit) {
  return rule_of(unit).word;
}

std::optional<std::string> wrong_in_field(const ResultField& field, const Json& value) {
  const UnitRule& rule = rule_of(field.unit);
  if (value.is_null() ? field.is != stated : rule.fits(value)) return std::nullopt;
  return fmt::format("{}: expected {}{}, found {}", field.name, rule.expected, field.is == stated ? "" : ", or null",
                     value.type_name());
}

bool is_in_tables(const ResultField& field) {
  return field.in_tables != nullptr || (field.unit != list && field.unit != object);
}

Json in_tables(const ResultField& field, const Json& record) {
  const auto found = record.find(std::string(field.name));
  if (found == record.end()) return nullptr;
  return field.in_tables == nullptr ? *found : field.in_tables(*found);
}

std::string result_fields_table() {
  std::string table = "| key | unit | null where | meaning |\n|---|---|---|---|\n";
  for (const ResultField& field : fields) {
    const std::string_view null_when = field.is == measured ? "there is no schedule" : field.null_when;
    table += fmt::format("| `{}` | {} | {} | {} |\n", field.name, word_of(field.unit), null_when, field.meaning);
  }
  return table;
}

}  // namespace plimsoll
