#include "sim/memory/step_orders.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "sim/measure/one_call.h"
#include "sim/model/evaluation_forward.h"

namespace plimsoll {
namespace {

/// What the graph of a chain calls the tensors and parameters that passes name.
class ChainTensors {
 public:
  ChainTensors(const Problem& problem, std::size_t stages)
      : problem_(problem), gradients_(stages), parameters_(stages) {
    const Chain& chain = *problem.chain;
    for (std::size_t i = 0; i < stages; ++i) {
      const Op& forward = problem.graph[problem.index->forward[i]];
      auto output = forward.outputs.begin();
      for (const std::uint32_t t : chain.boundaries[i + 1]) {
        if (std::ranges::find(chain.boundaries[i], t) != chain.boundaries[i].end()) continue;
        if (values_.try_emplace(t, *output).second) ++output;
      }
      if (problem.index->backward[i] != no_op) add_backward(i, problem.graph[problem.index->backward[i]]);
    }
  }

  TensorId value(std::uint32_t t) const { return values_.at(t); }
  TensorId gradient(std::size_t stage, std::uint32_t t) const { return gradients_[stage].at(t); }
  TensorId parameter_gradient(std::size_t stage, std::uint32_t p) const { return parameters_[stage].at(p); }

 private:
  /// A backward makes gradients of its input's tensors, all as one where it is not known of which, then those of its
  /// parameters, likewise.
  void add_backward(std::size_t i, const Op& backward) {
    const Chain& chain = *problem_.chain;
    const Stage& stage = chain.stages[i];
    const auto is_parameters = [&](TensorId t) { return problem_.graph[t].kind == TensorKind::parameter_gradient; };
    const auto middle = std::ranges::find_if(backward.outputs, is_parameters);
    const std::vector<TensorId> made(backward.outputs.begin(), middle), trained(middle, backward.outputs.end());
    const bool is_apart = knows_tensors(chain);
    const std::vector<std::uint32_t>& of = is_apart ? stage.tensors->gradients : chain.boundaries[i];
    for (std::size_t k = 0; k < of.size() && !made.empty(); ++k) gradients_[i][of[k]] = made[is_apart ? k : 0];
    std::size_t next = 0;
    for (const std::uint32_t p : stage.parameters) {
      if (trained.empty()) return;
      const auto [place, is_new] = parameters_[i].try_emplace(p, trained[std::min(next, trained.size() - 1)]);
      if (is_new) ++next;
    }
  }

  const Problem& problem_;
  std::map<std::uint32_t, TensorId> values_;                               // by tensor of the chain
  std::vector<std::map<std::uint32_t, TensorId>> gradients_, parameters_;  // by stage
};

class OrderFinder {
 public:
  OrderFinder(const Problem& problem, const Schedule& schedule, const ChainAllocations& allocations)
      : problem_(problem),
        schedule_(schedule),
        allocations_(allocations),
        tensors_(problem, allocations.stages.size()),
        stage_of_(problem.graph.ops.size()) {
    made_.steps.resize(schedule.steps.size());
    made_.pieces.resize(schedule.buffers.size());
    made_.is_in_orders.resize(schedule.buffers.size());
    for (const Buffer& buffer : schedule.buffers) {
      made_.comes_late.push_back(problem.graph[buffer.tensor].kind == TensorKind::optimizer_state);
    }
    for (std::uint32_t i = 0; i < allocations.stages.size(); ++i) {
      stage_of_[problem.index->forward[i].index] = i;
      if (problem.index->backward[i] != no_op) stage_of_[problem.index->backward[i].index] = i;
    }
  }

  StepOrders find() {
    if (allocations_.plain && is_one_call(problem_, schedule_) && take_plain(*allocations_.plain)) {
      return std::move(made_);
    }
    find_pieces();
    for (std::size_t s = 0; s < schedule_.steps.size(); ++s) {
      const Step& step = schedule_.steps[s];
      if (const std::optional<std::uint32_t> stage = stage_of(step)) made_.steps[s] = order_of(step, *stage);
    }
    return std::move(made_);
  }

 private:
  std::optional<std::uint32_t> stage_of(const Step& step) const {
    return step.op == no_op ? std::nullopt : stage_of_[step.op.index];
  }
  bool accumulates(const Step& step) {
    if (!first_backward_) first_backward_ = step.micro_batch;
    return step.micro_batch != *first_backward_ || problem_.gradients == Gradients::existing;
  }

  /// Whether the steps are those that the orders of plain training are of, one micro-batch after the other.
  bool take_plain(const PlainAllocations& plain) {
    std::vector<StepId> steps;
    for (std::size_t s = 0; s < schedule_.steps.size(); ++s) {
      if (stage_of(schedule_.steps[s])) steps.push_back(id_at<StepId>(s));
    }
    const std::size_t stages = allocations_.stages.size();
    if (steps.size() != 2 * stages * schedule_.micro_batches) return false;
    for (std::size_t k = 0; k < steps.size(); ++k) {
      const Step& step = schedule_[steps[k]];
      const std::size_t place = k % (2 * stages), turn = k / (2 * stages);
      const bool is_forward = place < stages;
      if (is_forward != (problem_.graph[step.op].phase == Phase::forward)) return false;
      if (*stage_of(step) != (is_forward ? place : 2 * stages - 1 - place)) return false;
      const bool is_first = turn == 0 && problem_.gradients == Gradients::fresh;
      made_.steps[steps[k].index] =
          StepOrder{&(is_first ? plain.fresh : plain.accumulate)[place], static_cast<std::uint32_t>(turn)};
    }
    for (const StepId s : steps) {
      for (const BufferId b : schedule_.buffers_in(schedule_[s].allocates)) {
        made_.is_in_orders[b.index] = problem_.graph[schedule_[b].tensor].kind != TensorKind::input;
      }
    }
    return true;
  }

  /// What a stage saves is as many blocks as it says, wherever the whole of it lies.
  void find_pieces() {
    for (std::size_t i = 0; i < allocations_.stages.size(); ++i) {
      const Op& forward = problem_.graph[problem_.index->forward[i]];
      if (forward.saved.size() == 1) pieces_[forward.saved[0]] = sizes_of_saved(allocations_.stages[i].forward);
    }
    for (std::size_t b = 0; b < schedule_.buffers.size(); ++b) {
      const Buffer& buffer = schedule_.buffers[b];
      const auto found = pieces_.find(buffer.tensor);
      const bool is_whole = buffer.bytes == problem_.graph[buffer.tensor].bytes;
      if (found != pieces_.end() && is_whole) made_.pieces[b] = found->second;
    }
  }

  static std::vector<Bytes> sizes_of_saved(const PassAllocations& pass) {
    std::vector<Bytes> made, saved;
    for (const std::int64_t n : pass.order) {
      if (n > 0) made.push_back({n});
    }
    for (const std::uint32_t number : pass.saved) saved.push_back(made[number - 1]);
    return saved;
  }

  std::optional<StepOrder> order_of(const Step& step, std::uint32_t stage) {
    const StageAllocations& of = allocations_.stages[stage];
    const Op& op = problem_.graph[step.op];
    if (op.phase == Phase::forward) {
      const bool saves = std::ranges::any_of(schedule_.buffers_in(step.allocates), [&](BufferId b) {
        return std::ranges::find(op.saved, schedule_[b].tensor) != op.saved.end();
      });
      return forward_order(step, saves ? of.forward : of.forward_nograd, op);
    }
    return backward_order(step, stage, accumulates(step) ? of.backward_accumulate : of.backward);
  }

  std::optional<StepOrder> forward_order(const Step& step, const PassAllocations& pass, const Op& op) {
    StepOrder made{&pass.order};
    bool is_whole = true;
    for (const auto [number, t] : pass.tensors) is_whole &= leave(step, number, tensors_.value(t), made);
    if (!pass.saved.empty() && op.saved.size() != 1) return std::nullopt;
    for (const std::uint32_t number : pass.saved) is_whole &= leave(step, number, op.saved[0], made);
    return is_whole && leaves_all(step, made) ? std::optional(made) : std::nullopt;
  }

  std::optional<StepOrder> backward_order(const Step& step, std::uint32_t stage, const PassAllocations& pass) {
    StepOrder made{&pass.order};
    bool is_whole = true;
    for (const auto [number, t] : pass.tensors) {
      is_whole &= leave(step, number, tensors_.gradient(stage, t), made);
    }
    for (const auto [number, p] : pass.parameters) {
      is_whole &= leave(step, number, tensors_.parameter_gradient(stage, p), made);
    }
    if (!is_whole || !leaves_all(step, made)) return std::nullopt;
    if (allocations_.stages[stage].forward.saved.empty()) return made;
    const TensorId saved = problem_.graph[problem_.index->forward[stage]].saved.front();
    for (const BufferId b : schedule_.buffers_in(step.frees)) {
      if (schedule_[b].tensor == saved && !made_.pieces[b.index].empty()) made.takes = b;
    }
    return made.takes ? std::optional(made) : std::nullopt;
  }

  /// Whether the step allocates the whole of such a tensor.
  bool leave(const Step& step, std::uint32_t number, TensorId tensor, StepOrder& made) const {
    for (const BufferId b : schedule_.buffers_in(step.allocates)) {
      if (schedule_[b].tensor != tensor || schedule_[b].bytes != problem_.graph[tensor].bytes) continue;
      made.leaves.emplace_back(number, b);
      return true;
    }
    return false;
  }

  bool leaves_all(const Step& step, const StepOrder& made) const {
    return std::ranges::all_of(schedule_.buffers_in(step.allocates), [&](BufferId b) {
      const bool is_left = std::ranges::any_of(made.leaves, [&](const auto& left) { return left.second == b; });
      return is_left || schedule_[b].bytes == Bytes{} || is_input(b);
    });
  }
  bool is_input(BufferId b) const { return problem_.graph[schedule_[b].tensor].kind == TensorKind::input; }

  const Problem& problem_;
  const Schedule& schedule_;
  const ChainAllocations& allocations_;
  ChainTensors tensors_;
  std::vector<std::optional<std::uint32_t>> stage_of_;  ///< by op: of forwards and whole backwards
  std::map<TensorId, std::vector<Bytes>> pieces_;       ///< of what a stage saves
  std::optional<std::uint32_t> first_backward_;         ///< of which micro-batch
  StepOrders made_;
};

/// As forwards that keep nothing were measured, stage by stage.
AllocationOrder measured_evaluation(const Problem& problem) {
  const Chain& chain = *problem.chain;
  AllocationOrder made;
  std::int64_t count = 0;
  const auto ask = [&](std::int64_t bytes) {
    made.push_back(static_cast<std::int64_t>(std::ceil(problem.evaluation->size * static_cast<double>(bytes))));
    return ++count;
  };
  std::vector<std::int64_t> batch;
  for (const std::uint32_t t : chain.boundaries[0]) {
    if (chain.tensors[t].bytes > Bytes{0}) batch.push_back(ask(chain.tensors[t].bytes.count));
  }
  std::multimap<std::uint32_t, std::int64_t> there;  // by tensor of the chain: its allocations
  for (std::size_t i = 0; i < problem.allocations->stages.size(); ++i) {
    const PassAllocations& pass = problem.allocations->stages[i].forward_nograd;
    const std::int64_t before = count;
    for (const std::int64_t n : pass.order) {
      n > 0 ? static_cast<void>(ask(n)) : made.push_back(n - before);
    }
    for (const LastingAllocation& each : pass.tensors) there.emplace(each.index, before + each.number);
    for (auto each = there.begin(); each != there.end();) {
      const auto& stays = chain.boundaries[i + 1];
      if (std::ranges::find(stays, each->first) != stays.end()) {
        ++each;
        continue;
      }
      made.push_back(-each->second);
      each = there.erase(each);
    }
  }
  for (const auto& [tensor, number] : there) made.push_back(-number);
  for (const std::int64_t number : batch) made.push_back(-number);
  return made;
}

void add_evaluations(const Problem& problem, const Schedule& schedule, bool is_as_measured, StepOrders& made) {
  if (made.steps.empty()) {
    made.steps.resize(schedule.steps.size());
    made.comes_late.resize(schedule.buffers.size(), false);
  }
  made.evaluation = std::make_shared<const AllocationOrder>(
      is_as_measured ? measured_evaluation(problem) : evaluation_requests(problem.graph, *problem.evaluation));
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    if (schedule.steps[s].kind == StepKind::evaluation) made.steps[s] = StepOrder{made.evaluation.get()};
  }
}

}  // namespace

StepOrders step_orders(const Problem& problem, const Schedule& schedule) {
  const bool is_as_measured = problem.allocations && problem.chain && problem.index && problem.index->weight.empty() &&
                              !problem.transformed && !problem.mesh;
  StepOrders made = is_as_measured ? OrderFinder(problem, schedule, *problem.allocations).find() : StepOrders{};
  if (problem.evaluation) add_evaluations(problem, schedule, is_as_measured, made);
  return made;
}

}  // namespace plimsoll
