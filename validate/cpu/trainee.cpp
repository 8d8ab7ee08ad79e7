#include "validate/cpu/trainee.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "sim/core/expects.h"
#include "sim/core/op_kind.h"
#include "sim/judge/check.h"
#include "validate/cpu/cpu_network.h"
#include "validate/cpu/cpu_replay.h"
#include "validate/cpu/ranks/rank_replay.h"
#include "validate/cpu/step_work.h"
#include "validate/labelled_rows.h"
#include "validate/networks/initial_values.h"
#include "validate/reference/normalization.h"

namespace plimsoll {
namespace {

// A network as it is used after training: forward alone, batch norms by their running statistics.

class Forward {
 public:
  Forward(const CpuNetwork& cpu, const std::map<std::string, std::vector<std::byte>>& values) : cpu_(cpu) {
    for (const Tensor& tensor : graph().tensors) {
      const auto found = values.find(tensor.name);
      const bool is_known = found != values.end() && tensor.kind == TensorKind::parameter;
      values_.push_back(is_known ? found->second
                                 : std::vector<std::byte>(static_cast<std::size_t>(tensor.bytes.count)));
    }
  }

  std::int64_t rows() const { return graph()[input()].shape[0]; }

  /// `labels`: of the first rows, which alone count.
  Score run(const std::vector<std::byte>& rows, const std::vector<std::int32_t>& labels) {
    std::ranges::copy(rows, values_[input().index].begin());
    Score score;
    for (std::size_t o = 0; o < graph().ops.size(); ++o) {
      const Op& op = graph().ops[o];
      if (op.phase != Phase::forward) continue;
      run_op(op, cpu_.kernels[o]);
      if (network_kind(op.kind) != OpKind::cross_entropy) continue;
      const TensorId probabilities = op.outputs[0];
      score += score_of(numbers(probabilities), static_cast<std::int64_t>(labels.size()),
                        graph()[probabilities].shape.back(), labels.data());
    }
    return score;
  }

 private:
  const Graph& graph() const { return cpu_.network.graph; }
  TensorId input() const { return cpu_.network.boundaries[0]; }
  float* numbers(TensorId t) { return static_cast<float*>(static_cast<void*>(values_[t.index].data())); }

  void run_op(const Op& op, const Kernel& kernel) {
    if (network_kind(op.kind) == OpKind::batch_norm) return run_batch_norm(op);
    KernelArguments arguments;
    for (const TensorId t : op.inputs) arguments.inputs.push_back(values_[t.index].data());
    for (const TensorId t : op.outputs) arguments.outputs.push_back(values_[t.index].data());
    scratch_.resize(std::max(scratch_.size(), static_cast<std::size_t>(op.workspace.count)));
    arguments.scratch = scratch_.data();
    EXPECTS(kernel.run);
    kernel.run(arguments);
  }

  void run_batch_norm(const Op& op) {
    const std::string_view name = attribute(op, statistics_attribute);
    const auto found = std::ranges::find(graph().tensors, name, &Tensor::name);
    EXPECTS(found != graph().tensors.end());
    const auto at = static_cast<std::size_t>(found - graph().tensors.begin());
    const RowSizes sizes = row_sizes(graph()[op.inputs[0]]);
    const float* mean = numbers(id_at<TensorId>(at));
    plain::batch_norm(numbers(op.inputs[0]), numbers(op.inputs[1]), numbers(op.inputs[2]), sizes, mean,
                      mean + sizes.columns, numbers(op.outputs[0]));
  }

  const CpuNetwork& cpu_;
  std::vector<std::vector<std::byte>> values_;  // by tensor
  std::vector<std::byte> scratch_;
};

/// The loss and how many rows are right, over all rows. `values`: parameters and running statistics by name. The
/// network reads numbers, and its loss has a row for each of its input.
Score infer(const CpuNetwork& cpu, const std::map<std::string, std::vector<std::byte>>& values,
            const LabelledRows& data) {
  Forward forward(cpu, values);
  Score score;
  for (std::int64_t first = 0; first < data.count(); first += forward.rows()) {
    std::vector<std::int64_t> rows(static_cast<std::size_t>(std::min(forward.rows(), data.count() - first)));
    std::iota(rows.begin(), rows.end(), first);
    const Batch batch = batch_of(data, rows, 1);
    score += forward.run(batch.inputs[0], batch.labels[0]);
  }
  return score;
}

bool lives_on(TensorKind kind) {
  return kind == TensorKind::parameter || kind == TensorKind::optimizer_state;
}

/// Why the iteration is not one of many; nothing if it may be.
std::string cannot_repeat(const Problem& problem, const Schedule& schedule, const ReplayPlan& plan,
                          const Network& network) {
  if (network.before != nullptr) {
    return "its first stages run once, on one batch, and their outputs are stored; each step here has another batch";
  }
  if (const Tensor* narrow = first_in_bf16(network.graph)) {
    return "'" + narrow->name + "' is bf16; rows of a file are trained on in fp32";
  }
  if (!network.slices.empty()) return "its micro-batches are slices of sequences, whose rows have no labels here";
  std::set<std::pair<OpId, std::uint32_t>> updates;
  std::set<OpId> updated;
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    const Step& step = schedule.steps[s];
    if (step.op == no_op || problem.graph[step.op].phase != Phase::update) continue;
    const bool is_another = updates.insert({step.op, step.micro_batch}).second && !updated.insert(step.op).second;
    if (is_another || !plan.steps[s].versions.empty()) {
      return "it updates parameters within an iteration, micro-batch by micro-batch; each step here is one update";
    }
  }
  for (const Op& op : network.graph.ops) {
    for (const auto& [name, value] : op.attributes) {
      if (op.phase != Phase::update || name != "optimizer" || value != "adafactor") continue;
      return "the CPU has the first update of Adafactor only, whose means decay from step to step";
    }
  }
  if (updated.empty()) return "it has no updates";
  return "";
}

}  // namespace

std::variant<Trainee, ReplayFailure> Trainee::make(Problem problem, Schedule schedule, Network network,
                                                   std::uint64_t seed) {
  const std::vector<Violation> violations = check(schedule, problem.graph, problem.platform, 1);
  if (!violations.empty()) return ReplayFailure{name_of(violations[0].rule) + ": " + violations[0].what};
  auto pool = std::make_unique<BlockPool>();
  std::unique_ptr<RunnableNetwork> on_ranks;
  if (problem.mesh) {
    auto ranks = network_on_ranks(network, problem, *pool);
    if (const auto* failure = std::get_if<ReplayFailure>(&ranks)) return *failure;
    on_ranks = std::get<std::unique_ptr<RunnableNetwork>>(std::move(ranks));
  }
  CpuNetwork cpu = with_kernels(std::move(network));
  std::variant<ReplayPlan, ReplayFailure> plan =
      replay_plan(problem, schedule, on_ranks ? on_ranks->network() : cpu.network);
  if (const auto* failure = std::get_if<ReplayFailure>(&plan)) return *failure;
  auto& made = std::get<ReplayPlan>(plan);
  if (!on_ranks) {
    if (std::optional<ReplayFailure> lacking = lacks_kernel(problem, made, cpu)) return *lacking;
  }
  const std::string why = cannot_repeat(problem, schedule, made, cpu.network);
  if (!why.empty()) return ReplayFailure{why};
  return Trainee(std::move(problem), std::move(schedule), std::move(cpu), std::move(pool), std::move(on_ranks),
                 std::move(made), seed);
}

Trainee::Trainee(Problem problem, Schedule schedule, CpuNetwork cpu, std::unique_ptr<BlockPool> pool,
                 std::unique_ptr<RunnableNetwork> on_ranks, ReplayPlan plan, std::uint64_t seed)
    : problem_(std::move(problem)),
      schedule_(std::move(schedule)),
      cpu_(std::move(cpu)),
      pool_(std::move(pool)),
      on_ranks_(std::move(on_ranks)),
      plan_(std::move(plan)) {
  for (const Tensor& tensor : cpu_.network.graph.tensors) {
    if (lives_on(tensor.kind)) values_[tensor.name] = initial_value(tensor, seed);
  }
}

std::variant<Score, ReplayFailure> Trainee::step(const Batch& batch, const UpdateStep& update, const Chance& chance) {
  const ReplayOptions options{.pace = Pace::memcpy,
                              .keeps_values = true,
                              .chance = chance,
                              .batch = &batch,
                              .start = &values_,
                              .update = update};
  std::variant<Replayed, ReplayFailure> outcome =
      on_ranks_ ? on_ranks_->run(problem_, schedule_, plan_, options)
                : replay_on_cpu(problem_, schedule_, plan_, cpu_, *pool_, options);
  if (const auto* failure = std::get_if<ReplayFailure>(&outcome)) return *failure;
  auto& run = std::get<Replayed>(outcome);
  for (const Tensor& tensor : problem_.graph.tensors) {
    const auto found = run.values.find(tensor.name);
    if (lives_on(tensor.kind) && found != run.values.end()) values_[tensor.name] = std::move(found->second);
  }
  Score score;
  for (const Score& each : run.scores) score += each;
  return score;
}

Score Trainee::infer(const LabelledRows& rows) const {
  return plimsoll::infer(cpu_, values_, rows);
}

}  // namespace plimsoll
