// Each kind of layer packs what it saves in a way of its own: `actnn`, `mesa`, `blpa` and `acgc`.

#include <algorithm>
#include <array>

#include "sim/codec/predicted_error.h"
#include "sim/ops/layers.h"
#include "strategies/api/pass.h"
#include "strategies/compression/packing.h"
#include "strategies/list.h"

namespace plimsoll {
namespace {

struct ActnnOptions {
  std::int64_t level = 3;
};

/// Scale and minimum in bf16, and the bits of each sample as a whole number. Samples are padded to whole groups.
Codec actnn_codec(std::uint32_t bits, std::uint32_t copy) {
  return {.kind = CodecKind::quantize,
          .bits = bits,
          .group = 256,
          .group_bytes = 4,
          .padding = Padding::sample,
          .sample_bytes = 4,
          .copy = copy};
}

std::optional<Codec> actnn_choice(std::int64_t level, const SavedTensor& tensor, const SavedUse& use, bool is_index) {
  const auto copy = static_cast<std::uint32_t>(&use - tensor.uses.data());  // each layer keeps its own
  const std::uint32_t bits = level >= 3 ? 2 : 4;
  switch (use.by) {
    case SavedBy::conv:
    case SavedBy::linear:
      return actnn_codec(bits, copy);
    case SavedBy::bn:
      return level == 1 || use.is_result ? std::nullopt : std::optional(actnn_codec(bits, copy));
    case SavedBy::relu:
      return Codec{.kind = CodecKind::mask, .bits = 1};
    case SavedBy::pool:
      return is_index ? Codec{.kind = CodecKind::index} : Codec{.kind = CodecKind::mask, .bits = 1};
    default:
      return std::nullopt;
  }
}

constexpr std::int64_t first_with_mixed_bits = 3, moves_to_host = 4, defragments = 5;  // levels

/// In every iteration and layer: the norm of each sample's output gradient, read once more than without; then the
/// device waits while the sensitivities go to the host and the bits that it chooses come back.
Seconds time_to_choose(const Graph& graph, const Op& backward, const Device& device, const OffloadModel& model) {
  Seconds time = model.has_host ? model.out.latency + model.in.latency : Seconds{0};
  for (const TensorId t : backward.inputs) {
    if (graph[t].kind != TensorKind::gradient || !device.memory_bandwidth) continue;
    time = time + graph[t].bytes / *device.memory_bandwidth + device.launch_overhead;
  }
  return time;
}

constexpr auto actnn_options = options_of<ActnnOptions>(option_of<&ActnnOptions::level>({
    .name = "level",
    .least = 1,
    .most = defragments,
    .values = "1, 2, 3, 4 or 5",
    .help = "1: inputs of convolutions and linear layers in 4 bits; 2: also inputs of batch norms; 3: 2 bits on "
            "average; 4: also copies kept values to the host, on the compute stream; 5: as 4, in memory that the "
            "allocator defragments",
}));

std::vector<TapeOutcome> actnn_tapes(const PartTask& task, const ActnnOptions& options,
                                     std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  const std::int64_t level = options.level;
  if (level == defragments) {
    std::vector<TapeOutcome> made = actnn_tapes(task, {.level = moves_to_host}, budgets, before);
    for (TapeOutcome& outcome : made) {
      if (PlannedTape* tape = std::get_if<PlannedTape>(&outcome)) {
        tape->note =
            "level 5 keeps the same as level 4 and defragments memory: that is --allocator static; the time of moving "
            "memory is not modelled";
      }
    }
    return made;
  }
  if (level == moves_to_host) {
    const std::array<std::optional<Bytes>, 1> unlimited{};
    const std::vector<TapeOutcome> made = actnn_tapes(task, {.level = first_with_mixed_bits}, unlimited, before);
    if (const Infeasible* none = std::get_if<Infeasible>(&made[0])) return {budgets.size(), *none};
    const Pass copies = pass_of(save_on_cpu_strategy);
    return copies.strategy->tapes(task, copies.options, budgets, &std::get<PlannedTape>(made[0]).tape);
  }
  const Device& device = task.problem.platform[task.part().device];
  return packed_tapes(task, "actnn", budgets, before, [&](const Graph& graph, std::span<const SavedTensor> saved) {
    refuse_if_unfit("actnn", graph, saved, "all", actnn_codec(4, 0));
    PackingChoice made([level, &graph](const SavedTensor& tensor, const SavedUse& use) {
      const bool is_index = graph[tensor.tensor].dtype.starts_with("int");
      return actnn_choice(level, tensor, use, is_index);
    });
    if (level >= first_with_mixed_bits) {
      made.overhead = [&](const OffloadModel& model, const SavedUse& use) {
        return time_to_choose(graph, graph[use.op], device, model);
      };
    }
    return made;
  });
}

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
    .help = "number of groups of each value; heads: the number of attention heads of the network, 1 without attention",
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

struct BlpaOptions {
  std::uint32_t bits = 4;
};

/// The range is that of normalized values, three standard deviations to each side. Half of the numbers are for values
/// above 0, so that the signs of what a ReLU has made are exact.
Codec blpa_codec(std::uint32_t bits, bool is_rectified) {
  return {.kind = CodecKind::quantize, .bits = bits, .keeps_signs = is_rectified};
}

std::optional<Codec> blpa_choice(std::uint32_t bits, const SavedTensor& tensor, const SavedUse& use) {
  const bool is_rectified =
      std::ranges::any_of(tensor.uses, [](const SavedUse& each) { return each.by == SavedBy::relu && each.is_result; });
  switch (use.by) {
    case SavedBy::conv:
    case SavedBy::linear:
    case SavedBy::relu:
    case SavedBy::pool:
      return blpa_codec(bits, is_rectified);
    case SavedBy::bn:
      return use.is_result ? std::nullopt : std::optional(blpa_codec(bits, is_rectified));
    default:
      return std::nullopt;
  }
}

constexpr auto blpa_options = options_of<BlpaOptions>(option_of<&BlpaOptions::bits>({
    .name = "bits",
    .words = "4 8",
    .help = "bits of a number",
}));

std::vector<TapeOutcome> blpa_tapes(const PartTask& task, const BlpaOptions& options,
                                    std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  const auto bits = options.bits;
  return packed_tapes(
      task, "blpa", budgets, before, [bits](const Graph& graph, std::span<const SavedTensor> saved) -> CodecChoice {
        refuse_if_unfit("blpa", graph, saved, "all", blpa_codec(bits, false));
        return [bits](const SavedTensor& tensor, const SavedUse& use) { return blpa_choice(bits, tensor, use); };
      });
}

struct AcgcOptions : PackedOptions {
  std::optional<std::uint32_t> bits = 8;
  double error = 0.1;
  double nonzero = 1;
};

constexpr std::uint32_t bytes_of_scale = 4;  // the largest absolute value of a channel, in fp32

constexpr std::uint32_t fewest_bits = 2, most_bits = 16;

struct AcgcRule {
  std::uint32_t bits = 8;  ///< 0: as few as keep to the error
  double error = 0.1;      ///< of a layer's gradient, relative, by what white noise loses
  double nonzero = 1;      ///< below 1: what ReLUs make has a mask of its zeros
  std::optional<Codec> relu;
};

/// The fewest for which what is lost of white noise, which the gradient of a layer's weight loses likewise, is at most
/// the error; as many as there are, where it is more.
std::uint32_t bits_within(double error, Codec codec, std::int64_t values, bool has_zeros) {
  codec.group = static_cast<std::uint32_t>(std::max<std::int64_t>(1, values / codec.parts));
  codec.bits = fewest_bits;
  const Noise noise = has_zeros ? Noise::rectified : Noise::normal;
  while (codec.bits < most_bits && codec_error(codec, noise) > error) ++codec.bits;
  return codec.bits;
}

Codec acgc_codec(const AcgcRule& rule, const Tensor& tensor, bool channels_last, bool has_zeros) {
  const std::vector<std::int64_t>& shape = tensor.shape;
  const bool are_second = shape.size() == 4 && !channels_last;
  const std::int64_t channels = shape.empty() ? 1 : are_second ? shape[1] : shape.back();
  Codec codec{.kind = CodecKind::quantize,
              .channels_last = shape.size() == 4 && channels_last,
              .bits = rule.bits,
              .parts = static_cast<std::uint32_t>(channels),
              .group_bytes = bytes_of_scale};
  if (has_zeros && rule.nonzero < 1) {
    codec.keeps_signs = codec.zero_mask = true;
    codec.keep = rule.nonzero;
  }
  if (rule.bits == 0 && !shape.empty()) {
    codec.bits = bits_within(rule.error, codec, rows_of(tensor) * shape.back(), has_zeros);
  }
  return codec;
}

std::optional<Codec> acgc_choice(const AcgcRule& rule, const Graph& graph, bool channels_last,
                                 const SavedTensor& tensor, const SavedUse& use) {
  const bool by_relu =
      std::ranges::any_of(tensor.uses, [](const SavedUse& each) { return each.by == SavedBy::relu && each.is_result; });
  const Codec codec = acgc_codec(rule, graph[tensor.tensor], channels_last, by_relu);
  switch (use.by) {
    case SavedBy::conv:
    case SavedBy::linear:
      return codec;
    case SavedBy::bn:
      return use.is_result ? std::nullopt : std::optional(codec);
    case SavedBy::relu:
    case SavedBy::pool:
      return codec.zero_mask ? std::optional(codec) : rule.relu;
    default:
      return std::nullopt;
  }
}

constexpr auto acgc_options = options_of<AcgcOptions>(
    option_of<&AcgcOptions::bits>({
        .name = "bits",
        .least = fewest_bits,
        .most = most_bits,
        .values = "auto or a whole number from 2 to 16",
        .help = "bits of a number; auto: for each value the fewest that keep to the error",
    }),
    option_of<&AcgcOptions::error>({
        .name = "error",
        .least = 0.0001,
        .most = 1,
        .help = "with bits=auto: the largest relative error of a value, taken as white noise, and so of the gradient "
                "of its layer's weight",
    }),
    option_of<&AcgcOptions::nonzero>({
        .name = "nonzero",
        .least = 0.01,
        .most = 1,
        .help = "below 1: the output of a ReLU is kept as a bit for each value and a number for each value that is not "
                "0; these are at most this share of all values (measure it on your data)",
    }),
    relu_option);

std::vector<TapeOutcome> acgc_tapes(const PartTask& task, const AcgcOptions& options,
                                    std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  const AcgcRule rule{.bits = options.bits.value_or(0),
                      .error = options.error,
                      .nonzero = options.nonzero,
                      .relu = relu_codec(options)};
  return packed_tapes(
      task, "acgc", budgets, before, [&rule](const Graph& graph, std::span<const SavedTensor> saved) -> CodecChoice {
        refuse_if_unfit("acgc", graph, saved, "all", Codec{.kind = CodecKind::quantize});
        return [&rule, &graph, last = has_channels_last(graph)](const SavedTensor& tensor, const SavedUse& use) {
          return acgc_choice(rule, graph, last, tensor, use);
        };
      });
}

}  // namespace

// The strategy `actnn`: layers of ActNN, each of which quantizes its own saved values. Source: Chen et al., ActNN:
// Reducing Training Memory Footprint via 2-Bit Activation Compressed Training (ICML 2021), and its program.
extern constinit const StrategyInfo actnn_strategy{
    .name = "actnn",
    .family = Family::compression,
    .summary =
        "keeps inputs of convolutional, linear and batch norm layers in 2 or 4 bits, signs for ReLUs, places for "
        "poolings",
    .source = "Chen et al., ActNN, ICML 2021",
    .options = actnn_options,
    .kind = TapeStrategy{.tapes = by_options<actnn_tapes>, .packs_stages = true},
};

// The strategy `mesa`: layers of Mesa, each of which keeps its own inputs in 8 bits, in groups of heads or channels by
// the running range of each. Source: Pan et al., Mesa: A Memory-saving Training Framework for Transformers (arXiv
// 2111.11124, 2021), and its program.
extern constinit const StrategyInfo mesa_strategy{
    .name = "mesa",
    .family = Family::compression,
    .summary = "keeps inputs of layers in 8 bits, in groups of heads or channels, each layer its own",
    .source = "Pan et al., Mesa, arXiv 2111.11124, 2021",
    .options = mesa_options,
    .kind = TapeStrategy{.tapes = by_options<mesa_tapes>},
};

// The strategy `blpa`: one quantized copy of what a layer makes serves all who need it in the backward, within a fixed
// range, so that nothing is read for it first. Source: Chakrabarti and Moseley, Backprop with Approximate Activations
// for Memory-efficient Network Training (NeurIPS 2019), and its program.
extern constinit const StrategyInfo blpa_strategy{
    .name = "blpa",
    .family = Family::compression,
    .summary = "keeps values of a fixed range in 4 or 8 bits, one copy for all layers that use them",
    .source = "Chakrabarti and Moseley, NeurIPS 2019",
    .options = blpa_options,
    .kind = TapeStrategy{.tapes = by_options<blpa_tapes>},
};

// The strategy `acgc`: saved values wait as numbers of a few bits, by a scale for each channel. Source: Evans and
// Aamodt, AC-GC: Lossy Activation Compression with Guaranteed Convergence (NeurIPS 2021), and its program.
extern constinit const StrategyInfo acgc_strategy{
    .name = "acgc",
    .family = Family::compression,
    .summary =
        "keeps inputs of layers as numbers of a few bits by a scale for each channel, without their zeros if asked",
    .source = "Evans and Aamodt, AC-GC, NeurIPS 2021",
    .options = acgc_options,
    .kind = TapeStrategy{.tapes = by_options<acgc_tapes>},
};

}  // namespace plimsoll
