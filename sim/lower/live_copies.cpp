#include "sim/lower/live_copies.h"

#include <algorithm>
#include <utility>

#include "sim/core/expects.h"
#include "sim/lower/collective.h"

namespace plimsoll {

LiveCopies::LiveCopies(const Problem& problem, std::span<const Tape> tapes)
    : problem_(problem), graph_(problem.graph), live_(graph_.storages), routes_(problem.platform) {
  chunks_.resize(graph_.storages, 1);
  homes_.resize(graph_.storages, {place::device});
  at_.resize(problem.platform.devices.size());
  for (const Tape& tape : tapes) {
    for (const Codec& codec : tape.codecs) {
      if (std::ranges::find(codecs_, codec) == codecs_.end()) codecs_.push_back(codec);
    }
    for (const Home& home : tape.homes) homes_[graph_[home.tensor].storage.index] = home.memories;
    for (const Action& action : tape.actions) {
      if (action.chunk.count > 1) chunks_[graph_[action.tensor].storage.index] = action.chunk.count;
    }
  }
  waits_.resize(problem.platform.devices.size());
  last_compute_.resize(problem.platform.devices.size());
}

// --- where things are

MemoryId LiveCopies::asked_memory_at(DeviceId device, MemoryId place) {
  std::optional<MemoryId>& known = at_[device.index][place::device.index - place.index];
  known = plimsoll::memory_at(problem_.platform, device, place);
  if (known) return *known;
  const std::string &platform = problem_.platform.name, &name = problem_.platform[device].name;
  throw CannotLower{place == place::host
                        ? "platform '" + platform + "' has no host memory that '" + name + "' can reach"
                        : "platform '" + platform + "' has no disk behind the host of '" + name + "'"};
}

Copy& LiveCopies::operator[](const CopyKey& k) {
  Copy* found = find(k);
  EXPECTS(found != nullptr);
  return *found;
}

void LiveCopies::rename(const CopyKey& from, const CopyKey& to) {
  live_.rename(from, to);
}

// --- buffers

BufferId LiveCopies::new_buffer(TensorId t, const CopyKey& k) {
  const Bytes whole = graph_[t].bytes;
  const ChunkRange range = range_of(whole, {k.chunk, chunks_of(t)});
  Buffer buffer{.tensor = t,
                .micro_batch = per_micro_batch(graph_[t].kind) ? k.micro_batch : 0,
                .memory = MemoryId{k.memory},
                .bytes = range.length,
                .range_offset = range.offset,
                .range_length = range.length};
  if (const std::optional<CodecId> codec = codec_of_packed(k)) {
    buffer.codec = *codec;
    buffer.bytes =
        packed_share(packed_bytes(codecs_[codec->index], graph_, graph_[t]), whole, range.offset, range.length);
  }
  return builder_.buffer(buffer);
}

void LiveCopies::make_resident(TensorId t, const Part& part) {
  for (const MemoryId home : homes_[graph_[t].storage.index]) {
    make_resident(t, key(t, 0, memory_at(part.device, home)));
  }
}

void LiveCopies::make_resident(TensorId t, const CopyKey& k) {
  const auto [copy, fresh] = live_.try_emplace(k);
  if (!fresh) return;
  copy->buffer = new_buffer(t, k);
  builder_.resident(copy->buffer);
}

bool LiveCopies::fills_inputs(const NewStep& step) const {
  return std::ranges::any_of(step.allocates,
                             [&](BufferId b) { return graph_[builder_[b].tensor].kind == TensorKind::input; });
}

std::pair<Copy*, bool> LiveCopies::found_or_made_by(NewStep& step, TensorId t, const CopyKey& k) {
  const auto [copy, is_new] = live_.try_emplace(k);
  if (is_new) {
    copy->buffer = new_buffer(t, k);
    step.allocates.push_back(copy->buffer);
  }
  return {copy, is_new};
}

Copy& LiveCopies::made_by(NewStep& step, TensorId t, const CopyKey& k) {
  Copy& made = *live_.try_emplace(k).first;
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

void LiveCopies::hold(TensorId t, Copy& copy, PartId by) const {
  if (per_micro_batch(graph_[t].kind)) copy.hold(by);
}

Seconds LiveCopies::duration_at(MemoryId host, OpId op) const {
  if (const std::optional<Seconds> seconds = seconds_on_host(problem_, op, host)) return *seconds;
  throw CannotLower{"platform '" + problem_.platform.name + "' does not state how fast '" +
                    problem_.platform[host].name + "' computes '" + graph_[op].name + "'"};
}

// --- steps

void LiveCopies::expect(std::size_t steps) {
  issued_.reserve(steps);
  builder_.expect(steps);
}

StepId LiveCopies::add(const NewStep& step) {
  count_issued({step.stream, step.kind, expected_of(step)});
  return builder_.add(step);
}

LiveCopies::Expected LiveCopies::expected_of(const NewStep& step) {
  Expected made;
  if (step.stream.index < stream_ends_.size()) made.start = stream_ends_[step.stream.index];
  for (std::size_t speed = 0; speed < link_speeds; ++speed) {
    for (const StepId wait : step.waits) {
      made.start[speed] = std::max(made.start[speed], issued_[wait.index].expected.end[speed]);
    }
    Seconds takes = step.work.seconds;
    if (step.work.is_transfer()) {
      const Route& route = *known_routes_[step.work.route.index];
      const std::size_t sharing = speed == 0 ? 1 : problem_.platform.devices.size();
      takes += route.latency + static_cast<double>(sharing) * (step.work.bytes / route.bandwidth);
    }
    made.end[speed] = made.start[speed] + static_cast<float>(takes.value);
  }
  return made;
}

void LiveCopies::count_issued(const Issued& step) {
  if (step.stream.index >= stream_ends_.size()) stream_ends_.resize(step.stream.index + 1);
  stream_ends_[step.stream.index] = step.expected.end;
  issued_.push_back(step);
}

/// Whether a step is expected to end before another starts, at both speeds.
bool LiveCopies::ends_before(StepId step, StepId other) const {
  return std::ranges::equal(issued_[step.index].expected.end, issued_[other.index].expected.start,
                            std::ranges::less_equal{});
}

StepId LiveCopies::add_compute(const NewStep& step, DeviceId device) {
  const StepId issued = add(step);
  last_compute_[device.index] = issued;
  return issued;
}

StepId LiveCopies::copy(TensorId t, const CopyKey& from, const CopyKey& to, const Stream& stream, StepKind label) {
  const MemoryId source_memory{from.memory}, target_memory{to.memory};
  refuse_without_route(source_memory, target_memory);
  Copy& source = (*this)[from];
  NewStep step;
  step.kind = label;
  step.stream = builder_.stream(stream.device, stream.way);
  step.micro_batch = to.micro_batch;
  step.reads = {source.buffer};
  Copy* there = find(to);
  const BufferId target = there == nullptr ? new_buffer(t, to) : there->buffer;
  step.work = {.seconds = {}, .bytes = builder_[target].bytes, .route = builder_.route(source_memory, target_memory)};
  known_routes_.resize(std::max(known_routes_.size(), std::size_t{step.work.route.index} + 1));
  std::optional<Route>& route = known_routes_[step.work.route.index];
  if (!route) route = routes_.between(source_memory, target_memory);
  (there == nullptr ? step.allocates : step.writes) = {target};
  if (there != nullptr) step.waits.assign(there->users.begin(), there->users.end());
  source.add_makers(step.waits);
  const std::optional<StepId> last = last_compute(stream.device);
  if (label != StepKind::send && last) step.waits.push_back(*last);
  if (label == StepKind::prefetch) {
    const std::vector<StepId>& waits = waits_[stream.device.index];
    step.waits.insert(step.waits.end(), waits.begin(), waits.end());
  }
  const StepId issued = add(step);
  source.users.push_back(issued);
  if (there == nullptr) {
    there = live_.try_emplace(to).first;
    there->buffer = target;
    there->overwritten(issued);
  } else {
    there->overwritten(issued);
  }
  carry_approximation(source, *there);
  if (!released_.empty()) released_.erase(to);
  return issued;
}

void LiveCopies::all_reduce(std::span<const TensorId> gradients, std::span<const DeviceId> devices) {
  std::vector<Copy*> sums;
  std::vector<Rank> ranks;
  for (std::size_t d = 0; d < devices.size(); ++d) {
    const MemoryId here = memory_of(devices[d]), next = memory_of(devices[(d + 1) % devices.size()]);
    refuse_without_route(here, next);
    Rank& rank = ranks.emplace_back(Rank{devices[d], {}, {}});
    for (const TensorId gradient : gradients) {
      for (CopyKey k = key(gradient, 0, here); k.chunk < chunks_of(gradient); ++k.chunk) {
        Copy* sum = sums.emplace_back(&(*this)[k]);
        rank.buffers.push_back(sum->buffer);
        rank.after.insert(rank.after.end(), sum->users.begin(), sum->users.end());
      }
    }
  }
  const std::vector<StepId> flows = ring_all_reduce(builder_, problem_.platform, ranks, Collectives::aggregated);
  NewStep sum;  // of which the flows are taken to be parts without duration
  for (const Rank& rank : ranks) sum.waits.insert(sum.waits.end(), rank.after.begin(), rank.after.end());
  while (issued_.size() < builder_.steps()) {
    sum.stream = builder_.stream_of(id_at<StepId>(issued_.size()));
    count_issued({sum.stream, StepKind::collective, expected_of(sum)});
  }
  const std::size_t values = ranks[0].buffers.size();
  for (std::size_t first = 0; first < values; ++first) {  // of one value: on each device
    const Copy* lossy = nullptr;
    for (std::size_t i = first; i < sums.size(); i += values) {
      if (lossy == nullptr && sums[i]->lossy) lossy = sums[i];
    }
    for (std::size_t i = first; i < sums.size(); i += values) {
      if (lossy != nullptr) carry_approximation(*lossy, *sums[i]);
      sums[i]->maker = flows.back();
      sums[i]->flows = flows;
      sums[i]->users.clear();
      for (const StepId flow : flows) sums[i]->users.push_back(flow);
    }
  }
}

void LiveCopies::refuse_without_route(MemoryId from, MemoryId to) {
  const auto [place, fresh] = reachable_.try_emplace({from, to}, false);
  if (fresh) place->second = routes_.between(from, to).has_value();
  if (place->second) return;
  throw CannotLower{"platform '" + problem_.platform.name + "' has no route from '" + problem_.platform[from].name +
                    "' to '" + problem_.platform[to].name + "'"};
}

void LiveCopies::wait_for_copy(const CopyKey& at, const CopyKey& on_device, DeviceId device) {
  const Copy& copy = (*this)[at];
  EXPECTS(copy.maker);
  std::vector<StepId>& waits = waits_[device.index];
  copy.add_makers(waits);
  const auto released = released_.find(on_device);
  if (released != released_.end()) waits.push_back(released->second);
}

void LiveCopies::drop(const CopyKey& k, DeviceId device) {
  Copy& copy = (*this)[k];
  EXPECTS(!copy.users.empty());
  StepId last = *std::ranges::max_element(copy.users);
  if (const std::optional<Way> way = way_of_release(copy, last)) {
    NewStep release;
    release.kind = StepKind::offload;
    release.stream = builder_.stream(device, *way, 1);
    release.micro_batch = k.micro_batch;
    release.waits.assign(copy.users.begin(), copy.users.end());
    last = add(release);
    released_[k] = last;
  } else {
    for (const StepId user : copy.users) {
      if (issued_[user.index].stream != issued_[last.index].stream) builder_.wait(last, user);
    }
  }
  builder_.free_after(last, copy.buffer);
  live_.erase(k);
}

/// Of the stream on which a step of its own frees the copy, where its last user should not wait for the others.
std::optional<Way> LiveCopies::way_of_release(const Copy& copy, StepId last) const {
  const auto way_of = [&](StepId user) { return builder_[issued_[user.index].stream].way; };
  const bool computes = way_of(last) == way::compute;
  std::optional<Way> way;  // of the first offload, or of the last one that would be waited for
  for (const StepId user : copy.users) {
    if (issued_[user.index].stream == issued_[last.index].stream) continue;
    if (computes && issued_[user.index].kind == StepKind::offload) return way_of(user);
    if (!ends_before(user, last)) way = way_of(computes ? user : last);
  }
  return way == way::compute ? std::nullopt : way;
}

}  // namespace plimsoll
