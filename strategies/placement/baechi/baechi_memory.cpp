#include "strategies/placement/baechi/baechi_memory.h"

#include <algorithm>

namespace plimsoll {
namespace {

bool is_among(const std::vector<std::uint32_t>& processors, std::uint32_t processor) {
  return std::ranges::find(processors, processor) != processors.end();
}

}  // namespace

BaechiMemory::BaechiMemory(const OpDag& dag, const Machine& machine)
    : dag_(dag),
      machine_(machine),
      residents_of_node_(dag.size),
      residents_of_group_(dag.together.size()),
      group_is_placed_(dag.together.size(), false),
      value_on_(dag.values.size()),
      resident_on_(dag.residents.size()),
      used_(machine.size(), 0),
      peak_(machine.size(), 0) {
  for (const DagValue& value : dag.values) unread_.push_back(value.readers.size());
  for (std::uint32_t r = 0; r < dag.residents.size(); ++r) {
    for (const std::uint32_t v : dag.residents[r].users) {
      const bool is_grouped = dag.group[v] != no_node;
      std::vector<std::uint32_t>& list = is_grouped ? residents_of_group_[dag.group[v]] : residents_of_node_[v];
      if (list.empty() || list.back() != r) list.push_back(r);
    }
  }
}

const std::vector<std::uint32_t>& BaechiMemory::residents_with(std::uint32_t node) const {
  const std::uint32_t group = dag_.group[node];
  return group == no_node || group_is_placed_[group] ? residents_of_node_[node] : residents_of_group_[group];
}

std::int64_t BaechiMemory::needed(std::uint32_t node, std::uint32_t processor) const {
  std::int64_t bytes = dag_.workspace[node];
  for (const std::uint32_t value : dag_.makes[node]) bytes += dag_.values[value].bytes;
  for (const std::uint32_t value : dag_.reads[node]) {
    if (!is_among(value_on_[value], processor)) bytes += dag_.values[value].bytes;
  }
  for (const std::uint32_t resident : residents_with(node)) {
    if (!is_among(resident_on_[resident], processor)) bytes += dag_.residents[resident].bytes;
  }
  return bytes;
}

void BaechiMemory::placed(std::uint32_t node, std::uint32_t processor) {
  used_[processor] += needed(node, processor);
  peak_[processor] = std::max(peak_[processor], used_[processor]);
  for (const std::uint32_t value : dag_.makes[node]) value_on_[value].push_back(processor);
  for (const std::uint32_t value : dag_.reads[node]) {
    if (!is_among(value_on_[value], processor)) value_on_[value].push_back(processor);
  }
  for (const std::uint32_t resident : residents_with(node)) {
    if (!is_among(resident_on_[resident], processor)) resident_on_[resident].push_back(processor);
  }
  if (dag_.group[node] != no_node) group_is_placed_[dag_.group[node]] = true;
}

std::vector<std::uint32_t> BaechiMemory::finished(std::uint32_t node, std::uint32_t processor) {
  std::vector<std::uint32_t> roomier{processor};
  used_[processor] -= dag_.workspace[node];
  for (const std::uint32_t value : dag_.reads[node]) {
    if (--unread_[value] != 0) continue;
    for (const std::uint32_t p : value_on_[value]) {
      used_[p] -= dag_.values[value].bytes;
      if (!is_among(roomier, p)) roomier.push_back(p);
    }
    value_on_[value].clear();
  }
  return roomier;
}

}  // namespace plimsoll
