#include "tests/hybrid/transformer_ranks.h"

#include "sim/core/collective_op.h"
#include "sim/core/names.h"
#include "sim/io/input_error.h"
#include "tests/hybrid/judged_plan.h"

namespace plimsoll {

std::string graph_of(const TransformerSizes& of, std::string_view more) {
  return "transformer:layers=" + std::to_string(of.layers) + ",width=" + std::to_string(of.h) +
         ",heads=" + std::to_string(of.a) + ",sequence=" + std::to_string(of.s) + ",batch=" + std::to_string(of.b) +
         ",vocabulary=" + std::to_string(of.v) + ",view=graph" + std::string(more);
}

Bytes sum_of(const Graph& graph, TensorKind kind) {
  return bytes_of_kind(graph, kind);
}

std::map<std::string, std::int64_t> exchanged(const Graph& graph, Phase phase) {
  std::map<std::string, std::int64_t> bytes;
  for (const Op& op : graph.ops) {
    const auto what = collective_of(op);
    if (what && op.phase == phase) bytes[std::string(written(what->kind))] += exchanged_bytes(graph, op).count;
  }
  return bytes;
}

std::string refusal(const std::string& trace, const std::string& platform, std::uint32_t micro_batches,
                    std::string_view spec, Optimizer optimizer) {
  try {
    problem_on(trace, platform, micro_batches, spec, optimizer);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace plimsoll
