#include "strategies/offloading/updates/placed_updates.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>

#include "sim/core/collective_op.h"
#include "sim/core/expects.h"
#include "sim/engine/event/event_engine.h"
#include "sim/io/input_error.h"
#include "sim/lower/lowering.h"
#include "sim/model/graph_updates.h"
#include "strategies/models/op_sequence.h"

namespace plimsoll {
namespace {

/// What an update reads and changes, by kind.
struct Values {
  std::vector<TensorId> parameters, states, gradients;

  Values(const Graph& graph, OpId update) {
    for (const TensorId t : graph[update].inputs) {
      const TensorKind kind = graph[t].kind;
      if (kind == TensorKind::parameter) parameters.push_back(t);
      if (kind == TensorKind::optimizer_state) states.push_back(t);
      if (kind == TensorKind::parameter_gradient) gradients.push_back(t);
    }
  }
};

/// The position of the last action that makes each parameter gradient.
std::map<TensorId, std::size_t> completions(const Graph& graph, const Tape& tape) {
  std::map<TensorId, std::size_t> last;
  for (std::size_t a = 0; a < tape.actions.size(); ++a) {
    if (tape.actions[a].kind != ActionKind::run) continue;
    for (const TensorId t : graph[tape.actions[a].op].outputs) {
      if (graph[t].kind == TensorKind::parameter_gradient) last[t] = a;
    }
  }
  return last;
}

/// Ranks that train together sum a gradient as soon as it is complete: it is complete when they have.
void add_sums(const Graph& graph, std::map<TensorId, std::size_t>& completed, std::vector<std::vector<Action>>& after) {
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    if (graph.ops[o].phase != Phase::update || !collective_of(graph.ops[o])) continue;
    const std::vector<TensorId> gradients = Values(graph, id_at<OpId>(o)).gradients;
    if (gradients.empty()) continue;  // it hands parameters out
    std::size_t complete = 0;
    for (const TensorId t : gradients) complete = std::max(complete, completed.at(t));
    for (const TensorId t : gradients) completed.at(t) = complete;
    after[complete].push_back(run(id_at<OpId>(o)));
    after[complete].back().last_only = true;
  }
}

/// By parameter: the exchanges that hand it out once it has been updated.
std::map<TensorId, std::vector<OpId>> gathers_of_parameters(const Graph& graph) {
  std::map<TensorId, std::vector<OpId>> gathers;
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    if (graph.ops[o].phase != Phase::update || !collective_of(graph.ops[o])) continue;
    for (const TensorId t : Values(graph, id_at<OpId>(o)).parameters) gathers[t].push_back(id_at<OpId>(o));
  }
  return gathers;
}

void gradient_leaves(const Problem& problem, TensorId gradient, std::vector<Action>& after) {
  after.push_back(along(way::device_to_host, ActionKind::copy, gradient));
  after.back().last_only = true;
  if (problem.gradients == Gradients::existing) return;
  after.push_back(on_tensor(ActionKind::drop, gradient));
  after.back().last_only = true;
}

/// `after` is by action.
std::vector<Action> with_actions_after(const std::vector<Action>& actions,
                                       const std::vector<std::vector<Action>>& after) {
  std::vector<Action> all;
  for (std::size_t a = 0; a < actions.size(); ++a) {
    all.push_back(actions[a]);
    all.insert(all.end(), after[a].begin(), after[a].end());
  }
  return all;
}

class UpdateTape {
 public:
  UpdateTape(const Problem& problem, Tape tape, const UpdateCopies& copies)
      : problem_(problem),
        graph_(problem.graph),
        copies_(copies),
        completed_(completions(graph_, tape)),
        gathers_(gathers_of_parameters(graph_)),
        after_(tape.actions.size()),
        tape_(std::move(tape)) {
    add_sums(graph_, completed_, after_);
    for (const Home& home : tape_.homes) {
      if (!home.has(place::device)) last_use_[graph_[home.tensor].storage] = 0;
    }
    for (std::size_t a = 0; a < tape_.actions.size(); ++a) {
      if (tape_.actions[a].kind != ActionKind::run) continue;
      for (const TensorId t : graph_[tape_.actions[a].op].inputs) {
        if (is_streamed(t)) last_use_[graph_[t].storage] = a;
      }
    }
  }

  Tape made(std::span<const UpdateGroup> groups) && {
    for (const UpdateGroup& group : groups) {
      for (const OpId op : group.ops) live_at_home(Values(graph_, op), group.site);
    }
    prefetch_next_streamed(groups);
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const bool turns = g > 0 && groups[g].site == UpdateSite::streamed && copies_.takes_turns;
      if (turns && groups[g - 1].site == UpdateSite::host) wait_for_host(groups[g - 1]);
      for (const OpId op : groups[g].ops) act(op, groups[g].site);
      if (groups[g].site != UpdateSite::streamed) continue;
      states_leave(groups[g]);
      prefetch_next_streamed(groups.subspan(g + 1));
    }
    tape_.actions = with_actions_after(tape_.actions, after_);
    return std::move(tape_);
  }

 private:
  void live_at_home(const Values& values, UpdateSite site) {
    const bool disk = site == UpdateSite::disk;
    if (site == UpdateSite::device) return;
    const MemoryId home = disk ? place::disk : place::host;
    for (const TensorId t : values.states) tape_.homes.push_back({t, {home}});
    if (site == UpdateSite::streamed) return;
    for (const TensorId t : values.parameters) {
      if (!is_streamed(t)) tape_.homes.push_back({t, {place::device, home}});
    }
  }

  /// The device has it only for its uses.
  bool is_streamed(TensorId t) const { return last_use_.contains(graph_[t].storage); }

  /// New parameters return to the device where that is a home of theirs: copied, or moved, where the host is none.
  void parameters_return(const Values& values, ActionKind kind) {
    for (const TensorId t : values.parameters) {
      if (!is_streamed(t)) tape_.end.push_back(along(way::host_to_device, kind, t));
    }
  }

  /// What the host has updated a share of is made whole on the device; what is at home elsewhere comes for that alone.
  void hand_out(const Values& values) {
    for (const TensorId t : values.parameters) {
      const auto gathers = gathers_.find(t);
      if (gathers == gathers_.end() || !is_streamed(t)) continue;  // what is on the device is gathered in the end
      tape_.end.push_back(along(way::host_to_device, ActionKind::copy, t));
      for (const OpId gather : gathers->second) tape_.end.push_back(run(gather));
      tape_.end.push_back(along(way::device_to_host, ActionKind::copy, t));
      tape_.end.push_back(on_tensor(ActionKind::drop, t));
    }
  }

  void copy_at_end(Way way, std::span<const TensorId> tensors) {
    for (const TensorId t : tensors) tape_.end.push_back(along(way, ActionKind::copy, t));
  }

  void drop_at_end(MemoryId at, std::span<const TensorId> tensors) {
    for (const TensorId t : tensors) tape_.end.push_back(on_copy_at(at, ActionKind::drop, t));
  }

  /// The states of the next streamed group come in while the host works on the groups before it.
  void prefetch_next_streamed(std::span<const UpdateGroup> rest) {
    const auto next = std::ranges::find(rest, UpdateSite::streamed, &UpdateGroup::site);
    if (next == rest.end()) return;
    for (const OpId op : next->ops) copy_at_end(way::host_to_device, Values(graph_, op).states);
  }

  void wait_for_host(const UpdateGroup& group) {
    const Values values(graph_, group.ops.back());
    tape_.end.push_back(on_copy_at(place::host, ActionKind::wait, values.parameters.back()));
  }

  void states_leave(const UpdateGroup& group) {
    for (const OpId op : group.ops) {
      const Values values(graph_, op);
      copy_at_end(way::device_to_host, values.states);
      drop_at_end(place::device, values.states);
    }
  }

  void act(OpId op, UpdateSite site) {
    const Values values(graph_, op);
    switch (site) {
      case UpdateSite::device:
      case UpdateSite::streamed:
        tape_.end.push_back(run(op));
        break;
      case UpdateSite::host:
        gradients_leave(values);
        update_on_host(op, values);
        hand_out(values);
        parameters_return(values, ActionKind::copy);
        drop_at_end(place::host, values.gradients);
        break;
      case UpdateSite::disk:
        gradients_leave(values);
        by_way_of_disk(op, values);
        break;
    }
  }

  /// In the last micro-batch, right after the op that completes them.
  void gradients_leave(const Values& values) {
    for (const TensorId t : values.gradients) gradient_leaves(problem_, t, after_[completed_.at(t)]);
  }

  void update_on_host(OpId op, const Values& values) {
    if (!copies_.overlaps_backward) {
      tape_.end.push_back(run_at(place::host, op));
      return;
    }
    std::size_t complete = 0;
    for (const TensorId t : values.gradients) complete = std::max(complete, completed_.at(t));
    for (const TensorId t : values.parameters) {  // an op that reads the host's copy later wants the old value
      if (is_streamed(t)) complete = std::max(complete, last_use_.at(graph_[t].storage));
    }
    after_[complete].push_back(run_at(place::host, op));
    after_[complete].back().last_only = true;
  }

  void by_way_of_disk(OpId op, const Values& values) {
    std::vector<TensorId> moved = values.parameters;
    moved.insert(moved.end(), values.states.begin(), values.states.end());
    if (written_.size() >= copies_.on_host_at_once) {
      tape_.end.push_back(written_[written_.size() - copies_.on_host_at_once]);
    }
    copy_at_end(way::disk_to_host, moved);
    tape_.end.push_back(run_at(place::host, op));
    hand_out(values);
    copy_at_end(way::host_to_disk, moved);
    parameters_return(values, ActionKind::move);
    for (const TensorId t : values.parameters) {
      if (is_streamed(t)) tape_.end.push_back(on_copy_at(place::host, ActionKind::drop, t));
    }
    drop_at_end(place::host, values.states);
    drop_at_end(place::host, values.gradients);
    // A parameter that returns to the device leaves the host last.
    const bool returns = values.states.empty() && !is_streamed(moved.back());
    written_.push_back(on_copy_at(returns ? place::device : place::disk, ActionKind::wait, moved.back()));
  }

  const Problem& problem_;
  const Graph& graph_;
  const UpdateCopies& copies_;
  std::map<TensorId, std::size_t> completed_;
  std::map<TensorId, std::vector<OpId>> gathers_;
  std::map<StorageId, std::size_t> last_use_;  // of streamed parameters: an action of the tape
  std::vector<std::vector<Action>> after_;     // by action of the tape
  Tape tape_;
  std::vector<Action> written_;  // by update: waits until its values have left the host
};

}  // namespace

std::vector<OpId> updates_by_gradient(const Problem& problem, const Tape& tape) {
  const std::map<TensorId, std::size_t> completed = completions(problem.graph, tape);
  std::vector<std::pair<std::size_t, OpId>> found;
  for (std::size_t o = 0; o < problem.graph.ops.size(); ++o) {
    if (!updates_parameters(problem.graph.ops[o])) continue;
    std::size_t complete = 0;
    for (const TensorId t : Values(problem.graph, id_at<OpId>(o)).gradients) {
      complete = std::max(complete, completed.at(t));
    }
    found.emplace_back(complete, id_at<OpId>(o));
  }
  std::ranges::sort(found);
  std::vector<OpId> updates;
  updates.reserve(found.size());
  for (const auto& [position, op] : found) updates.push_back(op);
  return updates;
}

Tape with_updates(const Problem& problem, Tape tape, std::span<const UpdateGroup> groups, const UpdateCopies& copies) {
  EXPECTS(tape.end.empty());
  return UpdateTape(problem, std::move(tape), copies).made(groups);
}

Tape with_updates_in_backward(const Problem& problem, Tape tape) {
  const Graph& graph = problem.graph;
  std::map<TensorId, std::size_t> completed = completions(graph, tape);
  std::map<StorageId, std::size_t> last_read;  // of parameters
  for (std::size_t a = 0; a < tape.actions.size(); ++a) {
    if (tape.actions[a].kind != ActionKind::run) continue;
    for (const TensorId t : graph[tape.actions[a].op].inputs) {
      if (graph[t].kind == TensorKind::parameter) last_read[graph[t].storage] = a;
    }
  }
  std::vector<std::vector<Action>> after(tape.actions.size());
  add_sums(graph, completed, after);
  for (const OpId op : updates_by_gradient(problem, tape)) {
    const Values values(graph, op);
    std::size_t ready = 0;
    for (const TensorId t : values.gradients) ready = std::max(ready, completed.at(t));
    for (const TensorId t : values.parameters) {
      const auto read = last_read.find(graph[t].storage);
      if (read != last_read.end()) ready = std::max(ready, read->second);
    }
    after[ready].push_back(run(op));
    after[ready].back().last_only = true;
    if (problem.gradients == Gradients::existing) continue;
    for (const TensorId t : values.gradients) {
      after[ready].push_back(on_tensor(ActionKind::drop, t));
      after[ready].back().last_only = true;
    }
  }
  tape.actions = with_actions_after(tape.actions, after);
  return tape;
}

Tape tape_to_update(const PartTask& task, const Tape* before, std::string_view strategy, bool disk) {
  const Platform& platform = task.problem.platform;
  if (task.partition.parts.size() > 1 || task.in_flight > 1) {
    throw InputError(fmt::format("{}: works on one device and the whole graph only", strategy));
  }
  if (before != nullptr && !before->end.empty()) {
    throw InputError(fmt::format("{}: the pass before places the updates already", strategy));
  }
  const DeviceId device = task.part().device;
  const std::optional<MemoryId> host = memory_at(platform, device, place::host);
  if (!host) throw InputError(fmt::format("{}: platform '{}' has no host memory", strategy, platform.name));
  const bool updates = std::ranges::any_of(task.problem.graph.ops, updates_parameters);
  if (updates && !platform[*host].adam) {
    throw InputError(
        fmt::format("{}: platform '{}' does not state how fast the host updates parameters: '{}' has no "
                    "'adam'",
                    strategy, platform.name, platform[*host].name));
  }
  if (disk && !memory_at(platform, device, place::disk)) {
    throw InputError(fmt::format("{}: platform '{}' has no disk behind the host", strategy, platform.name));
  }
  return before != nullptr ? *before : tape_of_ops(task.problem.graph, store_all_ops(task));
}

Tape with_gradients_on_host(const Problem& problem, Tape tape) {
  std::vector<std::vector<Action>> after(tape.actions.size());
  std::map<TensorId, std::size_t> completed = completions(problem.graph, tape);
  add_sums(problem.graph, completed, after);
  for (const auto& [gradient, action] : completed) {
    gradient_leaves(problem, gradient, after[action]);
  }
  tape.actions = with_actions_after(tape.actions, after);
  return tape;
}

PlannedTape simulated(const PartTask& task, Tape tape) {
  PlannedTape planned{std::move(tape), {}, {}, std::nullopt};
  const std::variant<Schedule, std::string> made = lower(task.problem, task.partition, std::span(&planned.tape, 1));
  if (const auto* why = std::get_if<std::string>(&made)) throw InputError(*why);
  const Timeline timeline = simulate_event(std::get<Schedule>(made), task.problem.platform);
  const DeviceId device = task.part().device;
  planned.peak = timeline.peaks[task.problem.platform[device].memory.index].bytes;
  planned.makespan = timeline.makespan;
  return planned;
}

Bytes parameter_bytes(const Problem& problem, OpId update) {
  Bytes bytes;
  for (const TensorId t : problem.graph[update].mutates) {
    if (problem.graph[t].kind == TensorKind::parameter) bytes += problem.graph[t].bytes;
  }
  return bytes;
}

}  // namespace plimsoll
