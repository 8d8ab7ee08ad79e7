// The strategy `prune_bsr`: of saved values, as matrices of one row for each vector of the last dimension, only the
// blocks with the largest norms wait for the backward, in block sparse rows; the others are taken for 0. Source: Barley
// and Froening, Compressing the Backward Pass of Large-Scale Neural Architectures by Structured Activation Pruning
// (arXiv 2311.16883, 2023).

#include <array>

#include "strategies/api/option_rules.h"
#include "strategies/compression/packing.h"

namespace plimsoll {
namespace {

constexpr std::array prune_bsr_options{
    text_option("block", "8", "a whole number from 1 to 256", "rows and columns of a block", integer_between<1, 256>),
    text_option("keep", "0.25", "a number from 0.001 to 1", "share of the blocks that stay",
                number_between<1, 1000, 1000>),
    text_option("tensors", "linear.input+conv.input", tensors_option.values, tensors_option.help,
                tensors_option.allowed),
    text_option("product", "unpack", "unpack or a number from 0.01 to 1",
                "how the gradient of a linear layer's weight is computed: from the unpacked value, or by a product of "
                "blocks, at that share of the device's rate",
                [](std::string_view text) { return text == "unpack" || number_between<1, 100, 100>(text); }),
    relu_or_anew_option,
    packed_store_option,
};

std::vector<TapeOutcome> prune_bsr_tapes(const PartTask& task, const Options& options,
                                         std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  const Codec codec{.kind = CodecKind::block_sparse,
                    .block = static_cast<std::uint32_t>(options.integer("block")),
                    .keep = options.number("keep"),
                    .product = options.text("product") == "unpack" ? 0 : options.number("product")};
  return packed_tapes(task, "prune_bsr", budgets, before, choice_by_pattern("prune_bsr", codec, options));
}

}  // namespace

extern constinit const StrategyInfo prune_bsr_strategy{
    .name = "prune_bsr",
    .family = Family::compression,
    .summary = "keeps only the blocks of saved values with the largest norms until the backward",
    .source = "Barley and Froening, arXiv 2311.16883, 2023",
    .chains_only = false,
    .options = prune_bsr_options,
    .tapes = prune_bsr_tapes,
    .candidates = nullptr,
    .packs_stages = true,
};

}  // namespace plimsoll
