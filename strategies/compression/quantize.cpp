// The strategy `quantize`: saved values wait for the backward as numbers of a few bits, whose groups share a scale and
// a minimum. Source: Chen et al., ActNN (ICML 2021); Liu et al., GACT (ICML 2022).

#include <charconv>
#include <cstdint>

#include "strategies/compression/packing.h"

namespace plimsoll {
namespace {

struct QuantizeOptions : PackedOptions {
  std::uint32_t bits = 4;
  std::uint32_t group = 256;
};

constexpr std::uint32_t bytes_of_range = 8;  // a scale and a minimum in fp32

Codec quantize_codec(const QuantizeOptions& options) {
  return {.kind = CodecKind::quantize, .bits = options.bits, .group = options.group, .group_bytes = bytes_of_range};
}

bool is_multiple_of_8(std::string_view text) {
  std::int64_t group = 0;
  std::from_chars(text.data(), text.data() + text.size(), group);
  return group % 8 == 0;
}

constexpr auto quantize_options =
    options_of<QuantizeOptions>(option_of<&QuantizeOptions::bits>({
                                    .name = "bits",
                                    .words = "1 2 4 8",
                                    .help = "bits of a number",
                                }),
                                option_of<&QuantizeOptions::group>({
                                    .name = "group",
                                    .least = 8,
                                    .most = 1'048'576,
                                    .values = "a multiple of 8 from 8 to 1048576",
                                    .help = "how many values in a row share a scale and a minimum (8 bytes)",
                                    .allowed = is_multiple_of_8,
                                }),
                                tensors_option, relu_or_anew_option, packed_store_option);

std::vector<TapeOutcome> quantize_tapes(const PartTask& task, const QuantizeOptions& options,
                                        std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  return packed_tapes(task, "quantize", budgets, before,
                      choice_by_pattern("quantize", quantize_codec(options), options));
}

}  // namespace

extern constinit const StrategyInfo quantize_strategy{
    .name = "quantize",
    .family = Family::compression,
    .summary = "keeps saved values as numbers of a few bits until the backward",
    .source = "Chen et al., ActNN, ICML 2021; Liu et al., GACT, ICML 2022",
    .options = quantize_options,
    .kind = TapeStrategy{.tapes = by_options<quantize_tapes>, .packs_stages = true},
};

}  // namespace plimsoll
