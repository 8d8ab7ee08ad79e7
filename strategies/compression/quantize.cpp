// The strategy `quantize`: saved values wait for the backward as numbers of a few bits, whose groups share a scale and
// a minimum. Source: Chen et al., ActNN (ICML 2021); Liu et al., GACT (ICML 2022).

#include <array>

#include "strategies/api/option_rules.h"
#include "strategies/compression/packing.h"

namespace plimsoll {
namespace {

constexpr std::uint32_t bytes_of_range = 8;  // a scale and a minimum in fp32

Codec quantize_codec(const Options& options) {
  return {.kind = CodecKind::quantize,
          .bits = static_cast<std::uint32_t>(options.integer("bits")),
          .group = static_cast<std::uint32_t>(options.integer("group")),
          .group_bytes = bytes_of_range};
}

constexpr std::array quantize_options{
    text_option("bits", "4", "1, 2, 4 or 8", "bits of a number",
                [](std::string_view text) { return text == "1" || text == "2" || text == "4" || text == "8"; }),
    text_option("group", "256", "a multiple of 8 from 8 to 1048576",
                "how many values in a row share a scale and a minimum (8 bytes)",
                [](std::string_view text) {
                  std::int64_t group = 0;
                  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), group);
                  return error == std::errc{} && end == text.data() + text.size() && group >= 8 && group <= 1'048'576 &&
                         group % 8 == 0;
                }),
    tensors_option,
    relu_or_anew_option,
    packed_store_option,
};

std::vector<TapeOutcome> quantize_tapes(const PartTask& task, const Options& options,
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
    .chains_only = false,
    .options = quantize_options,
    .tapes = quantize_tapes,
    .candidates = nullptr,
    .packs_stages = true,
};

}  // namespace plimsoll
