#include "sim/mesh/nccl_times.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace plimsoll {
namespace {

constexpr double large_bytes = 512.0 * 1024 * 1024;  // where a link's bandwidth shows

/// What a rank sends for each byte of the value.
double sent_share(CollectiveKind kind, std::uint32_t ranks) {
  return (kind == CollectiveKind::all_reduce ? 2.0 : 1.0) * (ranks - 1) / ranks;
}

/// Bytes a second that each rank sends of what is large; unlimited for one rank.
std::optional<double> measured_rate(const KernelTimes& times, CollectiveKind kind, std::uint32_t ranks) {
  if (ranks == 1) return std::numeric_limits<double>::infinity();
  const std::optional<Seconds> seconds = times.collective(kind, ranks, large_bytes);
  if (!seconds) return std::nullopt;
  return sent_share(kind, ranks) * large_bytes / seconds->value;
}

/// A protocol of NCCL: seconds to begin, of a step over NVLink and over the network, and its share of the bandwidth.
struct Protocol {
  double begin, in_node, across, share;
};
constexpr double us = 1e-6;
constexpr std::array ring_protocols{Protocol{8.4 * us, 3.4 * us, 14 * us, 1}, Protocol{14 * us, 1.9 * us, 4 * us, 0.92},
                                    Protocol{6.6 * us, 0.6 * us, 2.7 * us, 0.5}};
constexpr std::array tree_protocols{Protocol{8.4 * us, 4 * us, 14 * us, 0.92},
                                    Protocol{14 * us, 1.25 * us, 8.5 * us, 0.92},
                                    Protocol{6.8 * us, 0.6 * us, 5 * us, 0.92 / 3.8}};

/// Of so many steps in nodes and between them, that sends so many bytes.
template <std::size_t n>
double fastest(const std::array<Protocol, n>& protocols, double in_node, double across, double bytes, double rate) {
  double least = std::numeric_limits<double>::infinity();
  for (const Protocol& each : protocols) {
    const double latency = each.begin + in_node * each.in_node + across * each.across;
    least = std::min(least, latency + bytes / (each.share * rate));
  }
  return least;
}

/// Sums in the nodes' switches, in each twice, and a tree between them.
double nvls_tree(const KernelTimes& times, const NcclGroup& group, double bytes) {
  constexpr double in_node = 25 * us, across = 14 * us, sent = 6.0 / 5;
  const double network = times.network_share * group.network.value / (group.nodes > 2 ? 2 : 1);
  const double in_switch =
      times.collective(CollectiveKind::all_reduce, group.in_node, large_bytes)->value / large_bytes;
  const double latency = in_node + 2 * std::ceil(std::log2(group.nodes)) * across;
  return latency + bytes * std::max(sent / network, in_switch);
}

/// Whether the platform's links carry what was measured among so many ranks of a node. Where switches sum, each rank
/// sends what is summed once, and gets the sum.
bool carries(const KernelTimes& times, const NcclGroup& group, CollectiveKind kind, std::uint32_t ranks) {
  constexpr double slack = 1.1;  // a platform states what copies reach, or the data sheet's rate
  const std::optional<double> measured = measured_rate(times, kind, ranks);
  const bool is_summed_in_switch = times.nvls && kind == CollectiveKind::all_reduce;
  const double sent = is_summed_in_switch ? 1 / sent_share(kind, ranks) : 1;
  return measured && sent * *measured <= slack * group.link.value;
}

std::optional<Seconds> across_nodes(const KernelTimes& times, const NcclGroup& group, CollectiveKind kind,
                                    double bytes) {
  const std::optional<double> measured = measured_rate(times, kind, group.in_node);
  const double in_node = std::min(measured.value_or(group.link.value), group.link.value);
  const double rate = std::min(times.network_share * group.network.value, in_node);
  const double rounds = kind == CollectiveKind::all_reduce ? 2 : 1;
  const double between = rounds * (group.nodes - 1), steps = rounds * (group.ranks - 1);
  double least = fastest(ring_protocols, steps - between, between, sent_share(kind, group.ranks) * bytes, rate);
  if (kind == CollectiveKind::all_reduce) {
    const double levels = std::ceil(std::log2(group.nodes));
    least = std::min(least, fastest(tree_protocols, 2.0 * (group.in_node - 1), 2 * levels, 2 * bytes, rate));
    if (times.nvls && group.in_node > 1 && carries(times, group, kind, group.in_node)) {
      least = std::min(least, nvls_tree(times, group, bytes));
    }
  }
  return Seconds{least};
}

}  // namespace

std::optional<Seconds> nccl_seconds(const KernelTimes& times, const NcclGroup& group, CollectiveKind kind,
                                    double bytes) {
  if (kind == CollectiveKind::shift) {
    if (group.nodes > 1 || group.ranks < 2) return std::nullopt;
    NcclGroup pair = group;
    pair.ranks = pair.in_node = 2;
    return nccl_seconds(times, pair, CollectiveKind::all_gather, 2 * bytes);
  }
  if (group.nodes > 1) {
    const bool is_known = times.network_share < 1 || measured_rate(times, kind, group.in_node).has_value();
    const bool has_rule = kind != CollectiveKind::all_to_all && kind != CollectiveKind::broadcast;
    return is_known && has_rule ? across_nodes(times, group, kind, bytes) : std::nullopt;
  }
  if (!carries(times, group, kind, group.ranks)) return std::nullopt;
  return times.collective(kind, group.ranks, bytes);
}

}  // namespace plimsoll
