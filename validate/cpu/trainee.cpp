#include "validate/cpu/trainee.h"

#include <fmt/format.h>

#include <set>

#include "sim/judge/check.h"
#include "validate/cpu/cpu_replay.h"
#include "validate/cpu/inference.h"
#include "validate/cpu/ranks/rank_replay.h"
#include "validate/cpu/step_work.h"
#include "validate/networks/initial_values.h"

namespace plimsoll {
namespace {

bool lives_on(TensorKind kind) {
  return kind == TensorKind::parameter || kind == TensorKind::optimizer_state;
}

/// Why the iteration is not one of many; nothing if it may be.
std::string cannot_repeat(const Problem& problem, const Schedule& schedule, const ReplayPlan& plan,
                          const Network& network) {
  if (network.before != nullptr) {
    return "its first stages run once, on one batch, and their outputs are stored; each step here has another batch";
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
