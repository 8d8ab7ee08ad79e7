// The transform `adam8bit`: Adam whose two states are kept in 8 bits a number, in blocks of 256 that share a scale.
// Bytes of the states of a parameter of n numbers: 2 n + 8 ceil(n / 256) from 4096 numbers on, else 8 n; and two tables
// of 256 numbers for all parameters together.
// Source: Dettmers, Lewis, Shleifer, Zettlemoyer, "8-bit optimizers via block-wise quantization", ICLR 2022; sizes as
// in the program bitsandbytes.

#include <set>
#include <string>
#include <variant>

#include "strategies/api/strategy.h"
#include "strategies/rematerialization/policies/policies.h"
#include "strategies/transforms/changed_states.h"

namespace plimsoll {
namespace {

struct Adam8bitOptions {
  std::string fp32 = "none";
  std::int64_t least = 4096;
};

constexpr std::int64_t block_numbers = 256, bytes_of_scale = 4;
constexpr Bytes both_tables{2 * 256 * 4};

/// Parameters that an op of this kind reads, for its rows.
std::set<std::string> embedding_names(const Graph& graph) {
  std::set<std::string> names;
  for (const Op& op : graph.ops) {
    if (op.phase != Phase::forward || op.kind.find("embedding") == std::string::npos) continue;
    for (const TensorId t : op.inputs) {
      if (graph[t].kind == TensorKind::parameter) names.insert(graph[t].name);
    }
  }
  return names;
}

/// Names of the parameters whose states stay as they are; or why there are none.
std::variant<std::set<std::string>, std::string> unchanged_names(const Graph& graph, std::string_view which) {
  std::set<std::string> names;
  if (which == "none") return names;
  if (which == "embeddings") {
    names = embedding_names(graph);
    if (names.empty()) return "'" + graph.name + "' has no op of kind embedding: name the parameters, as in fp32=wte";
    return names;
  }
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.kind == TensorKind::parameter && matches(which, tensor.name)) names.insert(tensor.name);
  }
  if (names.empty()) return "no parameter of '" + graph.name + "' is '" + std::string(which) + "'";
  return names;
}

ChangedStates states_in_8_bits(const TrainedByAdam& of) {
  const std::int64_t blocks = (of.numbers + block_numbers - 1) / block_numbers;
  const Bytes each{of.numbers + bytes_of_scale * blocks};
  return {.states = {{"state 0", each, "uint8"}, {"state 1", each, "uint8"}}};
}

ChangedStates states_as_they_are(const TrainedByAdam& of) {
  return {.states = {{"state 0", of.state, std::string(of.dtype)}, {"state 1", of.state, std::string(of.dtype)}}};
}

std::variant<Problem, std::string> adam8bit(const Problem& problem, const Adam8bitOptions& options) {
  const auto named = unchanged_names(problem.graph, options.fp32);
  if (const std::string* why = std::get_if<std::string>(&named)) return *why;
  const auto& unchanged = std::get<std::set<std::string>>(named);
  const std::int64_t least = options.least;
  const auto rule = [&](const TrainedByAdam& of) -> std::variant<ChangedStates, std::string> {
    const bool stays = of.numbers < least || unchanged.contains(of.parameter.name);
    return stays ? states_as_they_are(of) : states_in_8_bits(of);
  };
  return with_optimizer(problem, {"adam8bit", rule, KeptState{"tables of adam8bit", both_tables, "float32"}});
}

constexpr auto adam8bit_options = options_of<Adam8bitOptions>(
    option_of<&Adam8bitOptions::fp32>({
        .name = "fp32",
        .values = "none, embeddings or a pattern of names such as *.wte",
        .help = "parameters whose states stay as they are: embeddings are those that an op of that kind reads",
        .allowed = [](std::string_view text) { return !text.empty(); },
    }),
    option_of<&Adam8bitOptions::least>({
        .name = "least",
        .least = 0,
        .most = 1'000'000'000'000,
        .values = "a whole number from 0",
        .help = "parameters of fewer numbers keep their states as they are",
    }));

}  // namespace

extern constinit const StrategyInfo adam8bit_strategy{
    .name = "adam8bit",
    .family = Family::transform,
    .summary = "keeps Adam's two states in 8 bits a number, in blocks of 256 that share a scale",
    .source = "Dettmers et al., '8-bit optimizers via block-wise quantization', ICLR 2022",
    .needs_updates = true,
    .options = adam8bit_options,
    .kind = TransformStrategy{.transform = by_options<adam8bit>},
};

}  // namespace plimsoll
