// The strategy `mesa`: layers of Mesa, each of which keeps its own inputs in 8 bits, in groups of heads or channels by
// the running range of each. Source: Pan et al., Mesa: A Memory-saving Training Framework for Transformers (arXiv
// 2111.11124, 2021), and its program.

#include <algorithm>

#include "sim/ops/layers.h"
#include "strategies/compression/packing.h"

namespace plimsoll {
namespace {

struct MesaOptions {
  std::optional<std::uint32_t> groups;
};

/// The heads of an attention whose operands are samples x heads, rows and depth, or whose maps are samples x heads x
/// rows x rows; 1 where there is none.
std::uint32_t heads_of(const Graph& graph) {
  const auto input = std::ranges::find(graph.tensors, TensorKind::input, &Tensor::kind);
  if (input == graph.tensors.end() || input->shape.empty()) return 1;
  const std::int64_t samples = input->shape[0];
  for (const Op& op : graph.ops) {
    if (op.phase != Phase::forward || layer_of(op) != SavedBy::matmul || op.inputs.empty() || op.outputs.empty())
      continue;
    const std::vector<std::int64_t>& shape = graph[op.inputs[0]].shape;
    const bool is_batched = shape.size() == 3 && samples > 0 && shape[0] % samples == 0 && shape[0] > samples;
    if (is_batched) return static_cast<std::uint32_t>(shape[0] / samples);
    const std::vector<std::int64_t>& made = graph[op.outputs[0]].shape;
    if (made.size() == 4) return static_cast<std::uint32_t>(made[1]);
  }
  return 1;
}

/// Range and minimum of each group in fp32. The values of several groups are put in order by a copy.
Codec mesa_codec(std::uint32_t groups, std::uint32_t copy, bool channels_last = false) {
  return {.kind = CodecKind::quantize,
          .channels_last = channels_last,
          .bits = 8,
          .parts = groups,
          .regrouped = groups > 1,
          .group_bytes = 8,
          .copy = copy};
}

std::optional<Codec> mesa_choice(std::uint32_t groups, const Graph& graph, bool channels_last,
                                 const SavedTensor& tensor, const SavedUse& use) {
  const auto copy = static_cast<std::uint32_t>(1 + (&use - tensor.uses.data()));  // each layer keeps its own
  const bool is_picture = graph[tensor.tensor].shape.size() == 4 && channels_last;
  switch (use.by) {
    case SavedBy::bn:
    case SavedBy::ln:
      return use.is_result ? std::nullopt : std::optional(mesa_codec(groups, copy, is_picture));
    case SavedBy::conv:
    case SavedBy::linear:
    case SavedBy::relu:
    case SavedBy::gelu:
      return mesa_codec(groups, copy, is_picture);
    case SavedBy::matmul:
    case SavedBy::softmax:  // maps: heads are the second of four dimensions
      return mesa_codec(groups, copy);
    default:
      return std::nullopt;
  }
}

/// Inputs of softmax layers, which the program keeps and restores beside their results, though no formula reads them.
std::vector<UnreadForm> softmax_inputs(const Graph& graph, const OffloadModel& model, const Codec& codec) {
  std::vector<UnreadForm> unread;
  const auto runs = [&](std::uint32_t position) {
    const Action& action = model.computes[position];
    return action.kind == ActionKind::run && layer_of(graph[action.op]) == SavedBy::softmax ? &graph[action.op]
                                                                                            : nullptr;
  };
  for (std::uint32_t from = 0; from < model.turn; ++from) {
    const Op* made = runs(from);
    if (made == nullptr || made->inputs.empty() || made->outputs.empty()) continue;
    const TensorId x = made->inputs[0], y = made->outputs[0];
    if (graph[x].kind != TensorKind::activation || graph[x].storage == graph[y].storage) continue;
    for (std::uint32_t until = from + 1; until < model.positions(); ++until) {
      const Op* reader = runs(until);
      if (reader == made) break;  // it is recomputed: nothing of the first run is kept
      if (reader == nullptr || !is_backward(reader->phase)) continue;
      if (std::ranges::find(reader->inputs, y) == reader->inputs.end()) continue;
      unread.push_back({x, from, until, codec});
      break;
    }
  }
  return unread;
}

constexpr auto mesa_options = options_of<MesaOptions>(option_of<&MesaOptions::groups>({
    .name = "groups",
    .least = 1,
    .most = 4096,
    .none = "heads",
    .help =
        "into how many groups every value falls; heads: as many as the network's attention has heads, 1 without one",
}));

std::vector<TapeOutcome> mesa_tapes(const PartTask& task, const MesaOptions& options,
                                    std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  const std::uint32_t groups = options.groups ? *options.groups : heads_of(task.problem.graph);
  const ChoiceOf choice = [groups](const Graph& graph, std::span<const SavedTensor> saved) -> CodecChoice {
    refuse_if_unfit("mesa", graph, saved, "all", mesa_codec(groups, 0));
    return [groups, &graph, last = has_channels_last(graph)](const SavedTensor& tensor, const SavedUse& use) {
      return mesa_choice(groups, graph, last, tensor, use);
    };
  };
  return packed_tapes(task, "mesa", budgets, before, choice, [groups](const Graph& graph, const OffloadModel& model) {
    return softmax_inputs(graph, model, mesa_codec(groups, 0));
  });
}

}  // namespace

extern constinit const StrategyInfo mesa_strategy{
    .name = "mesa",
    .family = Family::compression,
    .summary = "keeps inputs of layers in 8 bits, in groups of heads or channels, each layer its own",
    .source = "Pan et al., Mesa, arXiv 2111.11124, 2021",
    .options = mesa_options,
    .kind = TapeStrategy{.tapes = by_options<mesa_tapes>},
};

}  // namespace plimsoll
