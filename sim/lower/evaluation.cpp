#include "sim/lower/evaluation.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "sim/core/expects.h"
#include "sim/model/evaluation_forward.h"

namespace plimsoll {
namespace {

/// Parameters that the forward reads, each storage once.
std::vector<TensorId> parameters_read(const Graph& graph) {
  std::vector<TensorId> found;
  std::vector<bool> is_found(graph.storages, false);
  for (const Op& op : graph.ops) {
    if (op.phase != Phase::forward) continue;
    for (const TensorId t : op.inputs) {
      const bool is_new = graph[t].kind == TensorKind::parameter && !is_found[graph[t].storage.index];
      if (!is_new) continue;
      is_found[graph[t].storage.index] = true;
      found.push_back(t);
    }
  }
  return found;
}

class Evaluating {
 public:
  Evaluating(const Problem& problem, Schedule schedule)
      : problem_(problem), graph_(problem.graph), made_(std::move(schedule)), read_(parameters_read(graph_)) {}

  std::variant<Schedule, std::string> run() {
    if (!made_.updates.are_synchronous()) return "updates come within an iteration, and an evaluation between two";
    find_devices();
    const auto forwards = static_cast<std::size_t>(
        std::ranges::count_if(graph_.ops, [](const Op& op) { return op.phase == Phase::forward && !op.is_view; }));
    std::vector<Step> steps;
    for (const auto& [device, ran] : ran_) {
      if (ran.size() < forwards) {
        return "'" + problem_.platform[device].name +
               "' has only a part of the network, and an evaluation between iterations is a forward of all of it";
      }
      std::optional<std::string> why = add_step(device, steps);
      if (why) return *std::move(why);
    }
    put_first(std::move(steps));
    made_.evaluation = problem_.evaluation;
    return std::move(made_);
  }

 private:
  void find_devices() {
    for (const Step& step : made_.steps) {
      if (step.op == no_op || graph_[step.op].phase != Phase::forward) continue;
      ran_[made_[step.stream].device].insert(step.op);
    }
  }

  std::optional<std::string> add_step(DeviceId device, std::vector<Step>& steps) {
    const Device& of = problem_.platform[device];
    Step step;
    step.kind = StepKind::evaluation;
    const auto stream = std::ranges::find_if(
        made_.streams, [&](const Stream& each) { return each.device == device && each.way == way::compute; });
    EXPECTS(stream != made_.streams.end());
    step.stream = id_at<StreamId>(static_cast<std::size_t>(stream - made_.streams.begin()));
    step.work.seconds = evaluation_share(problem_, device);
    step.workspace = evaluation_bytes(graph_, *problem_.evaluation);
    step.memory_bound = !of.memory_overlap_slowdown.empty();  // no copy goes on at the same time
    step.reads.first = static_cast<std::uint32_t>(made_.buffer_list.size());
    for (const TensorId t : read_) {
      const auto found = std::ranges::find_if(made_.resident, [&](BufferId b) {
        const Buffer& buffer = made_[b];
        return graph_[buffer.tensor].storage == graph_[t].storage && buffer.memory == of.memory &&
               buffer.range_length == graph_[t].bytes && !buffer.is_packed();
      });
      if (found == made_.resident.end()) {
        return "'" + graph_[t].name + "' is not whole on '" + of.name +
               "' between iterations, when an evaluation reads it";
      }
      made_.buffer_list.push_back(*found);
      step.replica = made_[*found].replica;
    }
    step.reads.count = static_cast<std::uint32_t>(made_.buffer_list.size()) - step.reads.first;
    steps.push_back(step);
    return std::nullopt;
  }

  void put_first(std::vector<Step> steps) {
    const auto added = static_cast<std::uint32_t>(steps.size());
    for (StepId& wait : made_.wait_list) wait.index += added;
    std::vector<bool> has_begun(made_.streams.size(), false);
    for (Step& step : made_.steps) {
      if (has_begun[step.stream.index]) continue;
      has_begun[step.stream.index] = true;
      Slice waits{static_cast<std::uint32_t>(made_.wait_list.size()), 0};
      for (std::uint32_t e = 0; e < added; ++e) {
        if (steps[e].stream != step.stream) made_.wait_list.push_back(StepId{e});
      }
      for (std::uint32_t w = 0; w < step.waits.count; ++w) {
        made_.wait_list.push_back(made_.wait_list[step.waits.first + w]);
      }
      waits.count = static_cast<std::uint32_t>(made_.wait_list.size()) - waits.first;
      step.waits = waits;
    }
    made_.steps.insert(made_.steps.begin(), steps.begin(), steps.end());
  }

  const Problem& problem_;
  const Graph& graph_;
  Schedule made_;
  std::vector<TensorId> read_;
  std::map<DeviceId, std::set<OpId>> ran_;  // of the forward
};

}  // namespace

std::variant<Schedule, std::string> with_evaluation(const Problem& problem, Schedule schedule) {
  EXPECTS(problem.evaluation);
  if (std::optional<std::string> why = no_evaluation(problem.graph)) return *std::move(why);
  return Evaluating(problem, std::move(schedule)).run();
}

EvaluationNeeds needs_of_evaluation(const Schedule& schedule, const Platform& platform) {
  EvaluationNeeds needs{std::vector<Bytes>(platform.memories.size()), {}};
  for (const BufferId b : schedule.resident) needs.bytes[schedule[b].memory.index] += schedule[b].bytes;
  for (const Step& step : schedule.steps) {
    if (step.kind != StepKind::evaluation) continue;
    needs.bytes[platform[schedule[step.stream].device].memory.index] += step.workspace;
    needs.time = std::max(needs.time, step.work.seconds);
  }
  return needs;
}

}  // namespace plimsoll
