#include "strategies/compression/derivative_steps.h"

#include <fmt/format.h>

#include "sim/io/input_error.h"

namespace plimsoll {
namespace {

/// Throws InputError where no activation's gradient can take the steps of a derivative.
void refuse_without_activation(std::string_view strategy, const Graph& graph, std::span<const SavedTensor> saved,
                               bool takes_relus) {
  std::optional<std::string> why;
  for (const SavedTensor& tensor : saved) {
    for (const SavedUse& use : tensor.uses) {
      const bool is_relu = takes_relus && use.by == SavedBy::relu;
      if (!is_relu && !is_gradient_of_activation(graph[use.op])) continue;
      const std::optional<std::string> cannot = cannot_pack({.kind = CodecKind::step}, graph, graph[tensor.tensor]);
      if (!cannot) return;
      if (!why) why = fmt::format("{} {}", strategy, *cannot);
    }
  }
  throw InputError(why.value_or(fmt::format("{}: '{}' saves nothing for an activation such as gelu, silu or tanh{}",
                                            strategy, graph.name, takes_relus ? " or relu" : "")));
}

}  // namespace

std::vector<TapeOutcome> stepped_tapes(const PartTask& task, std::string_view strategy, std::uint32_t bits,
                                       bool takes_relus, std::span<const std::optional<Bytes>> budgets,
                                       const Tape* before) {
  const ChoiceOf choice = [=](const Graph& graph, std::span<const SavedTensor> saved) -> CodecChoice {
    refuse_without_activation(strategy, graph, saved, takes_relus);
    return [bits, takes_relus, &graph](const SavedTensor&, const SavedUse& use) -> std::optional<Codec> {
      if (is_gradient_of_activation(graph[use.op])) return Codec{.kind = CodecKind::step, .bits = bits};
      if (takes_relus && use.by == SavedBy::relu) return Codec{.kind = CodecKind::mask, .bits = 1};
      return std::nullopt;
    };
  };
  return packed_tapes(task, strategy, budgets, before, choice);
}

}  // namespace plimsoll
