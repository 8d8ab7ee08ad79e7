// The strategy `wta_crs`: of the input of a linear layer only some rows wait for the gradient of its weight, which is
// then a sum over these rows. Source: Liu et al., Winner-Take-All Column Row Sampling for Memory Efficient Adaptation
// of Language Model (NeurIPS 2023), and its program.

#include <fmt/format.h>

#include <algorithm>

#include "sim/io/input_error.h"
#include "strategies/compression/packing.h"

namespace plimsoll {
namespace {

struct WtaCrsOptions : PackedOptions {
  double ratio = 0.3;
};

constexpr std::int64_t least_rows = 10;

std::optional<Codec> wta_crs_choice(double ratio, const std::optional<Codec>& relu, const Graph& graph,
                                    const SavedTensor& tensor, const SavedUse& use) {
  const Tensor& value = graph[tensor.tensor];
  if (use.by == SavedBy::relu && use.is_result) return relu;
  if (!sums_over_rows(graph, graph[use.op], value)) return std::nullopt;
  const double rows = static_cast<double>(std::max<std::int64_t>(rows_of(value), 1));
  return Codec{.kind = CodecKind::rows, .keep = std::min(1.0, std::max(ratio, least_rows / rows))};
}

void refuse_without_rows(const Graph& graph, std::span<const SavedTensor> saved) {
  std::optional<std::string> why;
  for (const SavedTensor& tensor : saved) {
    for (const SavedUse& use : tensor.uses) {
      if (use.by != SavedBy::linear) continue;
      const std::optional<std::string> cannot = cannot_pack({.kind = CodecKind::rows}, graph, graph[tensor.tensor]);
      if (!cannot && sums_over_rows(graph, graph[use.op], graph[tensor.tensor])) return;
      if (!why && cannot) why = fmt::format("wta_crs {}", *cannot);
    }
  }
  throw InputError(why.value_or(
      fmt::format("wta_crs: '{}' has no linear layer whose weight's gradient is a sum over saved rows", graph.name)));
}

constexpr auto wta_crs_options = options_of<WtaCrsOptions>(option_of<&WtaCrsOptions::ratio>({
                                                               .name = "ratio",
                                                               .least = 0.01,
                                                               .most = 1,
                                                               .help = "share of the rows that are kept, 10 at least",
                                                           }),
                                                           relu_option);

std::vector<TapeOutcome> wta_crs_tapes(const PartTask& task, const WtaCrsOptions& options,
                                       std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  const double ratio = options.ratio;
  const std::optional<Codec> relu = relu_codec(options);
  return packed_tapes(task, "wta_crs", budgets, before,
                      [ratio, relu](const Graph& graph, std::span<const SavedTensor> saved) -> CodecChoice {
                        refuse_without_rows(graph, saved);
                        return [ratio, relu, &graph](const SavedTensor& tensor, const SavedUse& use) {
                          return wta_crs_choice(ratio, relu, graph, tensor, use);
                        };
                      });
}

}  // namespace

extern constinit const StrategyInfo wta_crs_strategy{
    .name = "wta_crs",
    .family = Family::compression,
    .summary =
        "keeps a random choice of rows of the inputs of linear layers, over which the weight's gradient is summed",
    .source = "Liu et al., WTA-CRS, NeurIPS 2023",
    .options = wta_crs_options,
    .kind = TapeStrategy{.tapes = by_options<wta_crs_tapes>},
};

}  // namespace plimsoll
