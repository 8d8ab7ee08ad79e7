#include "sim/judge/walk.h"

#include <algorithm>

#include "sim/core/slices.h"

namespace plimsoll {
namespace {

std::vector<std::vector<OpId>> makers_of_gradients(const Graph& graph) {
  std::vector<std::vector<OpId>> makers(graph.tensors.size());
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    for (const TensorId t : graph.ops[o].outputs) {
      if (graph[t].kind == TensorKind::parameter_gradient) makers[t.index].push_back(id_at<OpId>(o));
    }
  }
  return makers;
}

/// What ranks sum before an update is no parameter of it.
std::vector<bool> updated_storages(const Graph& graph) {
  std::vector<bool> is_updated(graph.storages, false);
  for (const Op& op : graph.ops) {
    if (op.phase != Phase::update) continue;
    for (const TensorId t : op.mutates) {
      if (graph[t].kind != TensorKind::parameter_gradient) is_updated[graph[t].storage.index] = true;
    }
  }
  return is_updated;
}

std::vector<StorageId> storages_of_buffers(const Schedule& schedule, const Graph& graph) {
  std::vector<StorageId> storages;
  storages.reserve(schedule.buffers.size());
  for (const Buffer& buffer : schedule.buffers) storages.push_back(graph[buffer.tensor].storage);
  return storages;
}

}  // namespace

std::uint32_t updates_of(const Schedule& schedule) {
  const std::uint32_t every = schedule.updates.every;
  return schedule.updates.are_synchronous() || every == 0 ? 1 : schedule.micro_batches / every;
}

Walk::Walk(const Schedule& of, const Graph& trace, const Platform& machine, Findings& found)
    : schedule(of),
      graph(trace),
      platform(machine),
      findings(found),
      makers(makers_of_gradients(trace)),
      is_updated(updated_storages(trace)),
      storages(storages_of_buffers(of, trace)),
      slices(sequence_slices(trace)),
      before(of),
      holdings(of, trace, makers),
      route_finder_(machine) {
  std::size_t runs = 0;
  for (const Op& op : graph.ops) {
    first_run_.push_back(runs);
    runs += std::size_t{op.phase == Phase::update ? updates_of(of) : schedule.micro_batches} * schedule.replicas;
  }
  ran_.resize(runs);
  for (const Stream& stream : schedule.streams) {
    const auto at = [&](MemoryId place) { return route_finder_.memory_at(stream.device, place); };
    ends_.push_back({at(stream.way.from), at(stream.way.to), at(place::host)});
  }
  for (const Collective& collective : schedule.collectives) exchanges.emplace_back(schedule, collective);
}

std::optional<MemoryId> Walk::own_memory(const Step& step) const {
  const Stream& stream = schedule[step.stream];
  return stream.way.computes() ? ends_of(step).from : platform[stream.device].memory;
}

bool Walk::is_between_devices(const Step& step) const {
  const auto& [from, to, host] = ends_of(step);
  const MemoryId own = platform[schedule[step.stream].device].memory;
  return from && to && from != to && platform[*from].device && platform[*to].device && (from == own || to == own);
}

const std::optional<Route>& Walk::route(RouteId id) {
  const Endpoints& ends = schedule.routes[id.index];
  const auto [place, fresh] = routes_.try_emplace(ends);
  if (fresh) place->second = route_finder_.between(ends.from, ends.to);
  return place->second;
}

bool Walk::fills(const Slice& slice, TensorId t) const {
  const StorageId storage = graph[t].storage;
  return std::ranges::any_of(schedule.buffers_in(slice), [&](BufferId b) { return storage_of(b) == storage; });
}

bool Walk::is_live(TensorId t, const Step& step) {
  const std::optional<MemoryId> memory = own_memory(step);
  const StorageId storage = graph[t].storage;
  for (BufferId b = holdings.newest_live(t, step.micro_batch); b != HeldValue::none; b = holdings[b].older) {
    const Buffer& buffer = schedule[b];
    if (storage_of(b) == storage && buffer.memory == memory && belongs(buffer, step)) return true;
  }
  return false;
}

std::uint32_t Walk::micro_batches_of_update() const {
  const std::uint32_t every = schedule.updates.every;
  return schedule.updates.are_synchronous() || every == 0 ? schedule.micro_batches : every;
}

bool Walk::is_complete(BufferId b) {
  const std::size_t contributing = makers[schedule[b].tensor.index].size();
  return holdings[b].sums.all_have(contributing * micro_batches_of_update() * schedule.replicas);
}

std::pair<BufferId, BufferId> Walk::pair_of(const Step& step) const {
  return {schedule.buffers_in(step.reads)[0],
          schedule.buffers_in(step.allocates.count == 1 ? step.allocates : step.writes)[0]};
}

bool Walk::adds_gradients(const Step& step) const {
  if (step.op != no_op || step.work.is_transfer() || step.reads.count != 1 || step.writes.count != 1) return false;
  const TensorId t = schedule[schedule.buffers_in(step.writes)[0]].tensor;
  return step.allocates.count == 0 && graph[t].kind == TensorKind::parameter_gradient;
}

bool Walk::clips(const Step& step) const {
  if (!schedule.clips_gradients || step.op != no_op || step.work.is_transfer() || step.collective != no_collective) {
    return false;
  }
  return step.allocates.count == 0 && (step.reads.count == 0) != (step.writes.count == 0);
}

bool Walk::evaluates(const Step& step) const {
  return schedule.evaluation && step.kind == StepKind::evaluation && step.op == no_op && !step.work.is_transfer() &&
         step.collective == no_collective;
}

}  // namespace plimsoll
