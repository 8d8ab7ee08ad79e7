#include "experiments/sweep/timeline_record.h"

#include <algorithm>
#include <string>

#include "experiments/study/lane_name.h"
#include "experiments/study/memory_by_kind.h"
#include "experiments/sweep/gantt_record.h"
#include "sim/core/names.h"

namespace plimsoll {
namespace {

constexpr DeviceId first_device{0};

std::string_view what_is_done(const Graph& graph, const Schedule& schedule, const Step& step) {
  if (!step.work.is_transfer()) return written(step.kind);
  const BufferId moved = schedule.buffers_in(step.reads)[0];
  return written(graph[schedule[moved].tensor].kind);
}

/// What the streams of one way did, by start; nothing that took no time.
Json spans_of(const Graph& graph, const Schedule& schedule, const Timeline& timeline, Way way) {
  Json spans = Json::array();
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    const Step& step = schedule.steps[s];
    const Stream& stream = schedule[step.stream];
    const Interval& ran = timeline.steps[s];
    if (stream.device != first_device || stream.way != way || ran.finish <= ran.start) continue;
    spans.push_back({ran.start.value, ran.finish.value, what_is_done(graph, schedule, step)});
  }
  return spans;
}

/// Those that most schedules have first.
std::vector<Way> ways_of_first_device(const Schedule& schedule) {
  std::vector<Way> ways{way::compute, way::device_to_host, way::host_to_device,
                        way::on_host, way::host_to_disk,   way::disk_to_host};
  for (const Stream& stream : schedule.streams) {
    const bool is_known = std::ranges::find(ways, stream.way) != ways.end();
    if (stream.device == first_device && !is_known) ways.push_back(stream.way);
  }
  return ways;
}

}  // namespace

Json timeline_record(const Problem& problem, const Schedule& schedule, const Timeline& timeline) {
  if (several_devices_compute(schedule)) return gantt_record(problem, schedule, timeline);
  Json record{{"lanes", Json::array()}, {"memory_kinds", Json::array()}, {"memory", Json::array()}};
  for (const Way way : ways_of_first_device(schedule)) {
    Json spans = spans_of(problem.graph, schedule, timeline, way);
    if (!spans.empty())
      record["lanes"].push_back({{"name", lane_name(way, problem.platform)}, {"spans", std::move(spans)}});
  }
  for (const std::string_view name : memory_kind_names) record["memory_kinds"].push_back(name);
  const MemoryId own = problem.platform[first_device].memory;
  walk_memories(problem.graph, problem.platform, schedule, timeline,
                [&](MemoryId memory, Seconds date, const BytesByKind& live) {
                  if (memory != own) return;
                  Json row{date.value};
                  for (const std::int64_t bytes : live) row.push_back(bytes);
                  record["memory"].push_back(std::move(row));
                });
  return record;
}

}  // namespace plimsoll
