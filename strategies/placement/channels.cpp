#include "strategies/placement/channels.h"

#include <algorithm>

namespace plimsoll {

Channels::Channels(const OpDag& dag, const Machine& machine)
    : dag_(dag), machine_(machine), finish_(dag.size, 0), free_(machine.size(), 0), there_(dag.values.size()) {
  for (std::uint32_t v = 0; v < dag.size; ++v) {
    const std::size_t first = reads_.items.size();
    for (const std::uint32_t value : dag.reads[v]) {
      if (dag.values[value].maker != no_node) reads_.items.push_back({dag.values[value].maker, value});
    }
    std::stable_sort(reads_.items.begin() + static_cast<std::ptrdiff_t>(first), reads_.items.end(),
                     [](const Read& a, const Read& b) { return a.maker < b.maker; });
    reads_.end_row();
  }
}

const Channels::There* Channels::there(std::uint32_t value, std::uint32_t processor) const {
  for (const There& each : there_[value]) {
    if (each.processor == processor) return &each;
  }
  return nullptr;
}

Nanoseconds Channels::send_all(std::uint32_t node, std::uint32_t processor, const std::vector<std::uint32_t>& on,
                               std::vector<std::uint32_t>* came) {
  Nanoseconds all = 0;
  std::span<const Read> reads = reads_[node];
  for (const DagEdge& edge : dag_.in[node]) {
    const std::uint32_t maker = edge.node, from = on[maker];
    all = std::max(all, finish_[maker]);
    std::int64_t bytes = 0;
    bool sends = false;
    const std::size_t first = came ? came->size() : 0;
    for (; !reads.empty() && reads.front().maker == maker; reads = reads.subspan(1)) {
      if (from == processor) continue;
      const std::uint32_t value = reads.front().value;
      if (const There* is_there = there(value, processor)) {
        all = std::max(all, is_there->time);
        continue;
      }
      bytes += dag_.values[value].bytes;
      sends = true;
      if (came) came->push_back(value);
    }
    if (!sends) continue;
    const Nanoseconds takes = machine_.transfer(from, processor, bytes);
    const Nanoseconds sending = std::max(finish_[maker], free_[from]);
    const Nanoseconds receiving = std::max(sending, free_[processor]);
    before_.push_back({from, free_[from]});
    before_.push_back({processor, free_[processor]});
    free_[from] = sending + takes;
    free_[processor] = receiving + takes;
    all = std::max(all, free_[processor]);
    if (!came) continue;
    for (std::size_t at = first; at < came->size(); ++at) there_[(*came)[at]].push_back({processor, free_[processor]});
  }
  return all;
}

Nanoseconds Channels::arrival(std::uint32_t node, std::uint32_t processor, const std::vector<std::uint32_t>& on) {
  const Nanoseconds all = send_all(node, processor, on, nullptr);
  for (; !before_.empty(); before_.pop_back()) free_[before_.back().processor] = before_.back().free;
  return all;
}

std::vector<std::uint32_t> Channels::receive(std::uint32_t node, std::uint32_t processor,
                                             const std::vector<std::uint32_t>& on) {
  std::vector<std::uint32_t> came;
  send_all(node, processor, on, &came);
  before_.clear();
  return came;
}

}  // namespace plimsoll
