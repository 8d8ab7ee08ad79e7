#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <tuple>

#include "sim/mesh/rank_graph.h"
#include "strategies/api/strategy.h"
#include "strategies/hybrid/built.h"
#include "strategies/hybrid/on_mesh.h"

namespace plimsoll {
namespace {

struct MegatronOptions : MeshOptions {
  std::optional<std::uint32_t> tensor;
  bool sequence = false, asynchronous = false, scatter = false;
  MainGradients main_gradients = MainGradients::automatic;
};

constexpr auto megatron_options = options_of<MegatronOptions>(
    option_of<&MegatronOptions::tensor>({
        .name = "tensor",
        .least = 1,
        .most = 65'536,
        .none = "all",
        .help = "devices that share out each block",
    }),
    option_of<&MegatronOptions::sequence>({
        .name = "sequence",
        .words = "no yes",
        .values = "yes or no",
        .help = "also split the sequence positions of the ops between blocks (sequence parallelism)",
    }),
    option_of<&MegatronOptions::asynchronous>({
        .name = "asynchronous",
        .words = "no yes",
        .values = "yes or no",
        .help = "with sequence=yes: products run in blocks while the next block of what they gather, or of what they "
                "scatter, goes round",
    }),
    option_of<&MegatronOptions::scatter>({
        .name = "scatter",
        .words = "no yes",
        .values = "yes or no",
        .help = "before a pipeline: each device sends its share of a value to the next stage, whose devices gather it",
    }),
    option_of<&MegatronOptions::main_gradients>({
        .name = "main_gradients",
        .words = "auto fp32 as_parameters",
        .help = "type in which 16-bit parameter gradients are summed and kept; auto: Megatron's default, fp32 for "
                "parameters in bf16",
    }),
    collectives_option);

/// Heads of an attention, inner numbers of an MLP, words of the vocabulary; as the synthetic transformer names them.
constexpr std::string_view within_blocks[] = {"a", "f", "v"};
constexpr std::string_view between_blocks = "s";

std::uint32_t tensor_ranks(const MegatronOptions& options, std::uint32_t devices) {
  return options.tensor.value_or(devices);
}

/// An op that needs all of its dimension, such as the loss of eager PyTorch all words, has it gathered.
std::optional<std::uint8_t> cuttable(const OpLoop& loop, std::string_view name) {
  const std::optional<std::uint8_t> dim = loop.dim(name);
  return dim && loop.dims[*dim].cuttable ? dim : std::nullopt;
}

/// What the words of a vocabulary come in for each device (Megatron's --make-vocab-size-divisible-by).
constexpr std::int64_t words_together = 128;

/// Words and inner numbers that the ranks do not divide are padded: words to a multiple of 128 for each rank.
void decide_paddings(const Graph& graph, std::int64_t ranks, Decisions& decisions) {
  for (const auto& [name, what, together] : {std::tuple{"v", "words", words_together}, {"f", "inner numbers", 1L}}) {
    std::set<std::int64_t> sizes;
    for (std::size_t o = 0; o < graph.ops.size(); ++o) {
      if (graph.ops[o].phase == Phase::update) continue;
      const std::variant<OpLoop, std::string> found = loop_of(graph, id_at<OpId>(o));
      const OpLoop* loop = std::get_if<OpLoop>(&found);
      const auto dim = loop == nullptr ? std::nullopt : cuttable(*loop, name);
      if (dim && loop->dims[*dim].size % ranks != 0) sizes.insert(loop->dims[*dim].size);
    }
    for (const std::int64_t size : sizes) {
      const std::int64_t multiple = together * ranks, to = (size + multiple - 1) / multiple * multiple;
      decisions.paddings.push_back({name, size, to});
      decisions.notes.push_back(fmt::format("{} {} are padded to {}, a multiple of {}{}", size, what, to, multiple,
                                            together > 1 ? ", as Megatron does" : ""));
    }
  }
}

std::variant<Decisions, std::string> megatron_splits(const Problem& problem, const MegatronOptions& options,
                                                     const Deadline&) {
  if (problem.chain) return no_operators(*problem.chain);
  if (options.asynchronous && !options.sequence) {
    return "asynchronous=yes: needs sequence=yes, whose blocks go round; without it whole sums are exchanged";
  }
  if (options.scatter && options.sequence) {
    return "scatter=yes: with sequence=yes values between stages are shares already";
  }
  if (problem.mesh && !problem.uncut) return std::string(cuts_first);
  const Graph& graph = problem.uncut ? problem.uncut->graph : problem.graph;
  const std::uint32_t ranks = tensor_ranks(options, devices_left(problem));
  SplitPlan plan{{{{"tensor", ranks, false, options.collectives, options.scatter}}}, {}};
  plan.cuts.assign(graph.ops.size(), {std::nullopt});
  const bool cuts_positions = options.sequence;
  bool cuts_blocks = false;
  for (std::size_t o = 0; o < graph.ops.size() && ranks > 1; ++o) {
    if (graph.ops[o].phase == Phase::update) continue;
    const std::variant<OpLoop, std::string> found = loop_of(graph, id_at<OpId>(o));
    const OpLoop* loop = std::get_if<OpLoop>(&found);
    if (loop == nullptr) continue;
    for (const std::string_view name : within_blocks) {
      if (!plan.cuts[o].front()) plan.cuts[o].front() = cuttable(*loop, name);
    }
    if (plan.cuts[o].front()) {
      cuts_blocks = true;
    } else if (cuts_positions) {
      plan.cuts[o].front() = cuttable(*loop, between_blocks);
    }
  }
  if (ranks > 1 && !cuts_blocks) {
    return fmt::format("no op of '{}' has a loop over heads ('a'), inner numbers ('f') or words ('v')", graph.name);
  }
  Decisions decisions = decisions_of(graph, std::move(plan));
  decide_paddings(graph, ranks, decisions);
  decisions.main_gradients = options.main_gradients;
  if (options.asynchronous && ranks > 1) decisions.asynchronous = "tensor";
  return decisions;
}

}  // namespace

extern constinit const StrategyInfo megatron_strategy{
    .name = "megatron",
    .family = Family::hybrid,
    .summary = "Tensor parallelism: devices share the attention heads and the inner dimension of MLPs.",
    .source =
        "Shoeybi et al., Megatron-LM, 2019; sequence: Korthikanti et al., Reducing Activation Recomputation in "
        "Large Transformer Models, 2022",
    .options = megatron_options,
    .kind = SplitStrategy{.decide = by_options<megatron_splits>, .ranks = by_options<tensor_ranks>},
};

}  // namespace plimsoll
