#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "sim/core/rank_graph.h"
#include "strategies/common/option_rules.h"
#include "strategies/hybrid/on_mesh.h"
#include "strategies/strategy.h"

namespace plimsoll {
namespace {

constexpr OptionInfo megatron_options[] = {
    {"tensor", "all", "all or a whole number from 1 to 65536", "devices that share out each block", is_all_or_count},
    {"sequence", "no", "yes or no", "also share out the positions of what lies between blocks",
     [](std::string_view text) { return text == "yes" || text == "no"; }},
    collectives_option};

/// Heads of an attention, inner numbers of an MLP, words of the vocabulary; as the synthetic transformer names them.
constexpr std::string_view within_blocks[] = {"a", "f", "v"};
constexpr std::string_view between_blocks = "s";

std::uint32_t tensor_ranks(const Options& options, std::uint32_t devices) {
  return asked_devices(options, "tensor", devices);
}

std::variant<Problem, std::string> megatron_ranks(const Problem& problem, const Options& options) {
  SplitPlan plan{{{{"tensor", tensor_ranks(options, devices_left(problem)), false, way_of(options)}}}, {}};
  plan.cuts.assign(problem.graph.ops.size(), {std::nullopt});
  const bool cuts_positions = options.text("sequence") == "yes";
  bool cuts_blocks = false;
  for (std::size_t o = 0; o < problem.graph.ops.size() && plan.mesh.ranks() > 1; ++o) {
    if (problem.graph.ops[o].phase == Phase::update) continue;
    const std::variant<OpLoop, std::string> found = loop_of(problem.graph, id_at<OpId>(o));
    const OpLoop* loop = std::get_if<OpLoop>(&found);
    if (loop == nullptr) continue;
    for (const std::string_view name : within_blocks) {
      if (!plan.cuts[o].front()) plan.cuts[o].front() = loop->dim(name);
    }
    if (plan.cuts[o].front()) {
      cuts_blocks = true;
    } else if (cuts_positions) {
      plan.cuts[o].front() = loop->dim(between_blocks);
    }
  }
  if (!problem.chain && plan.mesh.ranks() > 1 && !cuts_blocks) {
    return fmt::format("no op of '{}' has a loop over heads ('a'), inner numbers ('f') or words ('v')",
                       problem.graph.name);
  }
  return on_mesh(problem, std::move(plan));
}

}  // namespace

extern constinit const StrategyInfo megatron_strategy{
    .name = "megatron",
    .family = Family::hybrid,
    .summary = "Tensor parallelism: devices share out the heads of attentions and the inner numbers of MLPs.",
    .source =
        "Shoeybi et al., Megatron-LM, 2019; sequence: Korthikanti et al., Reducing Activation Recomputation in "
        "Large Transformer Models, 2022",
    .chains_only = false,
    .options = megatron_options,
    .tapes = nullptr,
    .candidates = nullptr,
    .transform = megatron_ranks,
    .ranks = tensor_ranks,
};

}  // namespace plimsoll
