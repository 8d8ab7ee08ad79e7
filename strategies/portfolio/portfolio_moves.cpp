#include "strategies/portfolio/portfolio_moves.h"

#include <algorithm>
#include <utility>

#include "sim/core/tolerance.h"
#include "sim/engine/event/event_engine.h"
#include "sim/lower/lowering.h"
#include "strategies/api/pass.h"
#include "strategies/list.h"

namespace plimsoll {
namespace {

class MoveSearch {
 public:
  MoveSearch(const PartTask& task, PlannedTape start, Bytes budget, std::int64_t trials, std::string_view chunks)
      : task_(task),
        graph_(task.problem.graph),
        best_(std::move(start)),
        budget_(budget),
        trials_(trials),
        offloading_(pass_of(offload_greedy_strategy, {{"chunks", std::string(chunks)}})) {
    std::vector<std::uint32_t> tensors(graph_.storages, 0);
    for (const Tensor& tensor : graph_.tensors) ++tensors[tensor.storage.index];
    for (const Op& op : graph_.ops) {
      const auto is_shared = [&](TensorId t) { return tensors[graph_[t].storage.index] > 1; };
      plain_.push_back(op.mutates.empty() && std::ranges::none_of(op.outputs, is_shared));
    }
  }

  PlannedTape run() {
    if (!best_.tape.end.empty() || !best_.tape.homes.empty()) return std::move(best_);
    while (trials_ > 0 && (moves_something() ? better_copies() : fewer_repetitions())) {
    }
    return std::move(best_);
  }

 private:
  bool moves_something() const { return std::ranges::any_of(best_.tape.actions, leaves); }

  /// Lowered and simulated, if it fits.
  bool try_tape(Tape tape) {
    if (--trials_ < 0) return false;
    const std::variant<Schedule, std::string> made = lower(task_.problem, task_.partition, std::span(&tape, 1));
    const Schedule* schedule = std::get_if<Schedule>(&made);
    if (schedule == nullptr) return false;
    const Platform& platform = task_.problem.platform;
    const Timeline timeline = simulate_event(*schedule, platform);
    const DeviceId device = task_.part().device;
    const MemoryId memory = platform[device].memory;
    const std::optional<MemoryId> host = memory_at(platform, device, place::host);
    if (timeline.peaks[memory.index].bytes > budget_) return false;
    if (host && platform[*host].capacity && timeline.peaks[host->index].bytes > *platform[*host].capacity) return false;
    return take({std::move(tape), timeline.peaks[memory.index].bytes, timeline.makespan, std::nullopt});
  }

  bool take(PlannedTape made) {
    if (!is_below(made.makespan, best_.makespan)) return false;
    best_ = std::move(made);
    return true;
  }

  // --- tapes without copies

  /// Runs of an op after its first, the longest first.
  std::vector<std::size_t> repetitions() const {
    std::vector<bool> ran(graph_.ops.size(), false);
    std::vector<std::size_t> found;
    const std::vector<Action>& actions = best_.tape.actions;
    for (std::size_t a = 0; a < actions.size(); ++a) {
      if (actions[a].kind != ActionKind::run) continue;
      const std::uint32_t op = actions[a].op.index;
      if (ran[op] && plain_[op]) found.push_back(a);
      ran[op] = true;
    }
    const DeviceId device = task_.part().device;
    std::ranges::stable_sort(found, std::greater{}, [&](std::size_t a) {
      return duration_on(task_.problem, actions[a].op, device, actions[a].saving, actions[a].implementation);
    });
    return found;
  }

  /// The tape without that run: what the run before it made stays instead.
  Tape without(std::size_t run) const {
    Tape tape = best_.tape;
    const Action gone = tape.actions[run];
    tape.actions.erase(tape.actions.begin() + static_cast<std::ptrdiff_t>(run));
    for (std::size_t a = run; a-- > 0;) {
      Action& before = tape.actions[a];
      if (before.kind != ActionKind::run || before.op != gone.op) continue;
      if (gone.saving == Saving::keep) before.saving = Saving::keep;
      break;
    }
    while (drop_unread_repetition(tape)) {
    }
    return with_drops(graph_, std::move(tape));
  }

  /// A run that repeats, or is repeated, and of which nothing is read before it runs again or the tape ends.
  bool drop_unread_repetition(Tape& tape) const {
    std::vector<std::uint32_t> runs(graph_.ops.size(), 0);
    for (const Action& action : tape.actions) runs[action.op.index] += action.kind == ActionKind::run ? 1 : 0;
    std::vector<bool> read(graph_.storages, false);
    for (std::size_t a = tape.actions.size(); a-- > 0;) {
      if (tape.actions[a].kind != ActionKind::run) continue;
      const Op& op = graph_[tape.actions[a].op];
      const auto is_read = [&](TensorId t) { return read[graph_[t].storage.index]; };
      if (runs[tape.actions[a].op.index] > 1 && plain_[tape.actions[a].op.index] &&
          std::ranges::none_of(op.outputs, is_read)) {
        tape.actions.erase(tape.actions.begin() + static_cast<std::ptrdiff_t>(a));
        return true;
      }
      for (const TensorId t : op.outputs) {
        const bool omitted =
            tape.actions[a].saving == Saving::nothing && std::ranges::find(op.saved, t) != op.saved.end();
        if (!omitted && plain_[tape.actions[a].op.index]) read[graph_[t].storage.index] = false;
      }
      for (const TensorId t : op.inputs) read[graph_[t].storage.index] = true;
    }
    return false;
  }

  bool fewer_repetitions() {
    for (const std::size_t run : repetitions()) {
      if (trials_ <= 0) return false;
      Tape tape = without(run);
      if (try_tape(tape)) return true;
      if (offload_instead(tape)) return true;
    }
    return false;
  }

  /// The same value moved to the host instead of computed again, as offload_greedy moves it.
  bool offload_instead(const Tape& tape) {
    constexpr std::int64_t price = 5;  // in trials: it simulates several tapes
    const DeviceId device = task_.part().device;
    if (trials_ < price || !memory_at(task_.problem.platform, device, place::host)) return false;
    trials_ -= price;
    const std::optional<Bytes> budget = budget_;
    TapeOutcome made = offloading_.strategy->tapes(task_, offloading_.options, std::span(&budget, 1), &tape).front();
    PlannedTape* planned = std::get_if<PlannedTape>(&made);
    return planned != nullptr && take(std::move(*planned));
  }

  // --- tapes with copies

  static bool is_same(const Action& a, const Action& b) {
    return a.tensor == b.tensor && a.chunk.index == b.chunk.index && a.chunk.count == b.chunk.count;
  }

  static bool moves_it(const Action& a) { return a.kind == ActionKind::copy || a.kind == ActionKind::move; }
  static bool leaves(const Action& a) { return moves_it(a) && a.at == place::device; }
  static bool returns(const Action& a) { return moves_it(a) && a.to == place::device; }

  std::vector<std::size_t> places_of(bool (*is_it)(const Action&)) const {
    std::vector<std::size_t> places;
    for (std::size_t a = 0; a < best_.tape.actions.size(); ++a) {
      if (is_it(best_.tape.actions[a])) places.push_back(a);
    }
    return places;
  }

  /// The tape in which what this offload moves stays, if it comes back.
  std::optional<Tape> with_stay(std::size_t offload) const {
    const std::vector<Action>& actions = best_.tape.actions;
    const auto is_of = [&](const Action& a) { return a.kind != ActionKind::run && is_same(a, actions[offload]); };
    Tape tape = best_.tape;
    tape.actions.resize(offload);
    bool away = true;
    for (std::size_t a = offload + 1; a < actions.size(); ++a) {
      if (away && returns(actions[a]) && is_of(actions[a])) {
        away = false;
        continue;
      }
      const bool goes_with_it = actions[a].kind == ActionKind::wait || (away && actions[a].kind == ActionKind::drop);
      if (goes_with_it && is_of(actions[a])) continue;
      if (!away && leaves(actions[a]) && is_of(actions[a])) {
        tape.actions.insert(tape.actions.end(), actions.begin() + static_cast<std::ptrdiff_t>(a), actions.end());
        return tape;
      }
      tape.actions.push_back(actions[a]);
    }
    if (away) return std::nullopt;
    return tape;
  }

  /// The tape with the prefetch one op earlier or later, if nothing in between concerns its tensor.
  std::optional<Tape> with_shift(std::size_t prefetch, int step) const {
    Tape tape = best_.tape;
    auto at = static_cast<std::ptrdiff_t>(prefetch);
    const auto last = static_cast<std::ptrdiff_t>(tape.actions.size()) - 1;
    const TensorId moved = tape.actions[prefetch].tensor;
    const auto reads_it = [&](const Action& action) {
      if (action.kind != ActionKind::run) return action.tensor == moved;
      const auto is_it = [&](TensorId t) { return graph_[t].storage == graph_[moved].storage; };
      return std::ranges::any_of(graph_[action.op].inputs, is_it) ||
             std::ranges::any_of(graph_[action.op].outputs, is_it);
    };
    for (bool passed = false; !passed; at += step) {
      if (at + step < 0 || at + step > last) return std::nullopt;
      const Action& other = tape.actions[static_cast<std::size_t>(at + step)];
      if (reads_it(other) || other.kind == ActionKind::cut) return std::nullopt;
      passed = other.kind == ActionKind::run;
      std::swap(tape.actions[static_cast<std::size_t>(at)], tape.actions[static_cast<std::size_t>(at + step)]);
    }
    return tape;
  }

  bool better_copies() {
    for (const std::size_t offload : places_of(leaves)) {
      if (trials_ <= 0) return false;
      std::optional<Tape> tape = with_stay(offload);
      if (tape && try_tape(std::move(*tape))) return true;
    }
    for (const std::size_t prefetch : places_of(returns)) {
      for (const int step : {-1, 1}) {
        if (trials_ <= 0) return false;
        std::optional<Tape> tape = with_shift(prefetch, step);
        if (tape && try_tape(std::move(*tape))) return true;
      }
    }
    return false;
  }

  const PartTask& task_;
  const Graph& graph_;
  PlannedTape best_;
  Bytes budget_;
  std::int64_t trials_;
  Pass offloading_;
  std::vector<bool> plain_;  // by op: its outputs are values of their own, overwritten by nobody
};

}  // namespace

PlannedTape improved(const PartTask& task, PlannedTape start, Bytes budget, std::int64_t trials,
                     std::string_view chunks) {
  return MoveSearch(task, std::move(start), budget, trials, chunks).run();
}

}  // namespace plimsoll
