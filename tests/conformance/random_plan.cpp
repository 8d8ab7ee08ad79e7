#include "tests/conformance/random_plan.h"

#include <algorithm>

#include "sim/core/expects.h"
#include "sim/lower/lowering.h"
#include "strategies/models/chain_part.h"
#include "strategies/rematerialization/cuts/chen.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"

namespace plimsoll {
namespace {

/// Sends the inner tensors of some stages to the host after the forward that saves them and back before the backward.
Tape with_offloads(const Problem& problem, const Tape& tape, Random& random) {
  Tape changed;
  std::vector<bool> away(problem.graph.tensors.size(), false);
  for (const Action& action : tape.actions) {
    if (action.kind == ActionKind::run) {
      for (const TensorId t : problem.graph[action.op].inputs) {
        if (!away[t.index]) continue;
        changed.actions.push_back(along(way::host_to_device, ActionKind::move, t));
        away[t.index] = false;
      }
    }
    changed.actions.push_back(action);
    if (action.kind != ActionKind::run || action.saving == Saving::nothing) continue;
    for (const TensorId t : problem.graph[action.op].saved) {
      if (!random.chance(0.4)) continue;
      changed.actions.push_back(along(way::device_to_host, ActionKind::copy, t));
      away[t.index] = true;
    }
  }
  return with_drops(problem.graph, changed);
}

}  // namespace

RandomPlan random_plan(std::uint64_t seed) {
  Random random(seed);
  const std::size_t stages = random.between(2, 7);
  const std::uint32_t parts = random.between(1, std::min<std::uint32_t>(4, static_cast<std::uint32_t>(stages)));
  Chain chain = random_small_chain(seed, stages);
  if (parts > 1) {  // a parameter in two parts would need an all-reduce
    for (Stage& stage : chain.stages) stage.parameters.clear();
    for (std::size_t i = 0; i < stages; ++i) {
      if (i < chain.parameters.size()) chain.stages[i].parameters = {static_cast<std::uint32_t>(i)};
    }
  }
  const Gpus machine{.count = parts,
                     .to_host = BytesPerSecond{8},
                     .uplink = random.chance(0.5) ? std::optional(BytesPerSecond{10}) : std::nullopt,
                     .to_peers = BytesPerSecond{16},
                     .peer_latency = Seconds{0.25}};
  ProblemOptions options{.micro_batches = random.between(1, 4),
                         .optimizer = random.chance(0.5) ? Optimizer::momentum : Optimizer::none,
                         .gradients = random.chance(0.5) ? Gradients::fresh : Gradients::existing};
  options.clips_gradients = options.optimizer != Optimizer::none && seed % 3 == 0;
  options.keeps_averages = options.optimizer != Optimizer::none && seed % 5 == 0;
  if (options.optimizer != Optimizer::none && seed % 4 != 0) {
    options.parameter_groups = {{seed % 2 == 0 ? "w[024]" : "*[13]", Optimizer::adam}, {"w?", Optimizer::sgd}};
    const bool is_empty = std::holds_alternative<std::string>(make_problem(chain, gpus(machine), options));
    if (is_empty) options.parameter_groups.clear();
  }
  RandomPlan made{problem_of(chain, gpus(machine), options), {}};
  const Problem& problem = made.problem;

  std::vector<std::size_t> cuts{0};
  for (std::uint32_t p = 1; p < parts; ++p) cuts.push_back(std::max<std::size_t>(cuts.back() + 1, p * stages / parts));
  const Partition partition = one_forward_one_backward(problem, cuts);
  std::vector<Tape> tapes;
  for (std::uint32_t p = 0; p < parts; ++p) {
    const ChainPart part = chain_part(problem, partition.parts[p]);
    const std::size_t length = part.chain.stages.size();
    const bool plain = length < 3 || random.chance(0.3);
    const ChainSequence sequence =
        plain ? store_all_sequence(length)
              : chen_sequence(length, random.between(1, static_cast<std::uint32_t>(length - 1)));
    const Tape tape = chain_tape(problem, partition, PartId{p}, part, sequence);
    tapes.push_back(random.chance(0.6) ? with_offloads(problem, tape, random) : tape);
  }
  std::variant<Schedule, std::string> schedule = lower(problem, partition, tapes);
  EXPECTS(std::holds_alternative<Schedule>(schedule));
  made.schedule = std::move(std::get<Schedule>(schedule));
  return made;
}

}  // namespace plimsoll
