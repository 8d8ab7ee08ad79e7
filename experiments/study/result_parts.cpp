#include "experiments/study/result_parts.h"

#include <algorithm>

#include "experiments/study/host_bounds.h"
#include "experiments/study/kept_whole.h"
#include "experiments/study/memory_by_kind.h"
#include "sim/core/codec.h"
#include "sim/core/names.h"
#include "sim/measure/memory_profile.h"

namespace plimsoll {
namespace {

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

Json device_json(AllocatorKind allocator, const DeviceMetrics& device, const ReservedPeak& peak) {
  Json object{{"name", device.name},
              {"peak_live_bytes", device.peak_live.count},
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

}  // namespace

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

Json candidates_json(const Result& of) {
  Json list = Json::array();
  if (of.answer) {
    for (const Candidate& each : of.answer->candidates) list.push_back(candidate_json(each));
  }
  return list;
}

Json devices_json(const Result& of) {
  Json list = Json::array();
  if (!of.metrics()) return list;
  for (std::size_t d = 0; d < of.metrics()->devices.size(); ++d) {
    list.push_back(device_json(of.question.allocator.kind, of.metrics()->devices[d], of.answer->reserved[d]));
  }
  return list;
}

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

Json errors_json(const Result& of) {
  if (!of.metrics() || of.answer->errors.of.empty()) return nullptr;
  const PredictedErrors& errors = of.answer->errors;
  Json object{{"whole", {{"relative", errors.whole}}}, {"approximate", Json::object()}};
  for (const auto& [gradient, relative] : errors.of) {
    object["approximate"][of.problem->graph[gradient].name] = {{"relative", relative}};
  }
  return object;
}

Json exchanges_json(const Result& of) {
  Json list = Json::array();
  if (!of.metrics()) return list;
  for (const AxisMetrics& each : of.metrics()->axes) {
    list.push_back(
        {{"axes", each.axis}, {"exchange_s", each.exchange.value}, {"exposed_exchange_s", each.exposed.value}});
  }
  return list;
}

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

Json upper_bounds_json(const Result& of) {
  Json list = Json::array();
  if (!of.schedule()) return list;
  for (const HostBound& bound : host_bounds_used(*of.schedule(), of.problem->platform)) {
    list.push_back({{"memory", bound.memory}, {"rate", bound.rate}, {"bytes_per_s", bound.value.value}});
  }
  return list;
}

}  // namespace plimsoll
