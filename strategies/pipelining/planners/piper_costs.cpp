#include "strategies/pipelining/planners/piper_costs.h"

#include <algorithm>
#include <set>

namespace plimsoll {

PiperCosts::PiperCosts(const PiperProblem& problem) : problem_(problem), edges_(problem.nodes.size()) {
  std::set<std::uint32_t> degrees;
  for (const std::vector<PiperProblem::Option>& options : problem.nodes) {
    for (const PiperProblem::Option& option : options) degrees.insert(option.devices);
  }
  degrees_.assign(degrees.begin(), degrees.end());
  for (std::uint32_t e = 0; e < problem.dag.edges.size(); ++e) {
    edges_[problem.dag.edges[e].first].push_back(e);
    edges_[problem.dag.edges[e].second].push_back(e);
  }
}

std::vector<char> PiperCosts::members(const StageNodes& nodes) const {
  std::vector<char> is_member(problem_.nodes.size(), 0);
  for (const std::uint32_t n : nodes) is_member[n] = 1;
  return is_member;
}

double PiperCosts::border(const StageNodes& nodes) const {
  const std::vector<char> inside = members(nodes);
  double bytes = 0;
  for (const std::uint32_t n : nodes) {
    for (const std::uint32_t e : edges_[n]) {
      const auto& [from, to] = problem_.dag.edges[e];
      if (inside[from] != inside[to]) bytes += problem_.edge_bytes[e];
    }
  }
  return 2 * bytes / problem_.bytes_per_second;
}

double PiperCosts::parameters(const StageNodes& nodes, std::uint32_t degree) const {
  double bytes = 0;
  for (const std::uint32_t n : nodes) {
    for (const PiperProblem::Option& option : problem_.nodes[n]) {
      if (option.devices != degree) continue;
      bytes += option.parameter_bytes;
      break;
    }
  }
  return bytes;
}

double PiperCosts::of_stage(double seconds, double border, double parameters, std::uint32_t replicas) const {
  const double exchange = 4.0 * (replicas - 1) * parameters / problem_.micro_batches / problem_.bytes_per_second;
  return (seconds + border + exchange) / replicas;
}

PiperChoice PiperCosts::choice(const StageNodes& nodes, std::uint32_t degree, std::uint32_t in_flight) const {
  if (problem_.fits && !problem_.fits(nodes.front(), nodes.back() + 1, in_flight)) return {};
  const std::vector<char> inside = members(nodes);
  struct Way {
    std::uint32_t option = 0;
    double seconds = 0, bytes = 0;
  };
  struct Node {
    std::vector<Way> ways;
    std::size_t taken = 0, smallest = 0;  // the fastest first
  };
  std::vector<Node> all(nodes.size());
  PiperChoice made{.seconds = 0, .options = std::vector<std::uint32_t>(nodes.size())};
  double least = 0;
  for (std::size_t k = 0; k < nodes.size(); ++k) {
    const std::vector<PiperProblem::Option>& options = problem_.nodes[nodes[k]];
    Node& node = all[k];
    for (std::uint32_t o = 0; o < options.size(); ++o) {
      if (options[o].devices != degree) continue;
      double sent = 0;
      for (const auto& [edge, bytes] : options[o].sent) {
        const auto& [from, to] = problem_.dag.edges[edge];
        if (inside[from] != inside[to]) sent += bytes;
      }
      node.ways.push_back({o, options[o].seconds + 2 * sent / problem_.bytes_per_second,
                           options[o].kept_bytes * in_flight + options[o].fixed_bytes});
    }
    if (node.ways.empty()) return {};
    std::ranges::stable_sort(node.ways, [](const Way& a, const Way& b) {
      return a.seconds < b.seconds || (a.seconds == b.seconds && a.bytes < b.bytes);
    });
    node.smallest = static_cast<std::size_t>(std::ranges::min_element(node.ways, {}, &Way::bytes) - node.ways.begin());
    made.seconds += node.ways[0].seconds;
    made.bytes += node.ways[0].bytes;
    least += node.ways[node.smallest].bytes;
  }
  if (problem_.memory_bytes && made.bytes > *problem_.memory_bytes) {
    if (least > *problem_.memory_bytes) return {};
    struct Switch {
      std::size_t node = 0, way = 0;
      double seconds = 0, saved = 0;
    };
    std::vector<Switch> switches;
    for (std::size_t k = 0; k < all.size(); ++k) {
      const std::vector<Way>& ways = all[k].ways;
      for (std::size_t w = 1; w < ways.size(); ++w) {
        if (ways[w].bytes < ways[0].bytes) {
          switches.push_back({k, w, ways[w].seconds - ways[0].seconds, ways[0].bytes - ways[w].bytes});
        }
      }
    }
    std::ranges::stable_sort(switches, {}, [](const Switch& s) { return s.seconds / s.saved; });
    const auto take = [&](std::size_t k, std::size_t way) {
      const Way &before = all[k].ways[all[k].taken], &after = all[k].ways[way];
      made.seconds += after.seconds - before.seconds;
      made.bytes += after.bytes - before.bytes;
      all[k].taken = way;
    };
    for (const Switch& s : switches) {
      if (made.bytes <= *problem_.memory_bytes) break;
      if (all[s.node].ways[s.way].bytes < all[s.node].ways[all[s.node].taken].bytes) take(s.node, s.way);
    }
    if (made.bytes > *problem_.memory_bytes) return {};
    std::ranges::stable_sort(switches, std::greater<>{}, &Switch::seconds);
    for (const Switch& s : switches) {
      if (all[s.node].taken == s.way && made.bytes + s.saved <= *problem_.memory_bytes) take(s.node, 0);
    }
    made.seconds = made.bytes = 0;  // summed anew, in one order
    for (const Node& node : all) {
      made.seconds += node.ways[node.taken].seconds;
      made.bytes += node.ways[node.taken].bytes;
    }
  }
  for (std::size_t k = 0; k < all.size(); ++k) made.options[k] = all[k].ways[all[k].taken].option;
  return made;
}

}  // namespace plimsoll
