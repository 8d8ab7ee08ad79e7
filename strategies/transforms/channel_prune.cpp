// The transform `channel_prune`: a convolutional network whose convolutions have fewer channels.
// A layer of c channels keeps max(1, round((1 - ratio) c)). Memory follows the shapes; the time of a convolution goes
// in steps, those of a measured table (channel_times.h). Source: Li, Kadav, Durdanovic, Samet, Graf, "Pruning filters
// for efficient ConvNets", ICLR 2017 (whole filters, the network smaller from then on). That time goes in steps: Radu
// et al., "Performance aware convolutional neural network channel pruning for embedded GPUs", IISWC 2019.

#include <fmt/format.h>

#include <string>
#include <variant>

#include "strategies/api/strategy.h"
#include "strategies/transforms/channel_times.h"
#include "strategies/transforms/pruned_graph.h"

namespace plimsoll {
namespace {

struct ChannelPruneOptions {
  double ratio = 0.5;
  bool by_table = true;
};

double share_by_table(ChannelCounts before, ChannelCounts after) {
  return time_with_outputs(after.outputs) / time_with_outputs(before.outputs) * time_with_inputs(after.inputs) /
         time_with_inputs(before.inputs);
}

double share_by_operations(ChannelCounts before, ChannelCounts after) {
  const auto product = [](ChannelCounts c) { return static_cast<double>(c.outputs) * static_cast<double>(c.inputs); };
  return product(after) / product(before);
}

std::int64_t numbers_of_parameters(const Graph& graph) {
  std::int64_t sum = 0;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.kind == TensorKind::parameter) sum += numbers_of(tensor);
  }
  return sum;
}

std::variant<Problem, std::string> channel_prune(const Problem& problem, const ChannelPruneOptions& options) {
  if (problem.chain) return "'" + problem.graph.name + "' is a chain, and only graphs have channels to prune";
  std::variant<Graph, std::string> made =
      pruned_graph(problem.graph, options.ratio, options.by_table ? share_by_table : share_by_operations);
  if (std::string* why = std::get_if<std::string>(&made)) return std::move(*why);
  Problem changed = problem;
  changed.graph = std::get<Graph>(std::move(made));
  changed.notes.push_back(
      fmt::format("channel_prune keeps {} of {} numbers of parameters; convolutions take {}",
                  numbers_of_parameters(changed.graph), numbers_of_parameters(problem.graph),
                  options.by_table ? "the share of their time that was measured on a CPU" : "the share of their operations"));
  return changed;
}

constexpr auto channel_prune_options = options_of<ChannelPruneOptions>(
    option_of<&ChannelPruneOptions::ratio>({
        .name = "ratio",
        .least = 0,
        .most = 0.99,
        .help = "share of the channels of every convolution that goes",
    }),
    option_of<&ChannelPruneOptions::by_table>({
        .name = "times",
        .words = "proportional measured",
        .values = "measured or proportional",
        .help = "of convolutions: in the steps that were measured, or in proportion to their operations",
    }));

}  // namespace

extern constinit const StrategyInfo channel_prune_strategy{
    .name = "channel_prune",
    .family = Family::transform,
    .summary = "takes a share of the channels out of every convolution; its time goes in measured steps",
    .source = "Li et al., 'Pruning filters for efficient ConvNets', ICLR 2017",
    .chains_only = false,
    .options = channel_prune_options,
    .tapes = nullptr,
    .candidates = nullptr,
    .needs_shapes = true,
    .transform = by_options<channel_prune>,
};

}  // namespace plimsoll
