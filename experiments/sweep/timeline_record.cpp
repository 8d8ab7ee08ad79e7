#include "experiments/sweep/timeline_record.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "experiments/study/lane_name.h"
#include "experiments/study/memory_by_kind.h"
#include "sim/core/names.h"
#include "sim/core/schedule.h"
#include "sim/core/timeline.h"
#include "sim/core/tolerance.h"
#include "sim/io/json/json.h"
#include "sim/model/problem.h"

namespace plimsoll {
namespace {

// A timeline of several devices as a sweep keeps it for a Gantt chart: what every device did when, of which
// micro-batch, and how full its memory was.

std::vector<DeviceId> devices_that_compute(const Schedule& schedule) {
  std::set<DeviceId> devices;
  for (const Step& step : schedule.steps) {
    if (step.op != no_op) devices.insert(schedule[step.stream].device);
  }
  return {devices.begin(), devices.end()};
}

struct Span {
  Seconds start, finish;
  std::string_view what;
  std::uint32_t micro_batch = 0;
  std::size_t part = 0;
};

/// What one stream of a device does, or all streams on which it sends to other devices.
struct Lane {
  DeviceId device;
  std::string name;
  std::vector<Span> spans;
};

/// Spans of a lane that has more than an eye can tell apart: of each of the equal times that the timeline is cut into,
/// what is done in it, one after the other from its beginning. Sums of what a stream does stay as they are; where
/// several streams that are one lane work at once, they share the bin.
std::vector<Span> binned(std::span<const Span> spans, Seconds makespan) {
  constexpr std::size_t bins = 600;
  const double width = makespan.value / bins;
  std::vector<Span> made;
  std::vector<std::pair<std::string_view, double>> done;  // in the bin at hand
  std::size_t bin = 0;
  const auto end_bin = [&] {
    Seconds at{static_cast<double>(bin) * width};
    double all = 0;
    for (const auto& [what, seconds] : done) all += seconds;
    const double share = all > width ? width / all : 1;
    for (const auto& [what, seconds] : done) {
      made.push_back({at, at + Seconds{share * seconds}, what});
      at = made.back().finish;
    }
    done.clear();
  };
  for (const Span& span : spans) {
    for (double at = span.start.value; at < span.finish.value;) {
      const std::size_t in = std::max(bin, std::min(bins - 1, static_cast<std::size_t>(at / width)));
      if (in != bin) end_bin();
      bin = in;
      const double until =
          bin + 1 == bins ? span.finish.value : std::min(span.finish.value, static_cast<double>(bin + 1) * width);
      const auto known = std::ranges::find(done, span.what, [](const auto& each) { return each.first; });
      if (known == done.end()) {
        done.emplace_back(span.what, until - at);
      } else {
        known->second += until - at;
      }
      at = std::max(until, std::nextafter(at, span.finish.value));
    }
  }
  end_bin();
  return made;
}

class GanttRecord {
 public:
  GanttRecord(const Problem& problem, const Schedule& schedule, const Timeline& timeline)
      : problem_(problem), schedule_(schedule), timeline_(timeline), stage_of_(problem.graph.ops.size()) {
    if (problem.index) {
      const ChainGraph& index = *problem.index;
      for (const std::vector<OpId>* ops : {&index.forward, &index.backward, &index.weight}) {
        for (std::size_t i = 0; i < ops->size(); ++i) {
          if ((*ops)[i] != no_op) stage_of_[(*ops)[i].index] = i;
        }
      }
    }
    find_parts();
    find_lanes();
    find_memory();
  }

  Json device(DeviceId id) const {
    Json lanes = Json::array();
    for (const Lane& lane : lanes_) {
      if (lane.device != id || lane.spans.empty()) continue;
      Json spans = Json::array();
      const bool is_long = lane.spans.size() > most_spans;
      const std::vector<Span> shown = is_long ? binned(lane.spans, timeline_.makespan) : lane.spans;
      for (const Span& span : shown) {
        spans.push_back({span.start.value, span.finish.value, span.what, span.micro_batch, span.part});
      }
      lanes.push_back({{"name", lane.name}, {"spans", std::move(spans)}});
    }
    return {{"name", problem_.platform[id].name}, {"lanes", std::move(lanes)}, {"memory", memory_[id.index]}};
  }

 private:
  static constexpr std::size_t most_spans = 3000;

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

  /// By device and stage: before how many others its part of the device comes. Stages of a part follow each other and
  /// are run for the same micro-batches.
  void find_parts() {
    std::vector<std::map<std::size_t, std::set<std::uint32_t>>> micro_batches_of(problem_.platform.devices.size());
    for (const Step& step : schedule_.steps) {
      const std::optional<std::size_t> stage = stage_run_by(step);
      if (stage) micro_batches_of[schedule_[step.stream].device.index][*stage].insert(step.micro_batch);
    }
    for (const auto& stages : micro_batches_of) {
      std::map<std::size_t, std::size_t>& part_of = part_of_.emplace_back();
      std::size_t part = 0;
      for (auto at = stages.begin(); at != stages.end(); ++at) {
        const auto before = part_of.empty() ? at : std::prev(at);
        if (before != at && (before->first + 1 != at->first || before->second != at->second)) ++part;
        part_of[at->first] = part;
      }
    }
  }

  /// What a device computes first, then its other streams in their order. Many ways to other devices are one lane.
  void find_lanes() {
    constexpr std::ptrdiff_t most_lanes = 4;
    const auto goes_to_device = [](Way way) { return way.from == place::device && !relative_name(way.to); };
    std::vector<std::size_t> lane_of(schedule_.streams.size());
    std::vector<std::vector<Way>> ways(problem_.platform.devices.size());
    for (const Stream& stream : schedule_.streams) {
      std::vector<Way>& known = ways[stream.device.index];
      if (std::ranges::find(known, stream.way) == known.end()) known.push_back(stream.way);
    }
    for (std::uint32_t d = 0; d < ways.size(); ++d) {
      std::stable_partition(ways[d].begin(), ways[d].end(), [](Way way) { return way == way::compute; });
      const bool are_many = std::ranges::count_if(ways[d], goes_to_device) > most_lanes;
      std::optional<std::size_t> sends;
      for (const Way way : ways[d]) {
        const bool is_send = are_many && goes_to_device(way);
        if (!is_send || !sends) {
          if (is_send) sends = lanes_.size();
          lanes_.push_back({DeviceId{d}, is_send ? "to other devices" : lane_name(way, problem_.platform), {}});
        }
        for (std::size_t s = 0; s < lane_of.size(); ++s) {
          const Stream& stream = schedule_.streams[s];
          if (stream.device.index == d && stream.way == way) lane_of[s] = is_send ? *sends : lanes_.size() - 1;
        }
      }
    }
    std::vector<std::size_t> steps;
    for (std::size_t s = 0; s < schedule_.steps.size(); ++s) {
      if (timeline_.steps[s].finish > timeline_.steps[s].start) steps.push_back(s);
    }
    for (const std::size_t s : steps) add(s, lanes_[lane_of[schedule_.steps[s].stream.index]].spans);
  }

  void add(std::size_t s, std::vector<Span>& spans) const {
    const double same = model_tolerance * timeline_.makespan.value;
    const Step& step = schedule_.steps[s];
    const Interval& ran = timeline_.steps[s];
    const std::optional<std::size_t> stage = stage_run_by(step);
    const std::size_t part = stage ? part_of_[schedule_[step.stream].device.index].at(*stage) : 0;
    const Span span{ran.start, ran.finish, what_is_done(step), step.micro_batch, part};
    const bool goes_on = !spans.empty() && spans.back().what == span.what &&
                         spans.back().micro_batch == span.micro_batch && spans.back().part == span.part &&
                         span.start.value <= spans.back().finish.value + same;
    if (goes_on) {
      spans.back().finish = std::max(spans.back().finish, span.finish);
    } else {
      spans.push_back(span);
    }
  }

  /// By device; of rows that no eye could tell apart the fullest.
  void find_memory() {
    constexpr double rows_of_a_timeline = 1000;
    const double step = timeline_.makespan.value / rows_of_a_timeline;
    memory_.assign(problem_.platform.devices.size(), Json::array());
    walk_memories(problem_.graph, problem_.platform, schedule_, timeline_,
                  [&](MemoryId memory, Seconds date, const BytesByKind& live) {
                    const std::optional<DeviceId> device = problem_.platform[memory].device;
                    if (!device) return;
                    Json& rows = memory_[device->index];
                    const std::int64_t bytes = sum(live);
                    if (rows.empty() || date.value - rows.back()[0].get<double>() > step) {
                      rows.push_back({date.value, bytes});
                    } else if (bytes > rows.back()[1]) {
                      rows.back()[1] = bytes;
                    }
                  });
  }

  const Problem& problem_;
  const Schedule& schedule_;
  const Timeline& timeline_;
  std::vector<std::optional<std::size_t>> stage_of_;         ///< by op
  std::vector<std::map<std::size_t, std::size_t>> part_of_;  ///< by device and stage
  std::vector<Lane> lanes_;                                  ///< by device, compute first
  std::vector<Json> memory_;                                 ///< by device
};

bool several_devices_compute(const Schedule& schedule) {
  return devices_that_compute(schedule).size() > 1;
}

/// `devices`, of each `name`, `lanes` and `memory` (rows of a date and the bytes from then on). A lane has a name and
/// `spans` of [start, finish, what, micro-batch, part], in seconds: what follows without a gap and is the same is one
/// span. A device's parts are counted from 0: stages that follow each other and are run for the same micro-batches are
/// one.
Json gantt_record(const Problem& problem, const Schedule& schedule, const Timeline& timeline) {
  const GanttRecord record(problem, schedule, timeline);
  Json devices = Json::array();
  for (const DeviceId id : devices_that_compute(schedule)) devices.push_back(record.device(id));
  return {{"devices", std::move(devices)}};
}

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
