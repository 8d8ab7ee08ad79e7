#include "sim/lower/copy_table.h"

#include "sim/core/expects.h"

namespace plimsoll {

/// Of a storage's micro-batches eight are neighbours, since devices take one after the other.
std::uint32_t CopyTable::hash_of(const CopyKey& k) {
  constexpr std::uint64_t odd = 0x9E3779B97F4A7C15ULL;
  constexpr std::uint32_t neighbours = 8;
  std::uint64_t mixed = ((std::uint64_t{k.storage} << 32U) ^ (k.micro_batch / neighbours)) * odd;
  mixed = (mixed ^ (mixed >> 32U) ^ k.memory ^ (std::uint64_t{k.chunk} << 40U)) * odd;
  const std::uint64_t rest = (std::uint64_t{k.from} << 24U) ^ (std::uint64_t{k.form} << 8U) ^ (k.arrived ? 1U : 0U);
  mixed = (mixed ^ (mixed >> 29U) ^ rest) * odd;
  return static_cast<std::uint32_t>(mixed >> 32U) / neighbours * neighbours + k.micro_batch % neighbours;
}

std::size_t CopyTable::slot_of(const CopyKey& k, std::uint32_t hash) const {
  std::size_t s = home_of(hash);
  for (; slots_[s].entry != nullptr; s = (s + 1) & (slots_.size() - 1)) {
    if (slots_[s].hash == hash && slots_[s].entry->key == k) break;
  }
  return s;
}

CopyTable::Entry* CopyTable::searched_entry_of(const CopyKey& k) const {
  Entry* const entry = slots_[slot_of(k, hash_of(k))].entry;
  if (entry != nullptr) latest_[k.storage] = {k, entry};
  return entry;
}

std::pair<Copy*, bool> CopyTable::try_emplace(const CopyKey& k) {
  Latest& latest = latest_[k.storage];
  if (latest.entry != nullptr && latest.key == k) return {&latest.entry->copy, false};
  if (2 * (entries_.size() - free_.size() + 1) > slots_.size()) grow();
  const std::uint32_t hash = hash_of(k);
  const std::size_t s = slot_of(k, hash);
  Entry* entry = slots_[s].entry;
  const bool is_new = entry == nullptr;
  if (is_new && free_.empty()) {
    entry = &entries_.emplace_back();
  } else if (is_new) {
    entry = free_.back();
    free_.pop_back();
  }
  if (is_new) {
    entry->key = k;
    fill_slot(s, hash, entry);
  }
  latest = {k, entry};
  return {&entry->copy, is_new};
}

void CopyTable::erase(const CopyKey& k) {
  Entry* const entry = entry_of(k);
  EXPECTS(entry != nullptr);
  Copy& copy = entry->copy;
  copy.buffer = {};
  copy.maker.reset();
  copy.flows.clear();  // their room stays for the next
  copy.users.clear();
  copy.lossy = false;
  copy.holders.clear();
  free_.push_back(entry);
  forget(k);
  empty_slot(entry->slot);
}

void CopyTable::rename(const CopyKey& from, const CopyKey& to) {
  Entry* const entry = entry_of(from);
  EXPECTS(entry != nullptr && !contains(to));
  forget(from);
  empty_slot(entry->slot);
  entry->key = to;
  const std::uint32_t hash = hash_of(to);
  fill_slot(slot_of(to, hash), hash, entry);
}

void CopyTable::fill_slot(std::size_t s, std::uint32_t hash, Entry* entry) {
  slots_[s] = {hash, entry};
  entry->slot = static_cast<std::uint32_t>(s);
}

/// Nothing is at the key any more.
void CopyTable::forget(const CopyKey& k) {
  Latest& latest = latest_[k.storage];
  if (latest.key == k) latest.entry = nullptr;
}

void CopyTable::grow() {
  std::vector<Slot> before(2 * slots_.size());
  before.swap(slots_);
  for (const Slot& each : before) {
    if (each.entry == nullptr) continue;
    std::size_t s = home_of(each.hash);
    while (slots_[s].entry != nullptr) s = (s + 1) & (slots_.size() - 1);
    fill_slot(s, each.hash, each.entry);
  }
}

/// What stands behind it and would be looked for from before it moves up.
void CopyTable::empty_slot(std::size_t hole) {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t s = (hole + 1) & mask; slots_[s].entry != nullptr; s = (s + 1) & mask) {
    const std::size_t from_home = (s - home_of(slots_[s].hash)) & mask, from_hole = (s - hole) & mask;
    if (from_home < from_hole) continue;
    fill_slot(hole, slots_[s].hash, slots_[s].entry);
    hole = s;
  }
  slots_[hole] = {};
}

}  // namespace plimsoll
