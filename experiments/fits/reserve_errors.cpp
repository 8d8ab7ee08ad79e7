#include "experiments/fits/reserve_errors.h"

#include <algorithm>
#include <string>

namespace plimsoll {
namespace {

constexpr ReserveErrors of_transformers{"transformers", 9, 0.0025, 0.0462},
    of_convolutions{"ResNet-50", 4, -0.1643, 0.0156};

bool has_kind(const Graph& graph, std::string_view word) {
  return std::ranges::any_of(graph.ops, [&](const Op& op) { return op.kind.find(word) != std::string::npos; });
}

}  // namespace

std::optional<ReserveErrors> reserve_errors(const Graph& graph) {
  if (has_kind(graph, "attention")) return of_transformers;
  if (has_kind(graph, "conv")) return of_convolutions;
  return std::nullopt;
}

}  // namespace plimsoll
