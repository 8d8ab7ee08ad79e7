#include "tests/strategies/tape_oracle.h"

#include <algorithm>
#include <span>

#include "sim/engine/event/event_engine.h"
#include "sim/lower/lowering.h"
#include "tests/generate/random.h"

namespace plimsoll {
namespace {

bool touches(const Graph& graph, const Action& action, StorageId storage) {
  const auto is_it = [&](TensorId t) { return graph[t].storage == storage; };
  if (action.kind == ActionKind::drop) return is_it(action.tensor);
  const Op& op = graph[action.op];
  return std::ranges::any_of(op.inputs, is_it) || std::ranges::any_of(op.outputs, is_it);
}

/// Whether some other compute stands between two that use it.
bool waits_for_a_use(const PartTask& task, const Tape& plain, StorageId storage) {
  bool used = false, idle = false;
  for (const Action& action : plain.actions) {
    if (action.kind != ActionKind::run) continue;
    const bool uses = touches(task.problem.graph, action, storage);
    if (uses && idle) return true;
    used = used || uses;
    idle = used && !uses;
  }
  return false;
}

}  // namespace

std::vector<TensorId> movable_values(const PartTask& task, const Tape& plain) {
  std::vector<TensorId> values;
  std::vector<bool> seen(task.problem.graph.storages, false);
  for (const Action& action : plain.actions) {
    if (action.kind != ActionKind::run) continue;
    for (const TensorId t : task.problem.graph[action.op].outputs) {
      const Tensor& tensor = task.problem.graph[t];
      if (!per_micro_batch(tensor.kind) || tensor.bytes == Bytes{0} || seen[tensor.storage.index]) continue;
      seen[tensor.storage.index] = true;
      if (waits_for_a_use(task, plain, tensor.storage)) values.push_back(t);
    }
  }
  return values;
}

TapeOracle::TapeOracle(const PartTask& task, Tape plain, std::vector<TensorId> values, int trips)
    : task_(task), plain_(std::move(plain)), trips_(trips) {
  for (const TensorId t : values) {
    Value value{.tensor = t, .needed = {}};
    for (const Action& action : plain_.actions) {
      const bool needed = touches(task.problem.graph, action, task.problem.graph[t].storage);
      if (needed && value.last == 0) value.made = value.needed.size();
      if (needed && action.kind == ActionKind::run) value.last = value.needed.size();
      value.needed.push_back(needed);
    }
    values_.push_back(std::move(value));
  }
  places_.resize(values_.size());
}

bool TapeOracle::try_all(std::size_t most) {
  most_ = tapes_ + most;
  return go_on(0);
}

void TapeOracle::try_random(std::size_t count, std::uint64_t seed) {
  Random random(seed);
  for (std::size_t n = 0; n < count; ++n) {
    places_.assign(values_.size(), {});
    tape_.actions.clear();
    const double stays = random.unit(), eager = random.unit();
    for (Place& place : places_) place.stays = random.chance(stays);
    for (std::size_t next = 0; next < plain_.actions.size(); ++next) {
      while (true) {
        const std::vector<Action> possible = moves(next);
        if (possible.empty() || (can_go_on(next) && !random.chance(eager))) break;
        apply(possible[random.below(static_cast<std::uint32_t>(possible.size()))]);
      }
      tape_.actions.push_back(plain_.actions[next]);
    }
    measure();
  }
  places_.assign(values_.size(), {});
  tape_.actions.clear();
}

std::optional<Seconds> TapeOracle::fastest(Bytes budget) const {
  std::optional<Seconds> best;
  for (const auto& [peak, time] : best_) {
    if (peak <= budget && (!best || time < *best)) best = time;
  }
  return best;
}

bool TapeOracle::can_go_on(std::size_t next) const {
  for (std::size_t v = 0; v < values_.size(); ++v) {
    if (values_[v].needed[next] && places_[v].at == At::host) return false;
  }
  // Nothing is left at the host when the value dies.
  const bool dies = plain_.actions[next].kind == ActionKind::drop;
  for (std::size_t v = 0; v < values_.size(); ++v) {
    if (dies && values_[v].needed[next] && places_[v].at == At::both) return false;
  }
  return true;
}

std::vector<Action> TapeOracle::moves(std::size_t next) const {
  std::vector<Action> moves;
  for (std::size_t v = 0; v < values_.size(); ++v) {
    const Place& value = places_[v];
    const TensorId t = values_[v].tensor;
    if (value.stays || next <= values_[v].made || next > values_[v].last) continue;
    if (value.at == At::device && value.trips < trips_)
      moves.push_back(along(way::device_to_host, ActionKind::copy, t));
    if (value.at == At::both) moves.push_back(on_tensor(ActionKind::drop, t));
    if (value.at == At::host) moves.push_back(along(way::host_to_device, ActionKind::move, t));
    if (!value.waited) moves.push_back(on_copy_at(place::host, ActionKind::wait, t));
  }
  return moves;
}

void TapeOracle::apply(const Action& action) {
  const auto value = std::ranges::find(values_, action.tensor, &Value::tensor);
  Place& v = places_[static_cast<std::size_t>(value - values_.begin())];
  if (action.kind == ActionKind::copy) {
    v.at = At::both;
    v.waited = false;
    ++v.trips;
  } else if (action.kind == ActionKind::drop) {
    v.at = At::host;
  } else if (action.kind == ActionKind::move) {
    v.at = At::device;
    v.waited = true;
  } else {
    v.waited = true;
  }
  tape_.actions.push_back(action);
}

bool TapeOracle::go_on(std::size_t next) {
  if (next == plain_.actions.size()) {
    if (tapes_ == most_) return false;
    measure();
    return true;
  }
  const std::vector<Place> places = places_;
  const std::size_t actions = tape_.actions.size();
  for (const Action& move : moves(next)) {
    apply(move);
    if (!go_on(next)) return false;
    places_ = places;
    tape_.actions.resize(actions);
  }
  if (!can_go_on(next)) return true;
  tape_.actions.push_back(plain_.actions[next]);
  const bool all = go_on(next + 1);
  tape_.actions.resize(actions);
  return all;
}

void TapeOracle::measure() {
  ++tapes_;
  const Schedule made = std::get<Schedule>(lower(task_.problem, task_.partition, std::span(&tape_, 1)));
  const Timeline timeline = simulate_event(made, task_.problem.platform);
  const MemoryId device = task_.problem.platform[task_.part().device].memory;
  const auto [place, fresh] = best_.try_emplace(timeline.peaks[device.index].bytes, timeline.makespan);
  if (!fresh) place->second = std::min(place->second, timeline.makespan);
}

}  // namespace plimsoll
