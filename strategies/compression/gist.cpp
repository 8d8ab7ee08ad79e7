// The strategy `gist`: each saved value waits in the form that suits who made it and who uses it: signs where a pooling
// follows a ReLU, no zeros where a convolution does, fewer bits elsewhere if asked. Source: Jain et al., Gist:
// Efficient Data Encoding for Deep Neural Network Training (ISCA 2018).

#include <algorithm>

#include "strategies/compression/packing.h"

namespace plimsoll {
namespace {

enum class GistPrecision : std::uint8_t { full, half, eight_bits };

struct GistOptions {
  double nonzero = 0.5;
  GistPrecision precision = GistPrecision::full;
};

struct GistRule {
  double nonzero = 0.5;
  std::optional<Codec> reduced;  ///< where nothing exact fits
};

const Codec signs{.kind = CodecKind::mask, .bits = 1};
const Codec places_of_pooling{.kind = CodecKind::index, .bits = 4};

bool is_statistic(const SavedUse& use) {
  return use.is_result && (use.by == SavedBy::bn || use.by == SavedBy::ln);
}

std::optional<Codec> gist_choice(const GistRule& rule, const Graph& graph, const SavedTensor& tensor,
                                 const SavedUse& use) {
  const Tensor& value = graph[tensor.tensor];
  if (use.by == SavedBy::pool && value.dtype.starts_with("int")) return places_of_pooling;
  const auto used_by = [&](auto... layers) {
    return std::ranges::any_of(tensor.uses, [&](const SavedUse& each) { return ((each.by == layers) || ...); });
  };
  const bool by_relu =
      std::ranges::any_of(tensor.uses, [](const SavedUse& each) { return each.by == SavedBy::relu && each.is_result; });
  const bool multiplied = used_by(SavedBy::conv, SavedBy::linear);
  if (by_relu && !multiplied && (use.by == SavedBy::relu || use.by == SavedBy::pool)) return signs;
  if (use.by == SavedBy::pool || use.by == SavedBy::loss || use.by == SavedBy::checkpoint || is_statistic(use)) {
    return by_relu && use.by == SavedBy::pool ? std::optional(signs) : std::nullopt;
  }
  const Codec sparse{.kind = CodecKind::compressed_rows, .keep = rule.nonzero};
  const bool pays = !cannot_pack(sparse, graph, value) && packed_bytes(sparse, graph, value) < value.bytes;
  if (by_relu && multiplied && pays) return sparse;
  return use.by == SavedBy::relu && !rule.reduced ? std::nullopt : rule.reduced;
}

constexpr auto gist_options = options_of<GistOptions>(
    option_of<&GistOptions::nonzero>({
        .name = "nonzero",
        .least = 0.01,
        .most = 1,
        .help = "share of what a ReLU makes that is not 0 at most: so much is reserved where a convolution or linear "
                "layer follows (measure it on your data)",
    }),
    option_of<&GistOptions::precision>({
        .name = "precision",
        .words = "full 16 8",
        .help = "bits of all other saved values: half precision, or an exponent of 4 bits and a fraction of 3",
    }));

std::vector<TapeOutcome> gist_tapes(const PartTask& task, const GistOptions& options,
                                    std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  GistRule rule{options.nonzero, std::nullopt};
  if (options.precision != GistPrecision::full) {
    const std::uint32_t bits = options.precision == GistPrecision::half ? 16 : 8;
    rule.reduced = Codec{.kind = CodecKind::cast, .bits = bits, .exponent = bits == 16 ? 5U : 4U};
  }
  return packed_tapes(task, "gist", budgets, before,
                      [&rule](const Graph& graph, std::span<const SavedTensor> saved) -> CodecChoice {
                        refuse_if_unfit("gist", graph, saved, "all", Codec{.kind = CodecKind::cast, .bits = 16});
                        return [&rule, &graph](const SavedTensor& tensor, const SavedUse& use) {
                          return gist_choice(rule, graph, tensor, use);
                        };
                      });
}

}  // namespace

extern constinit const StrategyInfo gist_strategy{
    .name = "gist",
    .family = Family::compression,
    .summary =
        "keeps what ReLUs make as signs or without its zeros, by what follows, and the rest in fewer bits if asked",
    .source = "Jain et al., Gist, ISCA 2018",
    .options = gist_options,
    .kind = TapeStrategy{.tapes = by_options<gist_tapes>},
};

}  // namespace plimsoll
