#include "sim/lower/schedule_builder.h"

#include <algorithm>
#include <utility>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

template <class T>
Slice append(std::vector<T>& list, const std::vector<T>& items) {
  const Slice slice{static_cast<std::uint32_t>(list.size()), static_cast<std::uint32_t>(items.size())};
  for (const T& item : items) list.push_back(item);  // which are few
  return slice;
}

}  // namespace

void NewStep::clear() {
  NewStep fresh;
  fresh.reads.swap(reads);
  fresh.writes.swap(writes);
  fresh.allocates.swap(allocates);
  fresh.waits.swap(waits);
  fresh.reads.clear();
  fresh.writes.clear();
  fresh.allocates.clear();
  fresh.waits.clear();
  *this = std::move(fresh);
}

StreamId ScheduleBuilder::stream(DeviceId device, Way way, std::uint32_t index) {
  if (last_stream_ && last_stream_->first == std::tuple(device.index, way, index)) return last_stream_->second;
  const auto [place, made] =
      streams_.try_emplace({device.index, way, index}, id_at<StreamId>(schedule_.streams.size()));
  if (made) schedule_.streams.push_back({.device = device, .way = way});
  last_stream_ = *place;
  return place->second;
}

BufferId ScheduleBuilder::buffer(Buffer buffer) {
  if (buffer.range_length == Bytes{0}) buffer.range_length = buffer.bytes;
  schedule_.buffers.push_back(buffer);
  life_.push_back(Life::unborn);
  born_.push_back(0);
  return id_at<BufferId>(schedule_.buffers.size() - 1);
}

void ScheduleBuilder::resident(BufferId buffer) {
  EXPECTS(life_[buffer.index] == Life::unborn);
  life_[buffer.index] = Life::live;
  schedule_.resident.push_back(buffer);
}

RouteId ScheduleBuilder::route(MemoryId from, MemoryId to) {
  EXPECTS(from != to);
  const auto [place, made] = routes_.try_emplace({from, to}, id_at<RouteId>(schedule_.routes.size()));
  if (made) schedule_.routes.push_back({from, to});
  return place->second;
}

CollectiveId ScheduleBuilder::collective(Collective collective) {
  EXPECTS(collective.inputs.size() == collective.outputs.size() && collective.inputs.size() % collective.values == 0);
  schedule_.collectives.push_back(std::move(collective));
  return id_at<CollectiveId>(schedule_.collectives.size() - 1);
}

void ScheduleBuilder::expect(std::size_t steps) {
  schedule_.steps.reserve(steps);
  later_of_.reserve(steps);
}

StepId ScheduleBuilder::add(const NewStep& step) {
  const auto id = id_at<StepId>(steps());
  EXPECTS(step.stream.index < schedule_.streams.size());
  EXPECTS(std::ranges::all_of(step.waits, [id](StepId wait) { return wait < id; }));
  for (const BufferId buffer : step.allocates) {
    EXPECTS(life_[buffer.index] == Life::unborn);
    life_[buffer.index] = Life::live;
    born_[buffer.index] = id.index;
  }
  schedule_.steps.push_back({.kind = step.kind,
                             .stream = step.stream,
                             .op = step.op,
                             .implementation = step.implementation,
                             .micro_batch = step.micro_batch,
                             .replica = step.replica,
                             .collective = step.collective,
                             .work = step.work,
                             .memory_bound = step.memory_bound,
                             .workspace = step.workspace,
                             .measured = step.measured,
                             .reads = append(schedule_.buffer_list, step.reads),
                             .writes = append(schedule_.buffer_list, step.writes),
                             .allocates = append(schedule_.buffer_list, step.allocates),
                             .waits = append(waits_, step.waits)});
  later_of_.emplace_back();
  return id;
}

void ScheduleBuilder::free_after(StepId step, BufferId buffer) {
  EXPECTS(step.index < steps());
  EXPECTS(life_[buffer.index] == Life::live && born_[buffer.index] <= step.index);
  life_[buffer.index] = Life::dead;
  add_later(later_of_[step.index].frees, buffer.index);
}

void ScheduleBuilder::wait(StepId step, StepId earlier) {
  EXPECTS(earlier < step && step.index < steps());
  add_later(later_of_[step.index].waits, earlier.index);
}

void ScheduleBuilder::add_later(Row& row, std::uint32_t index) {
  const auto place = static_cast<std::uint32_t>(later_.size());
  later_.push_back({index, nothing});
  (row.first == nothing ? row.first : later_[row.last].next) = place;
  row.last = place;
}

Schedule ScheduleBuilder::finish() {
  std::vector<std::optional<StepId>> last_on_stream(schedule_.streams.size());
  schedule_.buffer_list.reserve(schedule_.buffer_list.size() + later_.size());
  schedule_.wait_list.reserve(waits_.size() + later_.size());
  std::vector<StepId> waits;
  std::vector<BufferId> frees;
  for (std::size_t s = 0; s < steps(); ++s) {
    Step& step = schedule_.steps[s];
    std::optional<StepId>& predecessor = last_on_stream[step.stream.index];
    const auto asked = waits_.begin() + step.waits.first;
    waits.assign(asked, asked + step.waits.count);
    for (std::uint32_t l = later_of_[s].waits.first; l != nothing; l = later_[l].next) {
      waits.push_back(StepId{later_[l].index});
    }
    std::ranges::sort(waits);
    waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
    std::erase_if(waits, [&](StepId wait) { return wait == predecessor; });
    frees.clear();
    for (std::uint32_t l = later_of_[s].frees.first; l != nothing; l = later_[l].next) {
      frees.push_back(BufferId{later_[l].index});
    }
    step.frees = append(schedule_.buffer_list, frees);
    step.waits = append(schedule_.wait_list, waits);
    predecessor = id_at<StepId>(s);
  }
  Schedule done = std::move(schedule_);
  *this = ScheduleBuilder{};
  return done;
}

}  // namespace plimsoll
