#include "strategies/compression/derivative_steps.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/io/input_error.h"

namespace plimsoll {
namespace {

/// For what a use can take a packed form in the place of the value; nothing where for none.
std::optional<Codec> codec_for(const SteppedRule& rule, const Graph& graph, const SavedTensor& tensor,
                               const SavedUse& use) {
  const Op& op = graph[use.op];
  if (is_gradient_of_activation(op)) return Codec{.kind = CodecKind::step, .bits = rule.bits};
  if (rule.takes_relus && use.by == SavedBy::relu) return Codec{.kind = CodecKind::mask, .bits = 1};
  const Tensor& value = graph[tensor.tensor];
  if (rule.projected == 0 || !sums_over_rows(graph, op, value)) return std::nullopt;
  const double one = 1 / static_cast<double>(rows_of(value));
  return Codec{.kind = CodecKind::projection, .sums = rule.sums, .keep = std::max(rule.projected, one)};
}

/// Throws InputError where no use can.
void refuse_without_use(const SteppedRule& rule, const Graph& graph, std::span<const SavedTensor> saved) {
  std::optional<std::string> why;
  for (const SavedTensor& tensor : saved) {
    for (const SavedUse& use : tensor.uses) {
      const std::optional<Codec> codec = codec_for(rule, graph, tensor, use);
      if (!codec) continue;
      const std::optional<std::string> cannot = cannot_pack(*codec, graph, graph[tensor.tensor]);
      if (!cannot) return;
      if (!why) why = fmt::format("{} {}", rule.strategy, *cannot);
    }
  }
  throw InputError(why.value_or(fmt::format("{}: '{}' saves nothing for an activation such as gelu, silu or tanh{}{}",
                                            rule.strategy, graph.name, rule.takes_relus ? " or relu" : "",
                                            rule.projected > 0 ? ", or for a linear layer" : "")));
}

}  // namespace

std::vector<TapeOutcome> stepped_tapes(const PartTask& task, const SteppedRule& rule,
                                       std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  const ChoiceOf choice = [rule](const Graph& graph, std::span<const SavedTensor> saved) -> CodecChoice {
    refuse_without_use(rule, graph, saved);
    return
        [rule, &graph](const SavedTensor& tensor, const SavedUse& use) { return codec_for(rule, graph, tensor, use); };
  };
  return packed_tapes(task, rule.strategy, budgets, before, choice);
}

}  // namespace plimsoll
