#include "strategies/placement/pardnn/pardnn_exchange.h"

#include <algorithm>

namespace plimsoll {

Exchanged::Exchanged(const OpDag& dag, const Machine& machine, std::span<const std::uint32_t> on)
    : dag_(dag),
      machine_(machine),
      on_(on),
      with_(machine.size() + 1),
      sent_(with_.size()),
      is_in_(dag.size, false),
      received_(dag.size, -1) {}

std::span<const Nanoseconds> Exchanged::by(std::span<const std::uint32_t> nodes) {
  std::ranges::fill(with_, 0);
  for (const std::uint32_t v : nodes) is_in_[v] = true;
  makers_.clear();
  for (const std::uint32_t v : nodes) {
    std::ranges::fill(sent_, 0);
    for (const DagEdge& edge : dag_.out[v]) {
      if (is_in_[edge.node] || !edge.sends) continue;
      Nanoseconds& sent = sent_[slot(edge.node)];
      sent = std::max(sent, machine_.mean_transfer(edge.bytes));
    }
    for (std::size_t p = 0; p < with_.size(); ++p) with_[p] += sent_[p];
    for (const DagEdge& edge : dag_.in[v]) {
      if (is_in_[edge.node] || !edge.sends) continue;
      if (received_[edge.node] < 0) makers_.push_back(edge.node);
      received_[edge.node] = std::max(received_[edge.node], machine_.mean_transfer(edge.bytes));
    }
  }
  for (const std::uint32_t u : makers_) {
    with_[slot(u)] += received_[u];
    received_[u] = -1;
  }
  for (const std::uint32_t v : nodes) is_in_[v] = false;
  return with_;
}

}  // namespace plimsoll
