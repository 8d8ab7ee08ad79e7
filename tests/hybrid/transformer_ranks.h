#pragma once
// Transformers by formula as problems of ranks: what is asked, kept and exchanged.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "sim/core/graph.h"
#include "sim/model/problem.h"

namespace plimsoll {

struct TransformerSizes {
  std::int64_t layers = 2, h = 64, a = 8, s = 16, b = 4, v = 64;
};

/// The name of its graph, with more options.
std::string graph_of(const TransformerSizes& of, std::string_view more = {});

Bytes sum_of(const Graph& graph, TensorKind kind);

/// Bytes that collectives of a kind exchange in the forward or backward of one micro-batch.
std::map<std::string, std::int64_t> exchanged(const Graph& graph, Phase phase);

/// Why there is no such problem; nothing where there is one.
std::string refusal(const std::string& trace, const std::string& platform, std::uint32_t micro_batches,
                    std::string_view spec, Optimizer optimizer = Optimizer::adam);

}  // namespace plimsoll
