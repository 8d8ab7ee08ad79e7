#include "sim/core/schedule_builder.h"

#include <algorithm>
#include <utility>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

template <class T>
Slice append(std::vector<T>& list, const std::vector<T>& items) {
  const Slice slice{static_cast<std::uint32_t>(list.size()), static_cast<std::uint32_t>(items.size())};
  list.insert(list.end(), items.begin(), items.end());
  return slice;
}

}  // namespace

StreamId ScheduleBuilder::stream(DeviceId device, Way way, std::uint32_t index) {
  const auto [place, made] =
      streams_.try_emplace({device.index, way, index}, id_at<StreamId>(schedule_.streams.size()));
  if (made) schedule_.streams.push_back({.device = device, .way = way});
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

StepId ScheduleBuilder::add(NewStep step) {
  const auto id = id_at<StepId>(pending_.size());
  EXPECTS(step.stream.index < schedule_.streams.size());
  EXPECTS(std::ranges::all_of(step.waits, [id](StepId wait) { return wait < id; }));
  for (const BufferId buffer : step.allocates) {
    EXPECTS(life_[buffer.index] == Life::unborn);
    life_[buffer.index] = Life::live;
    born_[buffer.index] = id.index;
  }
  pending_.push_back({.step = {.kind = step.kind,
                               .stream = step.stream,
                               .op = step.op,
                               .implementation = step.implementation,
                               .micro_batch = step.micro_batch,
                               .replica = step.replica,
                               .collective = step.collective,
                               .work = step.work,
                               .workspace = step.workspace,
                               .measured = step.measured,
                               .reads = append(schedule_.buffer_list, step.reads),
                               .writes = append(schedule_.buffer_list, step.writes),
                               .allocates = append(schedule_.buffer_list, step.allocates)},
                      .waits = std::move(step.waits)});
  return id;
}

void ScheduleBuilder::free_after(StepId step, BufferId buffer) {
  EXPECTS(step.index < pending_.size());
  EXPECTS(life_[buffer.index] == Life::live && born_[buffer.index] <= step.index);
  life_[buffer.index] = Life::dead;
  pending_[step.index].frees.push_back(buffer);
}

void ScheduleBuilder::wait(StepId step, StepId earlier) {
  EXPECTS(earlier < step && step.index < pending_.size());
  pending_[step.index].waits.push_back(earlier);
}

Schedule ScheduleBuilder::finish() {
  std::vector<std::optional<StepId>> last_on_stream(schedule_.streams.size());
  schedule_.steps.reserve(pending_.size());
  for (Pending& pending : pending_) {
    std::vector<StepId>& waits = pending.waits;
    std::optional<StepId>& predecessor = last_on_stream[pending.step.stream.index];
    std::ranges::sort(waits);
    waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
    std::erase_if(waits, [&](StepId wait) { return wait == predecessor; });
    pending.step.frees = append(schedule_.buffer_list, pending.frees);
    pending.step.waits = append(schedule_.wait_list, waits);
    schedule_.steps.push_back(pending.step);
    predecessor = id_at<StepId>(schedule_.steps.size() - 1);
  }
  Schedule done = std::move(schedule_);
  *this = ScheduleBuilder{};
  return done;
}

}  // namespace plimsoll
