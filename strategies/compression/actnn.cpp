// The strategy `actnn`: layers of ActNN, each of which quantizes its own saved values. Source: Chen et al., ActNN:
// Reducing Training Memory Footprint via 2-Bit Activation Compressed Training (ICML 2021), and its program.

#include <array>

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
    .help = "1: inputs of convolutions and linear layers in 4 bits; 2: those of "
            "batch norms, too; 3: 2 bits in the mean; 4: and "
            "what is kept is copied to the host, on the stream that computes; 5: the "
            "same in defragmented memory, which is the allocator's part",
}));

std::vector<TapeOutcome> actnn_tapes(const PartTask& task, const ActnnOptions& options,
                                     std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  const std::int64_t level = options.level;
  if (level == defragments) {
    std::vector<TapeOutcome> made = actnn_tapes(task, {.level = moves_to_host}, budgets, before);
    for (TapeOutcome& outcome : made) {
      if (PlannedTape* tape = std::get_if<PlannedTape>(&outcome)) {
        tape->note =
            "level 5 keeps what level 4 does and defragments memory: that is --allocator static; what moving memory "
            "takes is not modelled";
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

}  // namespace

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

}  // namespace plimsoll
