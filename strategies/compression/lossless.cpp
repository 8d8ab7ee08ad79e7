// The strategy `lossless`: saved values wait for the backward without their zeros, of which ReLUs make many: a bit for
// each value, and the values that are not 0. Exact; how many bytes it takes depends on the values, so that a share of
// them is reserved. Source: zero-value coding; Jain et al., Gist (ISCA 2018).

#include "strategies/compression/packing.h"

namespace plimsoll {
namespace {

struct LosslessOptions : PackedOptions {
  LosslessOptions() { tensors = "conv.input+linear.input"; }

  double nonzero = 0.5;
};

constexpr auto lossless_options = options_of<LosslessOptions>(
    option_of<&LosslessOptions::nonzero>({
        .name = "nonzero",
        .least = 0.01,
        .most = 1,
        .help = "share of the values that are not 0 at most: so much is reserved (measure it on your data)",
    }),
    tensors_option, relu_or_anew_option, packed_store_option);

std::vector<TapeOutcome> lossless_tapes(const PartTask& task, const LosslessOptions& options,
                                        std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  const Codec codec{.kind = CodecKind::zero_run, .keep = options.nonzero};
  return packed_tapes(task, "lossless", budgets, before, choice_by_pattern("lossless", codec, options));
}

}  // namespace

extern constinit const StrategyInfo lossless_strategy{
    .name = "lossless",
    .family = Family::compression,
    .summary = "keeps saved values without their zeros until the backward",
    .source = "zero-value coding; Jain et al., Gist, ISCA 2018",
    .options = lossless_options,
    .kind = TapeStrategy{.tapes = by_options<lossless_tapes>, .packs_stages = true},
};

}  // namespace plimsoll
