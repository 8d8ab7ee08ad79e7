#include "validate/op_times.h"

#include <algorithm>
#include <cmath>

#include "sim/core/expects.h"
#include "sim/lower/lowering.h"

namespace plimsoll {

Saving saving_of(const Graph& graph, const Schedule& schedule, const Step& step) {
  const auto is_made = [&](TensorId t) {
    return std::ranges::any_of(schedule.buffers_in(step.allocates),
                               [&](BufferId b) { return graph[schedule[b].tensor].storage == graph[t].storage; });
  };
  const Op& op = graph[step.op];
  return std::ranges::all_of(op.saved, is_made) ? Saving::keep : Saving::nothing;
}

bool loads(const Graph& graph, const Schedule& schedule, const Step& step) {
  return std::ranges::any_of(schedule.buffers_in(step.allocates),
                             [&](BufferId b) { return graph[schedule[b].tensor].kind == TensorKind::input; });
}

double median(std::vector<double> values) {
  EXPECTS(!values.empty());
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

void OpTimes::add(const Graph& graph, const Schedule& schedule, const Timeline& timeline) {
  std::map<StreamId, Seconds> last;
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    const Step& step = schedule.steps[s];
    if (step.op == no_op || schedule[step.stream].way != way::compute) continue;
    Seconds& before = last[step.stream];
    const Saving saving = saving_of(graph, schedule, step);
    seconds_[{step.op, saving, loads(graph, schedule, step)}].push_back((timeline.steps[s].finish - before).value);
    before = timeline.steps[s].finish;
  }
}

std::optional<Seconds> OpTimes::measured(const Run& run) const {
  const auto found = seconds_.find(run);
  return found == seconds_.end() ? std::nullopt : std::optional(Seconds{median(found->second)});
}

std::optional<Seconds> OpTimes::load_of(OpId op) const {
  for (const Saving saving : {Saving::nothing, Saving::keep}) {
    const std::optional<Seconds> first = measured({op, saving, true}), again = measured({op, saving, false});
    if (first && again) return std::max(Seconds{0}, *first - *again);
  }
  return std::nullopt;
}

std::optional<Seconds> OpTimes::of(OpId op, Saving saving, bool loads) const {
  const Saving other = saving == Saving::keep ? Saving::nothing : Saving::keep;
  const Seconds load = load_of(op).value_or(Seconds{0});
  for (const Saving way : {saving, other}) {
    if (const std::optional<Seconds> found = measured({op, way, loads})) return found;
    if (const std::optional<Seconds> found = measured({op, way, !loads})) {
      return loads ? *found + load : std::max(Seconds{0}, *found - load);
    }
  }
  return std::nullopt;
}

std::optional<Seconds> OpTimes::of_first(OpId op, Saving saving) const {
  const auto is_known = [&](Saving way) { return seconds_.contains({op, way, true}); };
  return of(op, saving, is_known(Saving::keep) || is_known(Saving::nothing));
}

double OpTimes::spread() const {
  std::vector<double> spreads;
  for (const auto& [key, samples] : seconds_) {
    const double middle = median(samples);
    std::vector<double> distances;
    for (const double s : samples) distances.push_back(std::abs(s - middle) / std::max(middle, 1e-12));
    spreads.push_back(median(std::move(distances)));
  }
  return spreads.empty() ? 0 : median(std::move(spreads));
}

std::size_t OpTimes::samples() const {
  std::size_t least = 0;
  for (const auto& [key, samples] : seconds_) least = least == 0 ? samples.size() : std::min(least, samples.size());
  return least;
}

namespace {

/// Of a packing's time, what it takes to choose how the value is packed.
Seconds choosing(const Schedule& schedule, const Graph& graph, const Step& step) {
  Seconds sum;
  for (const BufferId b : schedule.buffers_in(step.allocates)) {
    const Buffer& made = schedule[b];
    if (step.kind != StepKind::pack || !made.is_packed()) continue;
    const double part =
        static_cast<double>(made.range_length.count) / static_cast<double>(graph[made.tensor].bytes.count);
    sum += part * schedule.codecs[made.codec.index].overhead;
  }
  return sum;
}

}  // namespace

Schedule retimed(Schedule schedule, const Graph& graph, const OpTimes& times) {
  for (Step& step : schedule.steps) {
    step.work.seconds = std::max(Seconds{0}, step.work.seconds - choosing(schedule, graph, step));
    if (step.op == no_op || schedule[step.stream].way != way::compute) continue;
    if (const std::optional<Seconds> measured =
            times.of(step.op, saving_of(graph, schedule, step), loads(graph, schedule, step))) {
      step.work.seconds = *measured;
      step.measured = true;
    }
  }
  return schedule;
}

namespace {

/// A backward in two parts takes as long as the whole one; the parts share its time as they were measured. What runs
/// no kernel takes none.
void divide_backward(Stage& stage, std::optional<Seconds> input, std::optional<Seconds> weight) {
  if (stage.backward_weight <= Seconds{0} || !input || !weight || *input + *weight <= Seconds{0}) return;
  stage.backward_weight = (*weight / (*input + *weight)) * stage.backward;
}

}  // namespace

Chain with_times(Chain chain, const Problem& problem, const OpTimes& times) {
  EXPECTS(problem.index && problem.index->forward.size() == chain.stages.size());
  const ChainGraph& index = *problem.index;
  for (std::size_t i = 0; i < chain.stages.size(); ++i) {
    Stage& stage = chain.stages[i];
    if (!index.weight.empty()) {
      divide_backward(stage, times.of_first(index.backward[i], Saving::keep),
                      times.of_first(index.weight[i], Saving::keep));
      continue;
    }
    const Seconds before = stage.backward;
    stage.forward = times.of_first(index.forward[i], Saving::keep).value_or(stage.forward);
    stage.forward_nograd = times.of_first(index.forward[i], Saving::nothing).value_or(stage.forward_nograd);
    const Seconds least = std::min(stage.forward, stage.forward_nograd);
    stage.load = std::min(times.load_of(index.forward[i]).value_or(Seconds{0}), least);
    stage.backward = times.of_first(index.backward[i], Saving::keep).value_or(stage.backward);
    if (before > Seconds{0}) stage.backward_weight = (stage.backward_weight / before) * stage.backward;
  }
  return chain;
}

Graph with_times(Graph graph, const OpTimes& times) {
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const OpId op = id_at<OpId>(o);
    const std::optional<Seconds> measured = times.of_first(op, Saving::keep);
    if (!measured) continue;
    graph.ops[o].duration = measured;
    graph.ops[o].load = std::min(times.load_of(op).value_or(Seconds{0}), *measured);
  }
  return graph;
}

Schedule calibration_schedule(const Problem& problem) {
  const Partition partition = one_device(problem.graph, problem.micro_batches, problem.platform.devices.size());
  Tape tape;
  const auto reads_input = [&](OpId op) {
    return std::ranges::any_of(problem.graph[op].inputs,
                               [&](TensorId t) { return problem.graph[t].kind == TensorKind::input; });
  };
  for (const OpId op : partition.parts[0].ops) {
    if (problem.graph[op].phase != Phase::forward) continue;
    tape.actions.push_back(run(op, Saving::nothing));
    if (reads_input(op)) tape.actions.push_back(run(op, Saving::nothing));
  }
  for (const OpId op : partition.parts[0].ops) tape.actions.push_back(run(op));
  tape = with_drops(problem.graph, std::move(tape));
  std::variant<Schedule, std::string> made = lower(problem, partition, std::span(&tape, 1));
  EXPECTS(std::holds_alternative<Schedule>(made));
  return std::move(std::get<Schedule>(made));
}

}  // namespace plimsoll
