#include "experiments/gantt_record.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "experiments/lane_name.h"
#include "experiments/memory_by_kind.h"
#include "sim/core/names.h"

namespace plimsoll {
namespace {

std::vector<DeviceId> devices_that_compute(const Schedule& schedule) {
  std::set<DeviceId> devices;
  for (const Step& step : schedule.steps) {
    if (step.op != no_op) devices.insert(schedule[step.stream].device);
  }
  return {devices.begin(), devices.end()};
}

class GanttRecord {
 public:
  GanttRecord(const Problem& problem, const Schedule& schedule, const Timeline& timeline)
      : problem_(problem), schedule_(schedule), timeline_(timeline), stage_of_(problem.graph.ops.size()) {
    if (!problem.index) return;
    const ChainGraph& index = *problem.index;
    for (const std::vector<OpId>* ops : {&index.forward, &index.backward, &index.weight}) {
      for (std::size_t i = 0; i < ops->size(); ++i) {
        if ((*ops)[i] != no_op) stage_of_[(*ops)[i].index] = i;
      }
    }
  }

  Json device(DeviceId id) const {
    Json lanes = Json::array();
    for (const Way way : ways_of(id)) {
      Json spans = spans_of(id, way);
      if (!spans.empty()) lanes.push_back({{"name", lane_name(way, problem_.platform)}, {"spans", std::move(spans)}});
    }
    return {{"name", problem_.platform[id].name}, {"lanes", std::move(lanes)}, {"memory", memory_of(id)}};
  }

 private:
  std::vector<Way> ways_of(DeviceId device) const {
    std::vector<Way> ways{way::compute};
    for (const Stream& stream : schedule_.streams) {
      if (stream.device == device && std::ranges::find(ways, stream.way) == ways.end()) ways.push_back(stream.way);
    }
    return ways;
  }

  std::string_view what_is_done(const Step& step) const {
    if (step.kind == StepKind::collective || !step.work.is_transfer()) {
      const bool is_weights = step.op != no_op && problem_.graph[step.op].phase == Phase::backward_weight;
      return is_weights && step.kind == StepKind::backward ? "weight_gradient" : written(step.kind);
    }
    return written(problem_.graph[schedule_[schedule_.buffers_in(step.reads)[0]].tensor].kind);
  }

  std::optional<std::size_t> stage_run_by(const Step& step) const {
    return step.op == no_op ? std::nullopt : stage_of_[step.op.index];
  }

  /// By stage: before how many others its part of the device comes. Stages of a part follow each other and are run for
  /// the same micro-batches.
  std::map<std::size_t, std::size_t> parts_of(DeviceId device) const {
    std::map<std::size_t, std::set<std::uint32_t>> micro_batches_of;
    for (const Step& step : schedule_.steps) {
      const std::optional<std::size_t> stage = stage_run_by(step);
      if (stage && schedule_[step.stream].device == device) micro_batches_of[*stage].insert(step.micro_batch);
    }
    std::map<std::size_t, std::size_t> part_of;
    std::size_t part = 0;
    for (auto at = micro_batches_of.begin(); at != micro_batches_of.end(); ++at) {
      const auto before = part_of.empty() ? at : std::prev(at);
      if (before != at && (before->first + 1 != at->first || before->second != at->second)) ++part;
      part_of[at->first] = part;
    }
    return part_of;
  }

  Json spans_of(DeviceId device, Way way) const {
    const std::map<std::size_t, std::size_t> part_of = parts_of(device);
    const double same = 1e-9 * timeline_.makespan.value;
    Json spans = Json::array();
    for (std::size_t s = 0; s < schedule_.steps.size(); ++s) {
      const Step& step = schedule_.steps[s];
      const Stream& stream = schedule_[step.stream];
      const Interval& ran = timeline_.steps[s];
      if (stream.device != device || stream.way != way || ran.finish <= ran.start) continue;
      const std::optional<std::size_t> stage = stage_run_by(step);
      const std::size_t part = stage ? part_of.at(*stage) : 0;
      Json span{ran.start.value, ran.finish.value, what_is_done(step), step.micro_batch, part};
      const bool goes_on = !spans.empty() && spans.back()[2] == span[2] && spans.back()[3] == span[3] &&
                           spans.back()[4] == span[4] && span[0] <= spans.back()[1].get<double>() + same;
      if (goes_on) {
        spans.back()[1] = span[1];
      } else {
        spans.push_back(std::move(span));
      }
    }
    return spans;
  }

  /// Of rows that no eye could tell apart the fullest.
  Json memory_of(DeviceId device) const {
    constexpr double rows_of_a_timeline = 1000;
    const MemoryId own = problem_.platform[device].memory;
    const double step = timeline_.makespan.value / rows_of_a_timeline;
    Json rows = Json::array();
    walk_memories(problem_.graph, problem_.platform, schedule_, timeline_,
                  [&](MemoryId memory, Seconds date, const BytesByKind& live) {
                    if (memory != own) return;
                    const std::int64_t bytes = sum(live);
                    if (rows.empty() || date.value - rows.back()[0].get<double>() > step) {
                      rows.push_back({date.value, bytes});
                    } else if (bytes > rows.back()[1]) {
                      rows.back()[1] = bytes;
                    }
                  });
    return rows;
  }

  const Problem& problem_;
  const Schedule& schedule_;
  const Timeline& timeline_;
  std::vector<std::optional<std::size_t>> stage_of_;  ///< by op
};

}  // namespace

bool several_devices_compute(const Schedule& schedule) {
  return devices_that_compute(schedule).size() > 1;
}

Json gantt_record(const Problem& problem, const Schedule& schedule, const Timeline& timeline) {
  const GanttRecord record(problem, schedule, timeline);
  Json devices = Json::array();
  for (const DeviceId id : devices_that_compute(schedule)) devices.push_back(record.device(id));
  return {{"devices", std::move(devices)}};
}

}  // namespace plimsoll
