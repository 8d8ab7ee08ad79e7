// The transform `patch`: inference whose first stages run patch by patch, so that their large pictures are never there
// whole. Patches overlap by their windows' halo, which is computed again in each.
// A patch of p x p of the result needs (p - 1) s + r squared of the input, s the product of the strides, r the
// receptive field; operations grow to the sum of the patches' areas over the whole; memory is the result and one
// patch's values. Source: Lin, Chen, Cai, Gan, Han, "MCUNetV2: memory-efficient patch-based inference for tiny deep
// learning", NeurIPS 2021.

#include <fmt/format.h>

#include <string>
#include <variant>

#include "strategies/api/strategy.h"
#include "strategies/transforms/patched_graph.h"
#include "strategies/transforms/stored_prefix.h"

namespace plimsoll {
namespace {

struct PatchOptions {
  std::int64_t patches = 2;
  std::size_t stages = 1;
  std::int64_t pool = 3;
};

std::variant<Problem, std::string> patch(const Problem& problem, const PatchOptions& options) {
  if (problem.chain)
    return "'" + problem.graph.name + "' is a chain, whose stages do not say how their pictures overlap";
  const std::vector<std::uint32_t> stages = forward_stages(problem.graph);
  const std::size_t first = options.stages;
  if (first >= stages.size()) {
    return fmt::format("'{}' has {} stages, and one must be behind the {} in patches", problem.graph.name,
                       stages.size(), first);
  }
  const PatchChoice choice{options.patches, stages[first], options.pool};
  std::variant<PatchedGraph, std::string> made = patched_graph(problem.graph, choice);
  if (std::string* why = std::get_if<std::string>(&made)) return std::move(*why);
  auto& patched = std::get<PatchedGraph>(made);
  Problem changed = problem;
  changed.graph = std::move(patched.graph);
  changed.optimizer = Optimizer::none;
  changed.states.reset();
  changed.notes.push_back(fmt::format(
      "patch runs {} stages in {} x {} patches with {:.3f} times their operations; this is "
      "inference: nothing runs backward",
      first, choice.side, choice.side, patched.before.count > 0 ? patched.after.count / patched.before.count : 1.0));
  return changed;
}

constexpr auto patch_options =
    options_of<PatchOptions>(option_of<&PatchOptions::patches>({
                                 .name = "patches",
                                 .least = 1,
                                 .most = 64,
                                 .help = "patches in a row and in a column",
                             }),
                             option_of<&PatchOptions::stages>({
                                 .name = "stages",
                                 .least = 1,
                                 .most = 1'000'000,
                                 .values = "a whole number from 1",
                                 .help = "how many of the first stages run patch by patch",
                             }),
                             option_of<&PatchOptions::pool>({
                                 .name = "pool",
                                 .least = 1,
                                 .most = 64,
                                 .help = "side of the windows of poolings, which graphs do not state",
                             }));

}  // namespace

extern constinit const StrategyInfo patch_strategy{
    .name = "patch",
    .family = Family::transform,
    .summary = "inference whose first stages run patch by patch, the patches' halos again in each",
    .source = "Lin et al., 'MCUNetV2: memory-efficient patch-based inference for tiny deep learning', NeurIPS 2021",
    .chains_only = false,
    .options = patch_options,
    .tapes = nullptr,
    .candidates = nullptr,
    .needs_shapes = true,
    .transform = by_options<patch>,
};

}  // namespace plimsoll
