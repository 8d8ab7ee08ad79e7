#include "sim/core/lowering.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "sim/core/expects.h"
#include "sim/core/schedule_builder.h"

namespace plimsoll {
namespace {

/// A storage, or a chunk of it, of one micro-batch and replica in one memory.
struct Key {
  std::uint32_t storage = 0, micro_batch = 0, replica = 0, memory = 0, chunk = 0;
  bool arrived = false;  ///< another device's part of a gradient, beside the sum of those before it
  friend bool operator==(const Key&, const Key&) = default;
};

struct KeyHash {
  std::size_t operator()(const Key& k) const {
    const std::uint64_t a = (std::uint64_t{k.storage} << 32U) ^ k.micro_batch;
    const std::uint64_t b = (std::uint64_t{k.replica} << 32U) ^ k.memory;
    return std::hash<std::uint64_t>{}(a * 0x9E3779B97F4A7C15ULL ^ b ^ (std::uint64_t{k.chunk} << 48U) ^
                                      (k.arrived ? 1U : 0U));
  }
};

/// A live buffer, who made it and who has used it since.
struct Copy {
  BufferId buffer;
  std::optional<StepId> maker;
  std::vector<StepId> users;
  std::uint32_t holders = 1;  ///< parts on one device that hold it; it dies with the last drop
};

struct StreamOfStep {
  StreamId id;
  StreamKind kind;
};

struct NoRoute {
  std::string why;
};

class Lowering {
 public:
  Lowering(const Problem& problem, const Partition& partition, std::span<const Tape> tapes)
      : problem_(problem), graph_(problem.graph), partition_(partition), tapes_(tapes) {
    chunks_.resize(graph_.storages, 1);
    homes_.resize(graph_.storages);
    for (const Tape& tape : tapes) {
      pieces_.push_back(cut(tape));
      for (const Home& home : tape.homes) homes_[graph_[home.tensor].storage.index] = home;
      for (const Action& action : tape.actions) {
        if (action.chunk.count > 1) chunks_[graph_[action.tensor].storage.index] = action.chunk.count;
      }
    }
    last_compute_.resize(problem.platform.devices.size());
  }

  std::variant<Schedule, std::string> run() {
    try {
      make_resident();
      if (!issue_turns()) return "the devices' orders wait for each other in a circle";
      issue_ends();
    } catch (const NoRoute& none) {
      return none.why;
    }
    Schedule schedule = builder_.finish();
    schedule.trace = graph_.name;
    schedule.platform = problem_.platform.name;
    schedule.micro_batches = problem_.micro_batches;
    schedule.replicas = replicas();
    schedule.budget = problem_.budget;
    schedule.optimizer = problem_.optimizer;
    schedule.states = problem_.states.value_or(States::by_dtype);
    schedule.gradients = problem_.gradients;
    return schedule;
  }

 private:
  const Part& part(PartId id) const { return partition_.parts[id.index]; }
  MemoryId memory_of(DeviceId device) const { return problem_.platform[device].memory; }

  std::uint32_t replicas() const {
    std::uint32_t last = 0;
    for (const Part& part : partition_.parts) last = std::max(last, part.replica);
    return last + 1;
  }

  Key key(TensorId t, std::uint32_t micro_batch, std::uint32_t replica, MemoryId memory) const {
    const bool one_a_micro_batch = per_micro_batch(graph_[t].kind);
    return {graph_[t].storage.index, one_a_micro_batch ? micro_batch : 0, replica, memory.index};
  }

  std::uint32_t chunks_of(TensorId t) const { return chunks_[graph_[t].storage.index]; }

  BufferId new_buffer(TensorId t, const Key& k) {
    const ChunkRange range = range_of(graph_[t].bytes, {k.chunk, chunks_of(t)});
    return builder_.buffer({.tensor = t,
                            .micro_batch = per_micro_batch(graph_[t].kind) ? k.micro_batch : 0,
                            .replica = k.replica,
                            .memory = MemoryId{k.memory},
                            .bytes = range.length,
                            .range_offset = range.offset,
                            .range_length = range.length});
  }

  // --- what is there from the start: parameters and states where they are used, gradients if they exist before

  void make_resident() {
    std::vector<bool> has_first(replicas(), false);
    for (const Part& part : partition_.parts) {
      if (!has_first[part.replica]) {
        for (const TensorId t : unread_parameters(graph_)) make_resident(t, part);
        has_first[part.replica] = true;
      }
      for (const OpId op : part.ops) {
        for (const TensorId t : graph_[op].inputs) {
          if (graph_[t].kind == TensorKind::parameter) make_resident(t, part);
        }
        for (const TensorId t : graph_[op].outputs) {
          if (graph_[t].kind != TensorKind::parameter_gradient) continue;
          if (problem_.gradients == Gradients::existing) make_resident(t, part);
          add_maker(t, part);
        }
      }
    }
    for (const Op& op : graph_.ops) {
      if (op.phase != Phase::update) continue;
      for (const Part* owner : owners_of(op)) {
        for (const TensorId t : op.inputs) {
          const TensorKind kind = graph_[t].kind;
          if (kind == TensorKind::parameter || kind == TensorKind::optimizer_state) make_resident(t, *owner);
        }
      }
    }
  }

  /// The first part of a replica that makes a gradient owns it; parts on other devices make partial gradients.
  void add_maker(TensorId gradient, const Part& part) {
    std::vector<const Part*>& owners = owner_[gradient.index];
    const auto owner = std::ranges::find(owners, part.replica, &Part::replica);
    if (owner == owners.end()) {
      owners.push_back(&part);
      return;
    }
    const auto is_on_its_device = [&](const Part* p) { return p->device == part.device; };
    std::vector<const Part*>& others = partial_[gradient.index];
    if (!is_on_its_device(*owner) && std::ranges::none_of(others, is_on_its_device)) others.push_back(&part);
  }

  void make_resident(TensorId t, const Part& part) {
    const Key k = key(t, 0, part.replica, memory_of(part.device));
    const Home& home = homes_[graph_[t].storage.index];
    if (home.on_device) make_resident(t, k);
    if (home.on_host) make_resident(t, on_host(k, part.device));
    if (home.on_disk) make_resident(t, on_disk(k, part.device));
  }

  void make_resident(TensorId t, const Key& k) {
    const auto [place, fresh] = live_.try_emplace(k);
    if (!fresh) return;
    place->second.buffer = new_buffer(t, k);
    builder_.resident(place->second.buffer);
  }

  std::vector<const Part*> owners_of(const Op& update) const {
    for (const TensorId t : update.inputs) {
      const auto owner = owner_.find(t.index);
      if (owner != owner_.end()) return owner->second;
    }
    return {};
  }

  // --- turns

  struct Place {
    std::size_t turn = 0, action = 0;  ///< the next action, counted from the start of the turn's piece
  };

  bool issue_turns() {
    std::vector<Place> places(partition_.order.size());
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t d = 0; d < places.size(); ++d) moved |= issue_until_blocked(d, places[d]);
    }
    for (std::size_t d = 0; d < places.size(); ++d) {
      if (places[d].turn < partition_.order[d].size()) return false;
    }
    return true;
  }

  bool issue_until_blocked(std::size_t device, Place& place) {
    const std::vector<Turn>& order = partition_.order[device];
    bool moved = false;
    while (place.turn < order.size()) {
      const Turn& turn = order[place.turn];
      const Piece piece = pieces_[turn.part.index][turn.piece];
      for (; piece.first + place.action < piece.last; ++place.action) {
        const Action& action = tapes_[turn.part.index].actions[piece.first + place.action];
        if (action.kind == ActionKind::receive && !arrived(action, turn)) return moved;
        issue(action, turn);
        moved = true;
      }
      ++place.turn;
      place.action = 0;
    }
    return moved;
  }

  bool arrived(const Action& receive, const Turn& turn) const {
    const Part& here = part(turn.part);
    return live_.contains(key(receive.tensor, turn.micro_batch, here.replica, memory_of(here.device)));
  }

  void issue(const Action& action, const Turn& turn) {
    if (action.last_only && turn.micro_batch + 1 < problem_.micro_batches) return;
    const Part& here = part(turn.part);
    const MemoryId memory = memory_of(here.device);
    Key k = action.kind == ActionKind::compute ? Key{} : key(action.tensor, turn.micro_batch, here.replica, memory);
    switch (action.kind) {
      case ActionKind::compute:
        return compute(action, here, turn.micro_batch, tapes_[turn.part.index].backprop);
      case ActionKind::update_on_host:
        return update_on_host(action.op, here);
      case ActionKind::send:
        return send(action, k, here);
      case ActionKind::receive:
      case ActionKind::await_output_gradient:
        return;
      case ActionKind::drop:
      case ActionKind::offload:
      case ActionKind::prefetch:
      case ActionKind::wait:
      case ActionKind::drop_on_host:
      case ActionKind::read_disk:
      case ActionKind::write_disk:
        break;
    }
    const bool whole = action.chunk.count == 1;
    const std::uint32_t first = whole ? 0 : action.chunk.index;
    const std::uint32_t end = whole ? chunks_of(action.tensor) : first + 1;
    for (k.chunk = first; k.chunk < end; ++k.chunk) issue_on_chunk(action, k, here.device);
  }

  void issue_on_chunk(const Action& action, const Key& k, DeviceId device) {
    switch (action.kind) {
      case ActionKind::drop:
        return drop(k, device);
      case ActionKind::offload:
        return offload(action.tensor, k, device);
      case ActionKind::prefetch:
        return prefetch(action.tensor, k, device);
      case ActionKind::wait:
        return wait_for_copy(k, device);
      case ActionKind::drop_on_host:
        return drop(on_host(k, device), device);
      case ActionKind::read_disk:
        add_copy(action.tensor, on_disk(k, device), on_host(k, device), device, StreamKind::disk_to_host,
                 StepKind::prefetch);
        return;
      case ActionKind::write_disk:
        add_copy(action.tensor, on_host(k, device), on_disk(k, device), device, StreamKind::host_to_disk,
                 StepKind::offload);
        return;
      case ActionKind::update_on_host:
      case ActionKind::compute:
      case ActionKind::send:
      case ActionKind::receive:
      case ActionKind::await_output_gradient:
        break;
    }
    EXPECTS(false);  // the others are not on a chunk
  }

  // --- compute

  Copy& copy_of(const Key& k) {
    const auto found = live_.find(k);
    EXPECTS(found != live_.end());
    return found->second;
  }

  StepKind kind_of(OpId op, std::uint32_t micro_batch, std::uint32_t replica) {
    const Key run{op.index, micro_batch, replica, 0};
    if (!ran_.insert(run).second) return StepKind::recompute;
    switch (graph_[op].phase) {
      case Phase::forward:
        return StepKind::forward;
      case Phase::update:
        return StepKind::update;
      case Phase::backward:
      case Phase::backward_input:
      case Phase::backward_weight:
        break;
    }
    return StepKind::backward;
  }

  StepId add(const NewStep& step, StreamKind kind) {
    streams_.push_back({step.stream, kind});
    return builder_.add(step);
  }

  Copy& made_by(NewStep& step, TensorId t, const Key& k) {
    Copy& made = live_[k];
    made.buffer = new_buffer(t, k);
    step.allocates.push_back(made.buffer);
    return made;
  }

  /// What the step reads or changes; the network's input appears with its first reader.
  Copy& read(TensorId t, const Key& k, bool changes, NewStep& step) {
    if (graph_[t].kind == TensorKind::input && !live_.contains(k)) return made_by(step, t, k);
    Copy& copy = copy_of(k);
    std::vector<BufferId>& list = changes ? step.writes : step.reads;
    if (std::ranges::find(list, copy.buffer) == list.end()) list.push_back(copy.buffer);
    if (changes) step.waits.insert(step.waits.end(), copy.users.begin(), copy.users.end());
    return copy;
  }

  void compute(const Action& action, const Part& here, std::uint32_t micro_batch, Backprop backprop) {
    const OpId id = action.op;
    const Saving saving = action.saving;
    const Op& op = graph_[id];
    const MemoryId memory = memory_of(here.device);
    NewStep step;
    step.kind = kind_of(id, micro_batch, here.replica);
    step.stream = builder_.stream(here.device, StreamKind::compute);
    step.op = id;
    step.implementation = action.implementation;
    step.micro_batch = micro_batch;
    step.replica = here.replica;
    step.work.seconds = duration_on(problem_, id, here.device, saving, action.implementation);
    step.waits = std::exchange(waits_[here.device.index], {});

    std::vector<Copy*> used;
    for (const TensorId t : op.inputs) {
      Key k = key(t, micro_batch, here.replica, memory);
      const bool changes = std::ranges::find(op.mutates, t) != op.mutates.end();
      for (; k.chunk < chunks_of(t); ++k.chunk) used.push_back(&read(t, k, changes, step));
    }
    bool makes_gradient = false, new_gradient = false;
    for (const TensorId t : op.outputs) {
      if (saving == Saving::nothing && std::ranges::find(op.saved, t) != op.saved.end()) continue;
      const bool gradient = graph_[t].kind == TensorKind::parameter_gradient;
      makes_gradient |= gradient;
      for (Key k = key(t, micro_batch, here.replica, memory); k.chunk < chunks_of(t); ++k.chunk) {
        const auto found = live_.find(k);
        if (found == live_.end()) {
          new_gradient |= gradient;
          used.push_back(&made_by(step, t, k));
        } else if (gradient) {
          step.writes.push_back(found->second.buffer);
          used.push_back(&found->second);
          if (!found->second.users.empty()) step.waits.push_back(found->second.users.back());
        }
      }
    }
    const bool existed = backprop == Backprop::by_stage
                             ? !new_gradient
                             : micro_batch > 0 || problem_.gradients == Gradients::existing;  // before the call
    step.workspace = workspace(op, saving, makes_gradient && existed, action.implementation, backprop);
    for (const Copy* copy : used) {
      if (copy->maker) step.waits.push_back(*copy->maker);
    }
    const StepId issued = add(step, StreamKind::compute);
    for (Copy* copy : used) {
      if (!copy->maker) copy->maker = issued;
      copy->users.push_back(issued);
    }
    last_compute_[here.device.index] = issued;
  }

  void update_on_host(OpId id, const Part& here) {
    const Op& op = graph_[id];
    NewStep step;
    step.kind = kind_of(id, 0, here.replica);
    step.stream = builder_.stream(here.device, StreamKind::host);
    step.op = id;
    step.replica = here.replica;
    std::vector<Copy*> read, changed;
    for (const TensorId t : op.inputs) {
      const Key k = on_host(key(t, 0, here.replica, memory_of(here.device)), here.device);
      const std::optional<Seconds> seconds = update_seconds_on_host(problem_, id, MemoryId{k.memory});
      EXPECTS(seconds);
      step.work.seconds = *seconds;
      Copy& copy = copy_of(k);
      const bool changes = std::ranges::find(op.mutates, t) != op.mutates.end();
      (changes ? step.writes : step.reads).push_back(copy.buffer);
      (changes ? changed : read).push_back(&copy);
      if (copy.maker) step.waits.push_back(*copy.maker);
      if (changes) step.waits.insert(step.waits.end(), copy.users.begin(), copy.users.end());
    }
    if (const std::optional<StepId> last = last_compute_[here.device.index]) step.waits.push_back(*last);
    const StepId issued = add(step, StreamKind::host);
    for (Copy* copy : read) copy->users.push_back(issued);
    for (Copy* copy : changed) overwritten(*copy, issued);
  }

  /// By a step that waits for all who used it before.
  static void overwritten(Copy& copy, StepId by) {
    copy.maker = by;
    copy.users = {by};
  }

  // --- copies and frees

  StepId add_copy(TensorId t, const Key& from, const Key& to, DeviceId device, StreamKind kind, StepKind label,
                  std::uint32_t index = 0) {
    const Endpoints ends{MemoryId{from.memory}, MemoryId{to.memory}};
    if (!has_route(ends)) {
      throw NoRoute{"platform '" + problem_.platform.name + "' has no route from '" +
                    problem_.platform[ends.from].name + "' to '" + problem_.platform[ends.to].name + "'"};
    }
    Copy& source = copy_of(from);
    NewStep step;
    step.kind = label;
    step.stream = builder_.stream(device, kind, index);
    step.micro_batch = to.micro_batch;
    step.replica = to.replica;
    step.reads = {source.buffer};
    const auto there = live_.find(to);
    const BufferId target = there == live_.end() ? new_buffer(t, to) : there->second.buffer;
    step.work = {.seconds = {}, .bytes = builder_[target].bytes, .route = builder_.route(ends.from, ends.to)};
    (there == live_.end() ? step.allocates : step.writes) = {target};
    if (there != live_.end()) step.waits = there->second.users;
    if (source.maker) step.waits.push_back(*source.maker);
    const std::optional<StepId> last = last_compute_[device.index];
    if (kind != StreamKind::peer && last) step.waits.push_back(*last);
    if (kind == StreamKind::host_to_device || kind == StreamKind::disk_to_host) {
      const std::vector<StepId>& waits = waits_[device.index];
      step.waits.insert(step.waits.end(), waits.begin(), waits.end());
    }
    const StepId issued = add(step, kind);
    source.users.push_back(issued);
    if (there == live_.end()) {
      live_[to] = {.buffer = target, .maker = issued, .users = {issued}};
    } else {
      overwritten(there->second, issued);
    }
    return issued;
  }

  bool has_route(const Endpoints& ends) {
    const auto [place, fresh] = reachable_.try_emplace(Key{ends.from.index, ends.to.index, 0, 0}, false);
    if (fresh) place->second = route_between(problem_.platform, ends.from, ends.to).has_value();
    return place->second;
  }

  Key on_host(Key k, DeviceId device) {
    const std::optional<MemoryId> host = host_memory(problem_.platform, device);
    if (!host) {
      throw NoRoute{"platform '" + problem_.platform.name + "' has no host memory that '" +
                    problem_.platform[device].name + "' can reach"};
    }
    k.memory = host->index;
    return k;
  }

  Key on_disk(Key k, DeviceId device) {
    const std::optional<MemoryId> disk = disk_memory(problem_.platform, device);
    if (!disk) {
      throw NoRoute{"platform '" + problem_.platform.name + "' has no disk behind the host of '" +
                    problem_.platform[device].name + "'"};
    }
    k.memory = disk->index;
    return k;
  }

  void offload(TensorId t, const Key& k, DeviceId device) {
    add_copy(t, k, on_host(k, device), device, StreamKind::device_to_host, StepKind::offload);
  }

  void prefetch(TensorId t, const Key& k, DeviceId device) {
    const Key host = on_host(k, device);
    add_copy(t, host, k, device, StreamKind::host_to_device, StepKind::prefetch);
    released_.erase(k);
    if (!homes_[k.storage].on_host) drop(host, device);
  }

  void wait_for_copy(const Key& k, DeviceId device) {
    auto found = live_.find(on_host(k, device));
    if (found == live_.end()) found = live_.find(k);
    const Copy& copy = found == live_.end() ? copy_of(on_disk(k, device)) : found->second;
    EXPECTS(copy.maker);
    std::vector<StepId>& waits = waits_[device.index];
    waits.push_back(*copy.maker);
    const auto released = released_.find(k);
    if (released != released_.end()) waits.push_back(released->second);
  }

  void send(const Action& action, const Key& k, const Part& here) {
    const Part& there = part(action.peer);
    Key to = k;
    to.memory = memory_of(there.device).index;
    if (to == k) {
      ++copy_of(k).holders;
      return;
    }
    add_copy(action.tensor, k, to, here.device, StreamKind::peer, StepKind::send, there.device.index);
  }

  /// The buffer dies with its last user, which waits for the last user on every other stream. Where that would hold
  /// back a kernel until an offload ends, a step that does nothing else frees it.
  void drop(const Key& k, DeviceId device) {
    Copy& copy = copy_of(k);
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

  // --- after all micro-batches

  void issue_ends() {
    for (const auto& [gradient, parts] : partial_) {
      for (const Part* part : parts) sum_at_owner(TensorId{gradient}, *part);
    }
    for (std::uint32_t p = 0; p < tapes_.size(); ++p) {
      for (const Action& action : tapes_[p].end) issue(action, {PartId{p}, 0, 0});
    }
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      if (graph_.ops[o].phase != Phase::update) continue;
      for (const Part* owner : owners_of(graph_.ops[o])) {
        const auto p = static_cast<std::size_t>(owner - partition_.parts.data());
        if (!tapes_[p].end.empty()) continue;
        compute(plimsoll::compute(id_at<OpId>(o)), *owner, 0, tapes_[p].backprop);
        hand_out(graph_.ops[o], *owner);
      }
    }
  }

  /// Sends a part's partial gradient to the owner, which adds it to its own.
  void sum_at_owner(TensorId gradient, const Part& part) {
    const Part& owner = **std::ranges::find(owner_[gradient.index], part.replica, &Part::replica);
    const Key first = key(gradient, 0, part.replica, memory_of(part.device));
    for (std::uint32_t chunk = 0; chunk < chunks_of(gradient); ++chunk) {
      Key from = first, sum = first;
      from.chunk = sum.chunk = chunk;
      sum.memory = memory_of(owner.device).index;
      if (!live_.contains(from) || !live_.contains(sum)) continue;  // elsewhere: check() misses the contributions
      Key arrived = sum;
      arrived.arrived = true;
      const std::vector<StepId> contributors = copy_of(from).users;
      const StepId sent =
          add_copy(gradient, from, arrived, part.device, StreamKind::peer, StepKind::send, owner.device.index);
      for (const StepId contributor : contributors) builder_.wait(sent, contributor);
      add_up(arrived, sum, owner);
      drop(arrived, owner.device);
      if (problem_.gradients == Gradients::fresh) drop(from, part.device);
    }
  }

  void add_up(const Key& from, const Key& sum, const Part& owner) {
    Copy &source = copy_of(from), &target = copy_of(sum);
    NewStep step;
    step.kind = StepKind::backward;
    step.stream = builder_.stream(owner.device, StreamKind::compute);
    step.replica = owner.replica;
    const OpCost cost{.measured = {}, .flops = Flops{0}, .bytes_moved = 3 * builder_[target.buffer].bytes};
    step.work.seconds = duration(cost, graph_.source, problem_.platform[owner.device]).value_or(Seconds{0});
    step.reads = {source.buffer};
    step.writes = {target.buffer};
    step.waits = target.users;
    for (const Copy* copy : {&source, &target}) {
      if (copy->maker) step.waits.push_back(*copy->maker);
    }
    const StepId issued = add(step, StreamKind::compute);
    source.users.push_back(issued);
    overwritten(target, issued);
    last_compute_[owner.device.index] = issued;
  }

  /// Copies of an updated parameter on other devices of the replica take its new value.
  void hand_out(const Op& update, const Part& owner) {
    for (const TensorId t : update.mutates) {
      if (graph_[t].kind != TensorKind::parameter) continue;
      const Key from = key(t, 0, owner.replica, memory_of(owner.device));
      for (const Part& part : partition_.parts) {
        Key to = key(t, 0, part.replica, memory_of(part.device));
        if (part.replica != owner.replica || to == from || !live_.contains(to) || handed_out_.contains(to)) continue;
        handed_out_.insert(to);
        for (Key source = from; source.chunk < chunks_of(t); to.chunk = ++source.chunk) {
          const StepId updated = copy_of(source).users.back();
          builder_.wait(add_copy(t, source, to, owner.device, StreamKind::peer, StepKind::send, part.device.index),
                        updated);
        }
      }
    }
  }

  const Problem& problem_;
  const Graph& graph_;
  const Partition& partition_;
  std::span<const Tape> tapes_;
  std::vector<std::vector<Piece>> pieces_;  // by part
  std::vector<std::uint32_t> chunks_;       // by storage
  std::vector<Home> homes_;                 // by storage
  ScheduleBuilder builder_;
  std::unordered_map<Key, Copy, KeyHash> live_;
  std::unordered_map<Key, StepId, KeyHash> released_;                  // by which step, where that is its only work
  std::unordered_set<Key, KeyHash> ran_;                               // (op, micro-batch, replica) run before
  std::unordered_map<Key, bool, KeyHash> reachable_;                   // (from, to)
  std::unordered_map<std::uint32_t, std::vector<const Part*>> owner_;  // of a parameter gradient, one a replica
  std::map<std::uint32_t, std::vector<const Part*>> partial_;          // other parts that make a part of it
  std::unordered_set<Key, KeyHash> handed_out_;                        // copies of parameters with their new value
  std::unordered_map<std::uint32_t, std::vector<StepId>> waits_;       // by device: what its next compute waits for
  std::vector<std::optional<StepId>> last_compute_;                    // by device
  std::vector<StreamOfStep> streams_;                                  // by step issued
};

}  // namespace

std::variant<Schedule, std::string> lower(const Problem& problem, const Partition& partition,
                                          std::span<const Tape> tapes) {
  EXPECTS(partition.parts.size() == tapes.size());
  EXPECTS(partition.order.size() <= problem.platform.devices.size());
  return Lowering(problem, partition, tapes).run();
}

}  // namespace plimsoll
