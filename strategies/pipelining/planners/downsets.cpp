#include "strategies/pipelining/planners/downsets.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <string>
#include <unordered_map>

namespace plimsoll {

bool Downsets::within(std::size_t small, std::size_t large) const {
  for (std::size_t w = 0; w < words; ++w) {
    if ((bits[small * words + w] & ~bits[large * words + w]) != 0) return false;
  }
  return true;
}

std::vector<std::uint32_t> order_of(const Dag& dag) {
  std::vector<std::vector<std::uint32_t>> after(dag.nodes);
  std::vector<std::uint32_t> waiting(dag.nodes, 0);
  for (const auto& [from, to] : dag.edges) {
    after[from].push_back(to);
    ++waiting[to];
  }
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> next;
  for (std::uint32_t n = 0; n < dag.nodes; ++n) {
    if (waiting[n] == 0) next.push(n);
  }
  std::vector<std::uint32_t> order;
  for (; !next.empty();) {
    const std::uint32_t node = next.top();
    next.pop();
    order.push_back(node);
    for (const std::uint32_t to : after[node]) {
      if (--waiting[to] == 0) next.push(to);
    }
  }
  if (order.size() < dag.nodes) order.clear();
  return order;
}

std::vector<std::vector<std::uint64_t>> ancestors_of(const Dag& dag) {
  std::vector<std::vector<std::uint64_t>> ancestors(dag.nodes, std::vector<std::uint64_t>(words_of(dag.nodes)));
  std::vector<std::vector<std::uint32_t>> after(dag.nodes);
  for (const auto& [from, to] : dag.edges) after[from].push_back(to);
  for (const std::uint32_t node : order_of(dag)) {
    for (const std::uint32_t to : after[node]) {
      for (std::size_t w = 0; w < ancestors[to].size(); ++w) ancestors[to][w] |= ancestors[node][w];
      ancestors[to][node / 64] |= std::uint64_t{1} << node % 64;
    }
  }
  return ancestors;
}

std::optional<Downsets> downsets_of(const Dag& dag, std::size_t most) {
  Downsets made;
  made.words = words_of(dag.nodes);
  std::vector<std::vector<std::uint32_t>> before(dag.nodes);
  for (const auto& [from, to] : dag.edges) before[to].push_back(from);
  const auto bytes_of = [&](const std::vector<std::uint64_t>& set) {
    return std::string(reinterpret_cast<const char*>(set.data()), set.size() * sizeof(std::uint64_t));
  };
  std::unordered_map<std::string, std::uint32_t> number;  // of the sets of the size that is being made
  made.bits.assign(made.words, 0);
  made.sizes.push_back(0);
  made.smaller.emplace_back();
  std::vector<std::uint64_t> set(made.words);
  for (std::size_t s = 0; s < made.sizes.size(); ++s) {
    if (s > 0 && made.sizes[s] > made.sizes[s - 1]) number.clear();
    for (std::uint32_t node = 0; node < dag.nodes; ++node) {
      if (made.has(s, node) ||
          !std::ranges::all_of(before[node], [&](std::uint32_t earlier) { return made.has(s, earlier); })) {
        continue;
      }
      std::ranges::copy(made.set(s), set.begin());
      set[node / 64] |= std::uint64_t{1} << node % 64;
      const auto [found, is_new] = number.emplace(bytes_of(set), static_cast<std::uint32_t>(made.sizes.size()));
      if (is_new) {
        if (made.sizes.size() >= most) return std::nullopt;
        made.bits.insert(made.bits.end(), set.begin(), set.end());
        made.sizes.push_back(made.sizes[s] + 1);
        made.smaller.emplace_back();
      }
      made.smaller[found->second].push_back({.node = node, .set = static_cast<std::uint32_t>(s)});
    }
  }
  return made;
}

}  // namespace plimsoll
