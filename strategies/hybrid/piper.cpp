// The strategy `piper`: for each number of devices that may share out tensors, operators are cut among them, and a
// 1F1B pipeline of the stages and replicas that Piper's planner gives is simulated; the fastest is taken.

#include <algorithm>

#include "strategies/compose/levels/plan_on_devices.h"
#include "strategies/hybrid/built.h"
#include "strategies/hybrid/elimination.h"
#include "strategies/hybrid/split_search.h"
#include "strategies/list.h"
#include "strategies/pipelining/cuts/planner_cuts.h"
#include "strategies/pipelining/pipeline.h"

namespace plimsoll {
namespace {

struct PiperOptions : ModelOptions {
  std::optional<std::uint32_t> tensor;
  std::optional<Bytes> buckets;
};

constexpr auto piper_options = options_of<PiperOptions>(
    option_of<&PiperOptions::tensor>({
        .name = "tensor",
        .least = 1,
        .most = 65'536,
        .help =
            "devices that share out the operators of a stage; auto: 1, 2, 4, ..., whichever gives the fastest pipeline",
    }),
    work_model_option,
    option_of<&PiperOptions::buckets>({
        .name = "buckets",
        .none = "off",
        .help = buckets_option.help,
    }),
    collectives_option);

Options as_1f1b(const PiperOptions& options) {
  Options made(one_forward_one_backward_strategy.options, {{"cut", "piper"}});
  made.change<LineOptions>().bucket = options.buckets;
  return made;
}

/// The splits among so many ranks; a chain is nobody's to split.
DecisionsOutcome shared_out(const Problem& problem, const PiperOptions& options, std::uint32_t ranks) {
  if (ranks == 1 && problem.chain) return Decisions{.strategy = {}, .mesh = Mesh{{{"tensor", 1}}}};
  SplitOptions asked;
  static_cast<ModelOptions&>(asked) = options;
  return split_at_once(problem, ranks, asked, [](const BspModel&, const SplitTable& table) {
    std::optional<EliminatedSplit> made = eliminated(table);
    return made ? SplitSearch{std::move(made->choices), {}} : SplitSearch{};
  });
}

std::variant<PipelineMerit, std::string> merit(const Problem& of_rank, const PiperOptions& options) {
  Problem folded = for_planners(of_rank, true, Backward::whole, "piper");
  folded.transformed = true;
  if (std::optional<std::string> why = too_long_for(folded, "piper")) return std::move(*why);
  const auto devices =
      static_cast<std::uint32_t>(std::min(folded.platform.devices.size(), folded.chain->stages.size()));
  const std::variant<StageCut, std::string> cut =
      planner_cut(folded, {.planner = "piper", .devices = devices, .copies = true});
  if (const std::string* why = std::get_if<std::string>(&cut)) return *why;
  const Pass pipeline{&one_forward_one_backward_strategy, as_1f1b(options)};
  const Pass store_all = pass_of(store_all_strategy);
  return pipeline_merit(folded, pipeline, std::span(&store_all, 1));
}

DecisionsOutcome piper_splits(const Problem& problem, const PiperOptions& options, const Deadline&) {
  if (problem.mesh) return "it chooses itself who shares out operators and micro-batches, and stands alone";
  std::vector<std::uint32_t> numbers;
  const bool asks_all = !options.tensor;
  if (!asks_all) numbers.push_back(*options.tensor);
  for (std::uint32_t t = 1; asks_all && t <= problem.platform.devices.size(); t *= 2) {
    if (t == 1 || !problem.chain) numbers.push_back(t);
  }
  std::optional<std::pair<PipelineMerit, Decisions>> best;
  std::string reason;
  for (const std::uint32_t t : numbers) {
    DecisionsOutcome splits = shared_out(problem, options, t);
    if (std::string* why = std::get_if<std::string>(&splits)) {
      reason = std::move(*why);
      continue;
    }
    const std::variant<Problem, CannotBuild> of_rank = built(problem, std::get<Decisions>(splits));
    if (const CannotBuild* cannot = std::get_if<CannotBuild>(&of_rank)) {
      reason = cannot->why;
      continue;
    }
    if (options.is_judged) return splits;
    std::variant<PipelineMerit, std::string> found = merit(std::get<Problem>(of_rank), options);
    if (std::string* why = std::get_if<std::string>(&found)) {
      reason = std::move(*why);
      continue;
    }
    const PipelineMerit& one = std::get<PipelineMerit>(found);
    if (!best || one < best->first) best.emplace(one, std::get<Decisions>(std::move(splits)));
  }
  if (!best) return reason;
  return std::move(best->second);
}

std::vector<PartitionOutcome> piper_partition(const Problem& problem, const PiperOptions& options,
                                              std::span<const std::optional<Bytes>> budgets) {
  return one_forward_one_backward_strategy.partition(problem, as_1f1b(options), budgets);
}

}  // namespace

extern constinit const StrategyInfo piper_strategy{
    .name = "piper",
    .family = Family::hybrid,
    .summary = "a 1F1B pipeline of stages with replicas, whose operators are shared out among devices, by Piper",
    .source =
        "Tarnawski, Narayanan, Phanishayee, Piper: Multidimensional Planner for DNN Parallelization, NeurIPS 2021",
    .options = piper_options,
    .kind = SplitStrategy{.decide = by_options<piper_splits>, .partition = by_options<piper_partition>},
};

}  // namespace plimsoll
