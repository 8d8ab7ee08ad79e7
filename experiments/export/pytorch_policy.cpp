#include "experiments/export/pytorch_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "experiments/export/pytorch_values.h"
#include "sim/engine/event/event_engine.h"
#include "sim/judge/check.h"
#include "sim/lower/lowering.h"

namespace plimsoll {
namespace {

/// What the schedule does that a policy does not.
struct PolicyLosses {
  std::size_t copies = 0, again_and_again = 0, crossing = 0, overwritten = 0, reads_overwritten = 0;
};

/// Forward ops that run again, less those that cannot in a policy: what a stage reads of another one's stays for it,
/// and of ops that write one storage all run again or none: what is kept of it is what the last of them has left there,
/// so that no op that reads what was there before runs again either.
class PolicyChoice {
 public:
  PolicyChoice(const Graph& graph, const Schedule& schedule) : graph_(graph), again_(graph.ops.size(), false) {
    std::vector<std::size_t> runs(graph.ops.size(), 0);
    for (const Step& step : schedule.steps) {
      losses_.copies += step.work.is_transfer() ? 1 : 0;
      if (step.op != no_op && graph[step.op].phase == Phase::forward) ++runs[step.op.index];
    }
    for (std::size_t o = 0; o < runs.size(); ++o) {
      again_[o] = runs[o] > schedule.micro_batches;
      losses_.again_and_again += runs[o] > 2 * std::size_t{schedule.micro_batches} ? 1 : 0;
    }
    keep_crossing();
    while (keep_overwritten() || keep_readers_of_overwritten()) continue;
  }

  bool runs_again(std::size_t op) const { return again_[op]; }
  const PolicyLosses& losses() const { return losses_; }

 private:
  void keep_crossing() {
    std::map<TensorId, std::size_t> maker;
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      for (const TensorId t : graph_.ops[o].outputs) maker.try_emplace(t, o);
    }
    for (const Op& op : graph_.ops) {
      if (op.phase != Phase::forward) continue;
      for (const TensorId t : op.inputs) {
        const auto made = maker.find(t);
        if (made == maker.end() || graph_.ops[made->second].stage == op.stage || !again_[made->second]) continue;
        again_[made->second] = false;
        ++losses_.crossing;
      }
    }
  }

  /// By storage: the ops of the forward that write it, in order.
  std::map<StorageId, std::vector<std::size_t>> writers() const {
    std::map<StorageId, std::vector<std::size_t>> writers;
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      if (graph_.ops[o].phase != Phase::forward) continue;
      for (const TensorId t : graph_.ops[o].outputs) writers[graph_[t].storage].push_back(o);
    }
    return writers;
  }

  /// Whether that changes anything.
  bool keep(std::size_t op, std::size_t& lost) {
    if (!again_[op]) return false;
    again_[op] = false;
    ++lost;
    return true;
  }

  bool keep_overwritten() {
    bool changed = false;
    for (const auto& [storage, ops] : writers_) {
      if (std::ranges::all_of(ops, [&](std::size_t o) { return again_[o]; })) continue;
      for (const std::size_t o : ops) changed |= keep(o, losses_.overwritten);
    }
    return changed;
  }

  bool keep_readers_of_overwritten() {
    bool changed = false;
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      for (const TensorId t : graph_.ops[o].inputs) {
        const auto written = writers_.find(graph_[t].storage);
        if (written == writers_.end() || again_[written->second.back()]) continue;
        const std::vector<TensorId>& last = graph_.ops[written->second.back()].outputs;
        if (std::ranges::find(last, t) == last.end()) changed |= keep(o, losses_.reads_overwritten);
      }
    }
    return changed;
  }

  const Graph& graph_;
  std::vector<bool> again_;
  std::map<StorageId, std::vector<std::size_t>> writers_ = writers();
  PolicyLosses losses_;
};

/// All forwards; then, before the first backward op of a stage, its forward ops that run again.
Tape tape_of_policy(const Graph& graph, const PolicyChoice& choice) {
  Tape tape;
  std::map<std::uint32_t, std::vector<OpId>> of_stage;
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    if (op.phase == Phase::update) continue;
    if (is_backward(op.phase)) {
      if (auto waiting = of_stage.extract(op.stage)) {
        for (const OpId again : waiting.mapped()) tape.actions.push_back(run(again));
      }
    }
    tape.actions.push_back(run(id_at<OpId>(o), choice.runs_again(o) ? Saving::nothing : Saving::keep));
    if (choice.runs_again(o)) of_stage[op.stage].push_back(id_at<OpId>(o));
  }
  return with_drops(graph, std::move(tape));
}

struct PolicyCost {
  Seconds makespan;
  Bytes peak;
};

PolicyCost cost_of(const Problem& problem, const Tape& tape) {
  const Partition partition = one_device(problem.graph, problem.micro_batches, problem.platform.devices.size());
  const std::variant<Schedule, std::string> lowered = lower(problem, partition, std::span(&tape, 1));
  if (const auto* why = std::get_if<std::string>(&lowered)) refuse_for_pytorch(*why);
  const auto& schedule = std::get<Schedule>(lowered);
  const std::vector<Violation> wrong = check(schedule, problem.graph, problem.platform, 1);
  if (!wrong.empty()) refuse_for_pytorch("no policy can do that: " + wrong.front().what);
  const Timeline timeline = simulate_event(schedule, problem.platform);
  return {timeline.makespan, timeline.peaks[problem.platform.devices[0].memory.index].bytes};
}

/// What a second run of an op would do to buffers and random numbers, the trace says by `recomputable`.
void refuse_unless_buffers_known(const Graph& graph) {
  const auto& notes = graph.source.notes;
  if (std::ranges::find(notes, "buffers_changed", &std::pair<std::string, std::string>::first) != notes.end()) return;
  refuse_for_pytorch(fmt::format(
      "the trace '{}' does not say which buffers its ops change (source.buffers_changed): it was measured by "
      "an older exporter",
      graph.name));
}

Json lost_json(const PolicyLosses& losses) {
  Json lost = Json::array();
  const auto say = [&](std::size_t count, const char* what) {
    if (count > 0) lost.push_back(fmt::format("{} {}", count, what));
  };
  say(losses.copies, "copies between device and host: what they move stays on the device");
  say(losses.again_and_again, "ops that run more than twice: they run again once");
  say(losses.crossing, "values that other stages read and that are made again: they stay");
  say(losses.overwritten, "ops on storages that other ops overwrite: they stay");
  say(losses.reads_overwritten, "ops that read what is overwritten later: they stay");
  return lost;
}

}  // namespace

Json pytorch_policy(const Question& question, const Problem& problem, const Answer& answer,
                    const std::string& made_by) {
  const Graph& graph = problem.graph;
  const Json source = pytorch_stages(graph.source, graph.name);
  refuse_unless_buffers_known(graph);
  const PolicyChoice choice(graph, *answer.schedule);
  const PolicyCost remains = cost_of(problem, tape_of_policy(graph, choice));
  Json plan{{"format", "plimsoll.policy.v1"},
            {"made_by", made_by},
            {"trace", graph.name},
            {"platform", problem.platform.name},
            {"strategy", question.strategy.text}};
  if (answer.budget) plan["memory_budget_bytes"] = answer.budget->count;
  plan["predicted"] = {{"makespan_s", answer.metrics->makespan.value}, {"peak_bytes", answer.metrics->peak.count}};
  plan["remains"] = {{"makespan_s", remains.makespan.value}, {"peak_bytes", remains.peak.count}};
  plan["lost"] = lost_json(choice.losses());
  Json& stages = plan["stages"] = Json::array();
  for (std::size_t s = 0; s < source.size(); ++s) {
    Json ops = Json::array();
    bool any = false, all = true;
    for (std::size_t o = 0; o < graph.ops.size(); ++o) {
      if (graph.ops[o].phase != Phase::forward || graph.ops[o].stage != s) continue;
      ops.push_back({{"op", graph.ops[o].kind}, {"save", !choice.runs_again(o)}});
      (choice.runs_again(o) ? any : all) = choice.runs_again(o);
    }
    if (!any) continue;
    stages.push_back({{"name", source[s]["name"]}, {"modules", source[s].value("modules", Json::array())}});
    stages.back()["runs_again"] = all ? "all" : "some";
    stages.back()["ops"] = std::move(ops);
  }
  return plan;
}

}  // namespace plimsoll
