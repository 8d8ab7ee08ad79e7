#include "experiments/export/pytorch_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "experiments/export/pytorch_values.h"
#include "experiments/study/run.h"
#include "sim/core/expects.h"
#include "sim/engine/event/event_engine.h"
#include "sim/io/input_error.h"
#include "sim/io/json/json.h"
#include "sim/judge/check.h"
#include "sim/lower/lowering.h"
#include "sim/measure/metrics.h"
#include "sim/measure/one_call.h"
#include "strategies/compose/plan.h"
#include "strategies/list.h"

namespace plimsoll {
namespace {

// What of a schedule of an operator graph PyTorch's selective checkpointing can do: which ops of each stage are saved,
// the others run again once, all together, when the backward reaches the stage (plimsoll.policy.v1,
// validate/plan_format.md).

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
  say(losses.reads_overwritten, "ops that read values overwritten later: they stay");
  return lost;
}

/// The policies of a feasible answer for a graph on one device, with what is lost: time and peak of what remains,
/// planned, judged and simulated anew. Throws InputError where the trace does not say which modules its stages are.
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

std::string_view what_is_not_expressed(Family family) {
  switch (family) {
    case Family::transform:
      return "changes the model, and a plan runs the model as it is";
    case Family::hybrid:
      return "splits operators or replicas over ranks, and a plan is for one device";
    case Family::placement:
    case Family::pipelining:
      return "uses several devices, and a plan is for one";
    case Family::compression:
      return "packs values, and a plan keeps, drops, recomputes and copies them";
    case Family::baseline:
    case Family::rematerialization:
    case Family::offloading:
      break;
  }
  return "";
}

void refuse_what_cannot_be_said(const Problem& problem, const Schedule& schedule) {
  for (const Stream& stream : schedule.streams) {
    if (stream.way.computes_elsewhere())
      refuse_for_pytorch("updates run on the host; in PyTorch the optimizer's own step() does them");
    const bool is_host = stream.way == way::device_to_host || stream.way == way::host_to_device;
    if (!stream.way.computes() && !is_host)
      refuse_for_pytorch("values go to a disk, and a plan copies between device and host");
  }
  for (const Step& step : schedule.steps) {
    if (step.implementation != 0) refuse_for_pytorch("the schedule chooses among implementations of ops");
    if (!step.work.is_transfer()) continue;
    for (const BufferId b : schedule.buffers_in(step.reads)) {
      const Tensor& tensor = problem.graph[schedule[b].tensor];
      if (per_micro_batch(tensor.kind)) continue;
      refuse_for_pytorch(
          fmt::format("'{}' is copied ({}), and a plan copies values between stages and what stages save", tensor.name,
                      written(tensor.kind)));
    }
  }
}

/// Something that is alive in a place: values are by storage of the graph, parameter gradients too.
struct AliveValue {
  StorageId storage;
  std::uint32_t micro_batch = 0;
  MemoryId memory;

  friend constexpr auto operator<=>(const AliveValue&, const AliveValue&) = default;
};

/// Walks the steps in the order in which they begin, one after the other, as a caller who waits for each would run
/// them. PyTorch frees whole tensors: what is moved in parts is there until its last part is gone, and from its first
/// part on.
class PlanWriter {
 public:
  PlanWriter(const Problem& problem, const Schedule& schedule, const Timeline& timeline)
      : problem_(problem), schedule_(schedule), timeline_(timeline), values_(pytorch_values(problem)) {
    for (const BufferId b : schedule.resident) {
      if (on_device(schedule[b])) live_ += schedule[b].bytes;
    }
    resident_ = live_;
    for (std::uint32_t i = 0; i < problem.chain->stages.size(); ++i) {
      const Stage& stage = problem.chain->stages[i];
      if (stage.parameter_gradient == Bytes{0}) continue;  // frozen
      for (const std::uint32_t parameter : stage.parameters) {
        if (problem.chain->parameters[parameter].trained) users_[parameter].push_back(i);
      }
    }
  }

  void run() {
    for (const StepId s : in_order()) {
      if (const Step& step = schedule_[s]; step.kind != StepKind::update && step.kind != StepKind::evaluation) {
        add(s, step);
      }
    }
    peak_ = std::max(peak_, live_);
  }

  Json values() const {
    Json list = Json::array();
    for (const auto& [storage, value] : values_) {
      if (!used_.contains(storage)) continue;
      Json& one = list.emplace_back(Json{{"name", value.name}, {"kind", kind_text(value.kind)}});
      if (value.of) one["tensor"] = *value.of;
      if (value.kind == PytorchValue::Kind::saved) one["stage"] = value.stage;
      one["bytes"] = value.bytes.count;
    }
    return list;
  }
  Json actions() && { return std::move(actions_); }
  Bytes peak() const { return peak_; }
  Bytes resident() const { return resident_; }
  Seconds seconds() const { return seconds_; }
  Seconds end() const { return end_; }

 private:
  bool on_device(const Buffer& buffer) const { return buffer.memory == problem_.platform.devices[0].memory; }
  std::string_view place_of(const Buffer& buffer) const { return on_device(buffer) ? "device" : "host"; }

  static std::string_view kind_text(PytorchValue::Kind kind) {
    switch (kind) {
      case PytorchValue::Kind::boundary:
        return "boundary";
      case PytorchValue::Kind::saved:
        return "saved";
      case PytorchValue::Kind::gradient:
        break;
    }
    return "gradient";
  }

  /// By date of start; what starts together as it was issued.
  std::vector<StepId> in_order() const {
    std::vector<StepId> order;
    for (std::size_t s = 0; s < schedule_.steps.size(); ++s) order.push_back(id_at<StepId>(s));
    std::ranges::stable_sort(order, {}, [&](StepId s) {
      const Interval& ran = timeline_.steps[s.index];
      return std::pair(ran.start, ran.start_round);
    });
    return order;
  }

  AliveValue alive_of(const Buffer& buffer) const {
    return {problem_.graph[buffer.tensor].storage, buffer.micro_batch, buffer.memory};
  }

  const std::string& name_of(const Buffer& buffer) {
    const StorageId storage = problem_.graph[buffer.tensor].storage;
    used_[storage] = true;
    return values_.at(storage).name;
  }

  bool is_value(const Buffer& buffer) const { return values_.contains(problem_.graph[buffer.tensor].storage); }

  void add(StepId s, const Step& step) {
    Json action{{"do", step.op == no_op ? step.work.is_transfer() ? "copy" : "wait" : word(step)}};
    if (step.op != no_op) action["stage"] = problem_.graph[step.op].stage;
    action["micro_batch"] = step.micro_batch;
    if (step.work.is_transfer()) describe_copy(step, action);
    if (step.op != no_op && problem_.graph[step.op].phase == Phase::forward) describe_forward(step, action);
    for (const BufferId b : schedule_.buffers_in(step.allocates)) begin(schedule_[b]);
    const Bytes high = live_ + step.workspace;
    peak_ = std::max(peak_, high);
    Json drops = Json::array(), from_host = Json::array();
    for (const BufferId b : schedule_.buffers_in(step.frees)) {
      const Buffer& buffer = schedule_[b];
      if (!end_of(buffer) || !is_value(buffer)) continue;
      if (step.op == no_op) action["micro_batch"] = buffer.micro_batch;
      (on_device(buffer) ? drops : from_host).push_back(name_of(buffer));
    }
    if (!drops.empty()) action["drops"] = std::move(drops);
    if (!from_host.empty()) action["drops_on_host"] = std::move(from_host);
    Json waits = Json::array();
    for (const StepId wait : schedule_.waits_of(step)) {
      if (const auto found = number_.find(wait); found != number_.end()) waits.push_back(found->second);
    }
    if (!waits.empty()) action["waits"] = std::move(waits);
    if (step.op != no_op) sum_apart(step);
    const Interval& ran = timeline_.steps[s.index];
    const Seconds took = ran.finish - ran.start;
    action["seconds"] = took.value;
    action["peak_bytes"] = high.count;
    action["after_bytes"] = live_.count;
    seconds_ += took;
    end_ = std::max(end_, ran.finish);
    number_[s] = actions_.size();
    actions_.push_back(std::move(action));
  }

  /// Where a gradient is there already, contributions of several stages to it are summed apart first, as plain training
  /// does: from the first one's end to the last one's.
  void sum_apart(const Step& step) {
    const Op& op = problem_.graph[step.op];
    if (!is_backward(op.phase)) return;
    if (!first_backward_) first_backward_ = step.micro_batch;
    if (step.micro_batch == *first_backward_ && problem_.gradients == Gradients::fresh) return;
    for (const auto& [parameter, stages] : users_) {
      if (stages.size() < 2) continue;
      if (op.stage == stages.back()) live_ += problem_.chain->parameters[parameter].bytes;
      if (op.stage == stages.front()) live_ -= problem_.chain->parameters[parameter].bytes;
    }
  }

  std::string_view word(const Step& step) const {
    return problem_.graph[step.op].phase == Phase::forward ? "forward" : "backward";
  }

  void describe_copy(const Step& step, Json& action) {
    const Buffer& from = schedule_[schedule_.buffers_in(step.reads)[0]];
    const bool is_new = step.allocates.count > 0;
    const Buffer& to = schedule_[schedule_.buffers_in(is_new ? step.allocates : step.writes)[0]];
    action["micro_batch"] = from.micro_batch;
    action["value"] = name_of(from);
    action["from"] = place_of(from);
    action["to"] = place_of(to);
    if (from.range_length != problem_.graph[from.tensor].bytes) {
      action["first_byte"] = from.range_offset.count;
      action["bytes"] = from.range_length.count;
    }
  }

  void describe_forward(const Step& step, Json& action) {
    const Op& op = problem_.graph[step.op];
    bool saves = false;
    Json makes = Json::array();
    for (const BufferId b : schedule_.buffers_in(step.allocates)) {
      const Buffer& buffer = schedule_[b];
      const bool is_saved = std::ranges::find(op.saved, buffer.tensor) != op.saved.end();
      saves |= is_saved;
      const bool is_output = std::ranges::find(op.outputs, buffer.tensor) != op.outputs.end();
      if (!is_saved && is_output) makes.push_back(name_of(buffer));
      if (is_saved) used_[problem_.graph[buffer.tensor].storage] = true;
    }
    action["saves"] = saves;
    action["again"] = step.kind == StepKind::recompute;
    action["makes"] = std::move(makes);
  }

  void begin(const Buffer& buffer) {
    const AliveValue what = alive_of(buffer);
    if (parts_[what]++ == 0 && on_device(buffer)) live_ += problem_.graph[buffer.tensor].bytes;
  }

  /// Whether the last part of it is gone.
  bool end_of(const Buffer& buffer) {
    const AliveValue what = alive_of(buffer);
    if (--parts_[what] > 0) return false;
    if (on_device(buffer)) live_ -= problem_.graph[buffer.tensor].bytes;
    return true;
  }

  const Problem& problem_;
  const Schedule& schedule_;
  const Timeline& timeline_;
  std::map<StorageId, PytorchValue> values_;
  std::map<StorageId, bool> used_;
  std::map<AliveValue, int> parts_;                            // buffers of it that are alive
  std::map<StepId, std::size_t> number_;                       // of its action
  std::map<std::uint32_t, std::vector<std::uint32_t>> users_;  // by parameter: stages that make its gradient, ascending
  std::optional<std::uint32_t> first_backward_;                // of which micro-batch
  Json actions_ = Json::array();
  Bytes live_, peak_, resident_;
  Seconds seconds_, end_;
};

Seconds plain_time(const Problem& problem) {
  const Pass plain = pass_of(store_all_strategy);
  const PlanOutcome outcome = plan(problem, std::span(&plain, 1), std::nullopt);
  EXPECTS(std::holds_alternative<Plan>(outcome));
  return std::get<Plan>(outcome).makespan;
}

}  // namespace

void refuse_early_for_pytorch(const Question& question, const Problem& problem) {
  for (const Pass& pass : question.strategy.passes) {
    const std::string_view why = what_is_not_expressed(pass.strategy->family);
    if (!why.empty()) refuse_for_pytorch(fmt::format("{} {}", pass.strategy->name, why));
  }
  if (problem.mesh || problem.platform.devices.size() > 1) {
    refuse_for_pytorch(fmt::format("platform '{}' has several devices, and a plan is for one", problem.platform.name));
  }
  if (problem.chain) pytorch_source(*problem.chain);
}

Json pytorch_plan(const Question& question, const Problem& problem, const Answer& answer, const std::string& made_by) {
  const Schedule& schedule = *answer.schedule;
  refuse_what_cannot_be_said(problem, schedule);
  if (!problem.chain) return pytorch_policy(question, problem, answer, made_by);
  const Json source = pytorch_source(*problem.chain);
  const bool one_call = is_one_call(problem, schedule);
  PlanWriter writer(problem, schedule, *answer.timeline);
  writer.run();
  if (answer.budget && writer.peak() > *answer.budget) {
    const bool has_parts = std::ranges::any_of(schedule.buffers, [&](const Buffer& buffer) {
      return buffer.range_length < problem.graph[buffer.tensor].bytes;
    });
    refuse_for_pytorch(
        has_parts
            ? fmt::format("the schedule frees values in parts, which PyTorch cannot: with whole ones it needs {} "
                          "B, above the budget of {} B; try chunks=1",
                          writer.peak().count, answer.budget->count)
            : fmt::format(
                  "where copies do not overlap with computation, as on a CPU, it needs {} B, above the budget of {} B",
                  writer.peak().count, answer.budget->count));
  }
  const Seconds plain = plain_time(problem);
  const Bytes input = boundary_bytes(*problem.chain, 0);
  Json plan{{"format", "plimsoll.plan.v1"},
            {"made_by", made_by},
            {"trace", problem.graph.name},
            {"platform", problem.platform.name},
            {"strategy", question.strategy.text}};
  if (answer.budget) plan["memory_budget_bytes"] = answer.budget->count;
  plan["micro_batches"] = schedule.micro_batches;
  plan["gradients"] = written(schedule.gradients);
  plan["backward"] = one_call ? "in_one_call" : "by_stage";
  plan["predicted"] = {{"makespan_s", writer.end().value},
                       {"one_after_the_other_s", writer.seconds().value},
                       {"plain_s", plain.value},
                       {"peak_bytes", answer.metrics->peak.count},
                       {"one_after_the_other_peak_bytes", writer.peak().count},
                       {"host_peak_bytes", host_peak(*answer.metrics).count},
                       {"resident_bytes", writer.resident().count},
                       {"input_bytes", input.count}};
  plan["model"] = source;
  plan["values"] = writer.values();
  plan["actions"] = std::move(writer).actions();
  return plan;
}

}  // namespace plimsoll
