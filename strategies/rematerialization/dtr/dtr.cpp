#include "strategies/rematerialization/dtr/dtr.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "sim/core/expects.h"
#include "sim/io/input_error.h"
#include "strategies/api/front.h"
#include "strategies/models/chain_pass.h"
#include "strategies/rematerialization/dtr/dtr_banishing.h"
#include "strategies/rematerialization/dtr/dtr_pool.h"
#include "strategies/rematerialization/dtr/dtr_runtime.h"

namespace plimsoll {
namespace {

constexpr double nanoseconds_in_second = 1e9;

class Writer {
 public:
  Writer(const Problem& problem, const Part& part)
      : problem_(problem), graph_(problem.graph), part_(part), on_storage_(graph_.storages) {}

  PartLog run() {
    find_shared_storages();
    find_fixed_ops();
    find_ends();
    logged_.resize(graph_.tensors.size());
    base_.resize(graph_.storages);
    for (std::size_t k = 0; k < part_.ops.size(); ++k) write(k);
    return std::move(result_);
  }

 private:
  bool lives_here(TensorId t) const { return per_micro_batch(graph_[t].kind); }

  void find_shared_storages() {
    overwritten_.resize(graph_.tensors.size(), false);
    std::vector<bool> seen(graph_.tensors.size(), false);
    const auto note = [&](TensorId t) {
      if (!seen[t.index] && lives_here(t)) ++on_storage_[graph_[t].storage.index];
      seen[t.index] = true;
    };
    for (const OpId id : part_.ops) {
      const Op& op = graph_[id];
      std::ranges::for_each(op.inputs, note);
      std::ranges::for_each(op.outputs, note);
      for (const TensorId t : op.mutates) overwritten_[t.index] = true;
    }
  }

  bool must_not_repeat(const Op& op) const {
    const auto shares = [&](TensorId t) { return lives_here(t) && on_storage_[graph_[t].storage.index] > 1; };
    const auto is_gradient = [&](TensorId t) { return graph_[t].kind == TensorKind::parameter_gradient; };
    const auto is_overwritten = [&](TensorId t) { return overwritten_[t.index]; };
    return !op.recomputable || !op.mutates.empty() || std::ranges::any_of(op.outputs, is_gradient) ||
           std::ranges::any_of(op.outputs, shares) || std::ranges::any_of(op.inputs, is_overwritten);
  }

  /// Backward ops that read what cannot be computed again are not computed again either: else every gradient before
  /// them would have to stay.
  void find_fixed_ops() {
    std::vector<bool> fixed_backward(graph_.tensors.size(), false);
    for (const OpId id : part_.ops) {
      const Op& op = graph_[id];
      bool fixed = must_not_repeat(op);
      if (is_backward(op.phase)) {
        fixed |= std::ranges::any_of(op.inputs, [&](TensorId t) { return fixed_backward[t.index]; });
      }
      fixed_.push_back(fixed);
      if (!fixed || !is_backward(op.phase)) continue;
      for (const TensorId t : op.outputs) fixed_backward[t.index] = true;
    }
  }

  /// last_use_: the last op of the part that reads or makes it. needed_until_: the same over all that may be computed
  /// from it again.
  void find_ends() {
    last_use_.resize(graph_.tensors.size(), 0);
    producer_fixed_.resize(graph_.tensors.size(), true);  // inputs
    for (std::size_t k = 0; k < part_.ops.size(); ++k) {
      const Op& op = graph_[part_.ops[k]];
      for (const TensorId t : op.inputs) last_use_[t.index] = k;
      for (const TensorId t : op.outputs) {
        last_use_[t.index] = k;
        producer_fixed_[t.index] = fixed_[k];
      }
    }
    needed_until_ = last_use_;
    for (std::size_t k = part_.ops.size(); k-- > 0;) {
      if (fixed_[k]) continue;
      const Op& op = graph_[part_.ops[k]];
      std::size_t until = k;
      for (const TensorId t : op.outputs) until = std::max(until, needed_until_[t.index]);
      for (const TensorId t : op.inputs) needed_until_[t.index] = std::max(needed_until_[t.index], until);
    }
    ends_at_.resize(part_.ops.size());
    for (std::uint32_t t = 0; t < graph_.tensors.size(); ++t) {
      if (!lives_here({t})) continue;
      ends_at_[producer_fixed_[t] ? needed_until_[t] : last_use_[t]].push_back({t});
    }
  }

  TensorId add_tensor(TensorId t, Bytes bytes) {
    OpLog& log = result_.log;
    std::optional<TensorId>& base = base_[graph_[t].storage.index];
    log.tensors.push_back({graph_[t].name, base ? Bytes{} : bytes, base});
    const auto made = id_at<TensorId>(log.tensors.size() - 1);
    logged_[t.index] = made;
    if (lives_here(t) && on_storage_[graph_[t].storage.index] > 1 && !base) base = made;
    return made;
  }

  void add_call(LoggedCall call, std::optional<OpId> op) {
    result_.log.events.push_back({OpLog::EventKind::call, static_cast<std::uint32_t>(result_.log.calls.size())});
    result_.log.calls.push_back(std::move(call));
    result_.op_of.push_back(op);
  }

  void bring_in(TensorId input) {
    LoggedCall call;
    call.name = graph_[input].name;
    call.results = {add_tensor(input, graph_[input].bytes)};
    call.keep = Keep::until_released;
    add_call(std::move(call), std::nullopt);
  }

  /// Bytes of a parameter gradient count where it appears. With several micro-batches it is taken as there before.
  bool appears(TensorId gradient) {
    if (problem_.gradients != Gradients::fresh || problem_.micro_batches > 1) return false;
    bool& made = made_.try_emplace(gradient.index, false).first->second;
    return !std::exchange(made, true);
  }

  void write(std::size_t k) {
    const Op& op = graph_[part_.ops[k]];
    LoggedCall call;
    call.name = op.name;
    call.phase = op.phase;
    call.keep = fixed_[k] ? Keep::until_released : Keep::evictable;
    const Seconds duration = duration_on(problem_, part_.ops[k], part_.device, Saving::keep);
    call.nanoseconds = std::llround(duration.value * nanoseconds_in_second);
    call.workspace = op.workspace;
    if (problem_.micro_batches > 1 || problem_.gradients != Gradients::fresh) {
      call.workspace = std::max(call.workspace, op.accumulate_workspace.value_or(op.workspace));
    }
    for (const TensorId t : op.inputs) {
      if (!lives_here(t)) continue;
      if (!logged_[t.index]) bring_in(t);
      call.arguments.push_back(*logged_[t.index]);
    }
    for (const TensorId t : op.outputs) {
      if (!lives_here(t) && graph_[t].kind != TensorKind::parameter_gradient) continue;
      call.results.push_back(add_tensor(t, lives_here(t) || appears(t) ? graph_[t].bytes : Bytes{}));
    }
    if (call.results.empty()) {  // the log knows a call by its results
      result_.log.tensors.push_back({op.name, {}, {}});
      call.results.push_back(id_at<TensorId>(result_.log.tensors.size() - 1));
    }
    add_call(std::move(call), part_.ops[k]);
    for (const TensorId t : ends_at_[k]) {
      if (logged_[t.index]) result_.log.events.push_back({OpLog::EventKind::release, logged_[t.index]->index});
    }
  }

  const Problem& problem_;
  const Graph& graph_;
  const Part& part_;
  PartLog result_;
  std::vector<std::uint32_t> on_storage_;             // tensors of the part, by storage
  std::vector<bool> overwritten_, producer_fixed_;    // by tensor
  std::vector<bool> fixed_;                           // by place in the part
  std::vector<std::size_t> last_use_, needed_until_;  // by tensor: places in the part
  std::vector<std::vector<TensorId>> ends_at_;        // by place in the part
  std::vector<std::optional<TensorId>> logged_;       // by tensor
  std::vector<std::optional<TensorId>> base_;         // by storage that several tensors share: its first
  std::map<std::uint32_t, bool> made_;                // parameter gradients
};

struct DtrStrategyOptions {
  DtrHeuristic heuristic = DtrHeuristic::dtr;
  bool banishes = false;
  std::uint64_t seed = 0;
};

constexpr std::uint32_t dtr_levels = 40;
constexpr std::int64_t thrash_limit = 10;  // rematerialisation may take nine times the model's own time

/// What the largest call needs: below it no run succeeds.
Bytes largest_call(const OpLog& log) {
  Bytes largest;
  for (const LoggedCall& call : log.calls) {
    Bytes bytes = call.workspace;
    for (const TensorId t : call.results) bytes += log[t].bytes;
    largest = std::max(largest, bytes);
  }
  return largest;
}

/// The calls of a run as a tape. A forward whose inner tensors nobody reads before it runs again keeps nothing, and
/// every value dies after its last use before it is made anew: what DTR evicts later than that only took room.
Tape tape_of(const Graph& graph, const PartLog& part, const DtrRun& run) {
  Tape tape;
  std::vector<std::uint8_t> read_later(graph.tensors.size(), 0);
  for (std::size_t k = run.calls.size(); k-- > 0;) {
    const std::optional<OpId> id = part.op_of[run.calls[k].index];
    if (!id) continue;
    const Op& op = graph[*id];
    const bool keeps =
        op.saved.empty() || std::ranges::any_of(op.saved, [&](TensorId t) { return read_later[t.index]; });
    tape.actions.push_back(plimsoll::run(*id, keeps ? Saving::keep : Saving::nothing));
    for (const TensorId t : op.outputs) read_later[t.index] = 0;
    for (const TensorId t : op.inputs) read_later[t.index] = 1;
  }
  std::ranges::reverse(tape.actions);
  return with_drops(graph, std::move(tape));
}

/// Runs at equally spaced budgets from that of the run without a limit down to the largest call, each with the tape
/// that it leaves. DTR is not monotone; the best of a fixed set of runs is.
Plans dtr_plans(const PartTask& task, const DtrStrategyOptions& options, const Tape*) {
  if (task.partition.parts.size() > 1 || task.in_flight > 1) {
    throw InputError("dtr: works on one device and the whole graph only");
  }
  const Part& part = task.part();
  const PartLog log = part_log(task.problem, part);
  DtrOptions run_options;
  run_options.heuristic = options.heuristic;
  const bool banishes = options.banishes;
  if (banishes && !can_banish(run_options.heuristic)) {
    throw InputError("dtr: release=banish works with heuristic=local, lru, size or random; found '" +
                     std::string(written(options.heuristic)) + "'");
  }
  const auto run_log = banishes ? run_dtr_banishing : run_dtr;
  run_options.seed = options.seed;
  run_options.rematerialization_limit = (thrash_limit - 1) * dtr_baseline(log.log).compute;
  Front plans;
  const auto add = [&](const DtrRun& run) {
    Tape tape = tape_of(task.problem.graph, log, run);
    const TapeCost cost = tape_cost(task.problem, part, tape);
    plans.add(PlannedTape{std::move(tape), cost.peak, cost.makespan, std::nullopt});
  };
  const DtrRun free = run_log(log.log, run_options);
  EXPECTS(free.end == DtrEnd::finished);
  add(free);
  std::vector<Bytes> budgets = budgets_between(largest_call(log.log), free.peak, dtr_levels);
  budgets.erase(std::unique(budgets.begin(), budgets.end()), budgets.end());
  std::reverse(budgets.begin(), budgets.end());
  for (const Bytes budget : budgets) {
    run_options.budget = budget;
    const DtrRun run = run_log(log.log, run_options);
    if (run.end == DtrEnd::finished) add(run);
  }
  return {std::move(plans), "every run of dtr needs more memory"};
}

constexpr auto dtr_options = options_of<DtrStrategyOptions>(
    option_of<&DtrStrategyOptions::heuristic>({
        .name = "heuristic",
        .words = "dtr dtr_eq local lru size msps random",
        .help = "cost of evicting a tensor, as in the paper: dtr is h_DTR, dtr_eq its approximation by equivalence "
                "classes, local leaves the neighbours out",
    }),
    option_of<&DtrStrategyOptions::banishes>({
        .name = "release",
        .words = "evict banish",
        .help =
            "what happens to a tensor that is no longer referenced: evict: it may be recomputed; banish: it is freed "
            "for good, and tensors computed from it are never evicted (only with heuristic=local, lru, size or random)",
    }),
    option_of<&DtrStrategyOptions::seed>({
        .name = "seed",
        .least = 0,
        .most = 1'000'000'000,
        .help = "seed of heuristic=random",
    }));

}  // namespace

PartLog part_log(const Problem& problem, const Part& part) {
  return Writer(problem, part).run();
}

// The strategy `dtr`: dynamic tensor rematerialization (dtr_runtime.h) of a graph, run at fixed levels of memory; the
// plan is the fastest of these runs that fits.
extern constinit const StrategyInfo dtr_strategy{
    .name = "dtr",
    .family = Family::rematerialization,
    .summary =
        "dynamic tensor rematerialization: when room is needed, evicts the tensor that is cheapest by a heuristic, "
        "online",
    .source =
        "Kirisame, Lyubomirsky, Haan, Brennan, He, Roesch, Chen, Tatlock, 'Dynamic Tensor Rematerialization', 2021",
    .options = dtr_options,
    .kind = planned_at_once<DtrStrategyOptions, dtr_plans>(),
    .effort = {.stages = 300, .ops = 5000},
};

}  // namespace plimsoll
