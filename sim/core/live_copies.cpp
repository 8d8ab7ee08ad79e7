#include "sim/core/live_copies.h"

#include <algorithm>
#include <utility>

#include "sim/core/expects.h"

namespace plimsoll {

LiveCopies::LiveCopies(const Problem& problem, std::span<const Tape> tapes) : problem_(problem), graph_(problem.graph) {
  chunks_.resize(graph_.storages, 1);
  homes_.resize(graph_.storages);
  for (const Tape& tape : tapes) {
    for (const Home& home : tape.homes) homes_[graph_[home.tensor].storage.index] = home;
    for (const Action& action : tape.actions) {
      if (action.chunk.count > 1) chunks_[graph_[action.tensor].storage.index] = action.chunk.count;
    }
  }
  waits_.resize(problem.platform.devices.size());
  last_compute_.resize(problem.platform.devices.size());
}

// --- where things are

CopyKey LiveCopies::key(TensorId t, std::uint32_t micro_batch, std::uint32_t replica, MemoryId memory) const {
  const bool one_a_micro_batch = per_micro_batch(graph_[t].kind);
  return {graph_[t].storage.index, one_a_micro_batch ? micro_batch : 0, replica, memory.index};
}

CopyKey LiveCopies::on_host(CopyKey k, DeviceId device) const {
  const std::optional<MemoryId> host = host_memory(problem_.platform, device);
  if (!host) {
    throw CannotLower{"platform '" + problem_.platform.name + "' has no host memory that '" +
                      problem_.platform[device].name + "' can reach"};
  }
  k.memory = host->index;
  return k;
}

CopyKey LiveCopies::on_disk(CopyKey k, DeviceId device) const {
  const std::optional<MemoryId> disk = disk_memory(problem_.platform, device);
  if (!disk) {
    throw CannotLower{"platform '" + problem_.platform.name + "' has no disk behind the host of '" +
                      problem_.platform[device].name + "'"};
  }
  k.memory = disk->index;
  return k;
}

Copy* LiveCopies::find(const CopyKey& k) {
  const auto found = live_.find(k);
  return found == live_.end() ? nullptr : &found->second;
}

Copy& LiveCopies::operator[](const CopyKey& k) {
  Copy* found = find(k);
  EXPECTS(found != nullptr);
  return *found;
}

// --- buffers

BufferId LiveCopies::new_buffer(TensorId t, const CopyKey& k) {
  const ChunkRange range = range_of(graph_[t].bytes, {k.chunk, chunks_of(t)});
  return builder_.buffer({.tensor = t,
                          .micro_batch = per_micro_batch(graph_[t].kind) ? k.micro_batch : 0,
                          .replica = k.replica,
                          .memory = MemoryId{k.memory},
                          .bytes = range.length,
                          .range_offset = range.offset,
                          .range_length = range.length});
}

void LiveCopies::make_resident(TensorId t, const Part& part) {
  const CopyKey k = key(t, 0, part.replica, memory_of(part.device));
  const Home& home = homes_[graph_[t].storage.index];
  if (home.on_device) make_resident(t, k);
  if (home.on_host) make_resident(t, on_host(k, part.device));
  if (home.on_disk) make_resident(t, on_disk(k, part.device));
}

void LiveCopies::make_resident(TensorId t, const CopyKey& k) {
  const auto [place, fresh] = live_.try_emplace(k);
  if (!fresh) return;
  place->second.buffer = new_buffer(t, k);
  builder_.resident(place->second.buffer);
}

Copy& LiveCopies::made_by(NewStep& step, TensorId t, const CopyKey& k) {
  Copy& made = live_[k];
  made.buffer = new_buffer(t, k);
  step.allocates.push_back(made.buffer);
  return made;
}

Copy& LiveCopies::read(TensorId t, const CopyKey& k, bool changes, NewStep& step) {
  if (graph_[t].kind == TensorKind::input && !live_.contains(k)) return made_by(step, t, k);
  Copy& copy = (*this)[k];
  std::vector<BufferId>& list = changes ? step.writes : step.reads;
  if (std::ranges::find(list, copy.buffer) == list.end()) list.push_back(copy.buffer);
  if (changes) step.waits.insert(step.waits.end(), copy.users.begin(), copy.users.end());
  return copy;
}

// --- steps

StepId LiveCopies::add(NewStep step, StreamKind kind) {
  streams_.push_back({step.stream, kind});
  return builder_.add(std::move(step));
}

StepId LiveCopies::add_compute(NewStep step, DeviceId device) {
  const StepId issued = add(std::move(step), StreamKind::compute);
  last_compute_[device.index] = issued;
  return issued;
}

StepId LiveCopies::copy(TensorId t, const CopyKey& from, const CopyKey& to, DeviceId device, StreamKind kind,
                        StepKind label, std::uint32_t index) {
  const MemoryId source_memory{from.memory}, target_memory{to.memory};
  if (!has_route(source_memory, target_memory)) {
    throw CannotLower{"platform '" + problem_.platform.name + "' has no route from '" +
                      problem_.platform[source_memory].name + "' to '" + problem_.platform[target_memory].name + "'"};
  }
  Copy& source = (*this)[from];
  NewStep step;
  step.kind = label;
  step.stream = builder_.stream(device, kind, index);
  step.micro_batch = to.micro_batch;
  step.replica = to.replica;
  step.reads = {source.buffer};
  Copy* there = find(to);
  const BufferId target = there == nullptr ? new_buffer(t, to) : there->buffer;
  step.work = {.seconds = {}, .bytes = builder_[target].bytes, .route = builder_.route(source_memory, target_memory)};
  (there == nullptr ? step.allocates : step.writes) = {target};
  if (there != nullptr) step.waits = there->users;
  if (source.maker) step.waits.push_back(*source.maker);
  const std::optional<StepId> last = last_compute(device);
  if (kind != StreamKind::peer && last) step.waits.push_back(*last);
  if (kind == StreamKind::host_to_device || kind == StreamKind::disk_to_host) {
    const std::vector<StepId>& waits = waits_[device.index];
    step.waits.insert(step.waits.end(), waits.begin(), waits.end());
  }
  const StepId issued = add(step, kind);
  source.users.push_back(issued);
  if (there == nullptr) {
    live_[to] = {.buffer = target, .maker = issued, .users = {issued}};
  } else {
    there->overwritten(issued);
  }
  return issued;
}

bool LiveCopies::has_route(MemoryId from, MemoryId to) {
  const auto [place, fresh] = reachable_.try_emplace(CopyKey{from.index, to.index, 0, 0}, false);
  if (fresh) place->second = route_between(problem_.platform, from, to).has_value();
  return place->second;
}

void LiveCopies::offload(TensorId t, const CopyKey& k, DeviceId device) {
  copy(t, k, on_host(k, device), device, StreamKind::device_to_host, StepKind::offload);
}

void LiveCopies::prefetch(TensorId t, const CopyKey& k, DeviceId device) {
  const CopyKey host = on_host(k, device);
  copy(t, host, k, device, StreamKind::host_to_device, StepKind::prefetch);
  released_.erase(k);
  if (!homes_[k.storage].on_host) drop(host, device);
}

void LiveCopies::wait_for_copy(const CopyKey& k, DeviceId device) {
  const Copy* found = find(on_host(k, device));
  if (found == nullptr) found = find(k);
  const Copy& copy = found == nullptr ? (*this)[on_disk(k, device)] : *found;
  EXPECTS(copy.maker);
  std::vector<StepId>& waits = waits_[device.index];
  waits.push_back(*copy.maker);
  const auto released = released_.find(k);
  if (released != released_.end()) waits.push_back(released->second);
}

void LiveCopies::drop(const CopyKey& k, DeviceId device) {
  Copy& copy = (*this)[k];
  if (--copy.holders > 0) return;
  EXPECTS(!copy.users.empty());
  StepId last = *std::ranges::max_element(copy.users);
  const auto offloads = [&](StepId user) { return streams_[user.index].kind == StreamKind::device_to_host; };
  if (streams_[last.index].kind == StreamKind::compute && std::ranges::any_of(copy.users, offloads)) {
    NewStep release;
    release.kind = StepKind::offload;
    release.stream = builder_.stream(device, StreamKind::device_to_host, 1);
    release.micro_batch = k.micro_batch;
    release.replica = k.replica;
    last = add(release, StreamKind::device_to_host);
    released_[k] = last;
  }
  for (const StepId user : copy.users) {
    if (streams_[user.index].id != streams_[last.index].id) builder_.wait(last, user);
  }
  builder_.free_after(last, copy.buffer);
  live_.erase(k);
}

}  // namespace plimsoll
