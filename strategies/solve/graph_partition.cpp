#include "strategies/solve/graph_partition.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/engine/late_library.h"
#include "strategies/solve/limited_process.h"

namespace plimsoll {

GraphParts checked_parts(std::string_view name, const WeightedGraph& graph, std::span<const double> shares,
                         std::vector<std::int32_t> parts) {
  if (parts.size() != graph.size()) {
    return fmt::format("{} gave parts of {} nodes instead of {}", name, parts.size(), graph.size());
  }
  std::vector<double> weight(shares.size(), 0);
  double all = 0, heaviest = 0;
  for (std::size_t v = 0; v < parts.size(); ++v) {
    if (parts[v] < 0 || static_cast<std::size_t>(parts[v]) >= shares.size()) {
      return fmt::format("{} gave node {} of {} no part", name, v, parts.size());
    }
    const double each = graph.weight[v];
    weight[static_cast<std::size_t>(parts[v])] += each;
    all += each;
    heaviest = std::max(heaviest, each);
  }
  for (std::size_t p = 0; p < shares.size(); ++p) {
    if (weight[p] <= 2 * shares[p] * all + heaviest) continue;
    return fmt::format("{} gave part {} of {} {:.3g} % of the work, where its share is {:.3g} %", name, p,
                       shares.size(), 100 * weight[p] / all, 100 * shares[p]);
  }
  return parts;
}

GraphParts partition_graph(const std::string& library, const WeightedGraph& graph, std::span<const double> shares,
                           std::int32_t seed) {
  constexpr ProcessLimits limits{.seconds = 600, .memory = Bytes{16'000'000'000}};
  const auto& partitioner = late_library<GraphPartitioner>(library);  // loaded before the process that is limited
  const ProcessResult process = run_limited(limits, [&](const SendMessage& send) {
    const std::optional<std::vector<std::int32_t>> made = partitioner.parts(graph, shares, seed);
    if (made) send(std::vector<double>(made->begin(), made->end()));
  });
  if (process.end == ProcessResult::End::out_of_time) {
    return fmt::format("{} was stopped after {} s", partitioner.name, limits.seconds);
  }
  if (process.end == ProcessResult::End::died) return fmt::format("{} crashed", partitioner.name);
  if (process.messages.empty()) return fmt::format("{} found no parts", partitioner.name);
  const std::vector<double>& said = process.messages.front();
  std::vector<std::int32_t> parts;
  for (const double part : said) parts.push_back(static_cast<std::int32_t>(part));
  return checked_parts(partitioner.name, graph, shares, std::move(parts));
}

}  // namespace plimsoll
