// The strategy `prune_bsr`: of saved values, as matrices of one row for each vector of the last dimension, only the
// blocks with the largest norms wait for the backward, in block sparse rows; the others are taken for 0. Source: Barley
// and Froening, Compressing the Backward Pass of Large-Scale Neural Architectures by Structured Activation Pruning
// (arXiv 2311.16883, 2023).

#include "strategies/compression/packing.h"

namespace plimsoll {
namespace {

struct PruneBsrOptions : PackedOptions {
  PruneBsrOptions() { tensors = "linear.input+conv.input"; }

  std::uint32_t block = 8;
  double keep = 0.25;
  std::optional<double> product;
};

constexpr auto prune_bsr_options = options_of<PruneBsrOptions>(
    option_of<&PruneBsrOptions::block>({
        .name = "block",
        .least = 1,
        .most = 256,
        .help = "rows and columns of a block",
    }),
    option_of<&PruneBsrOptions::keep>({
        .name = "keep",
        .least = 0.001,
        .most = 1,
        .help = "share of the blocks that stay",
    }),
    tensors_option,
    option_of<&PruneBsrOptions::product>({
        .name = "product",
        .least = 0.01,
        .most = 1,
        .none = "unpack",
        .help = "how the gradient of a linear layer's weight is computed: from the unpacked value, or by a product of "
                "blocks, at that share of the device's rate",
    }),
    relu_or_anew_option, packed_store_option);

std::vector<TapeOutcome> prune_bsr_tapes(const PartTask& task, const PruneBsrOptions& options,
                                         std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  const Codec codec{.kind = CodecKind::block_sparse,
                    .block = options.block,
                    .keep = options.keep,
                    .product = options.product.value_or(0)};
  return packed_tapes(task, "prune_bsr", budgets, before, choice_by_pattern("prune_bsr", codec, options));
}

}  // namespace

extern constinit const StrategyInfo prune_bsr_strategy{
    .name = "prune_bsr",
    .family = Family::compression,
    .summary = "keeps only the blocks of saved values with the largest norms until the backward",
    .source = "Barley and Froening, arXiv 2311.16883, 2023",
    .options = prune_bsr_options,
    .kind = TapeStrategy{.tapes = by_options<prune_bsr_tapes>, .packs_stages = true},
};

}  // namespace plimsoll
