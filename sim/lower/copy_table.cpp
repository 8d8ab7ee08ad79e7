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
  for (; slots_[s].entry != nobody; s = (s + 1) & (slots_.size() - 1)) {
    if (slots_[s].hash == hash && entries_[slots_[s].entry].key == k) break;
  }
  return s;
}

std::uint32_t CopyTable::entry_of(const CopyKey& k) const {
  return slots_[slot_of(k, hash_of(k))].entry;
}

Copy* CopyTable::find(const CopyKey& k) {
  const std::uint32_t entry = entry_of(k);
  return entry == nobody ? nullptr : &entries_[entry].copy;
}

const Copy* CopyTable::find(const CopyKey& k) const {
  const std::uint32_t entry = entry_of(k);
  return entry == nobody ? nullptr : &entries_[entry].copy;
}

std::pair<Copy*, bool> CopyTable::try_emplace(const CopyKey& k) {
  if (2 * (entries_.size() - free_.size() + 1) > slots_.size()) grow();
  const std::uint32_t hash = hash_of(k);
  Slot& slot = slots_[slot_of(k, hash)];
  if (slot.entry != nobody) return {&entries_[slot.entry].copy, false};
  slot = {hash, static_cast<std::uint32_t>(entries_.size())};
  if (free_.empty()) {
    entries_.emplace_back();
  } else {
    slot.entry = free_.back();
    free_.pop_back();
  }
  entries_[slot.entry].key = k;
  return {&entries_[slot.entry].copy, true};
}

void CopyTable::erase(const CopyKey& k) {
  const std::size_t s = slot_of(k, hash_of(k));
  EXPECTS(slots_[s].entry != nobody);
  Copy& copy = entries_[slots_[s].entry].copy;
  copy.buffer = {};
  copy.maker.reset();
  copy.flows.clear();  // their room stays for the next
  copy.users.clear();
  copy.lossy = false;
  copy.holders.clear();
  free_.push_back(slots_[s].entry);
  empty_slot(s);
}

void CopyTable::rename(const CopyKey& from, const CopyKey& to) {
  const std::size_t s = slot_of(from, hash_of(from));
  const std::uint32_t entry = slots_[s].entry;
  EXPECTS(entry != nobody && !contains(to));
  empty_slot(s);
  entries_[entry].key = to;
  const std::uint32_t hash = hash_of(to);
  slots_[slot_of(to, hash)] = {hash, entry};
}

void CopyTable::grow() {
  std::vector<Slot> before(2 * slots_.size());
  before.swap(slots_);
  for (const Slot& each : before) {
    if (each.entry == nobody) continue;
    std::size_t s = home_of(each.hash);
    while (slots_[s].entry != nobody) s = (s + 1) & (slots_.size() - 1);
    slots_[s] = each;
  }
}

/// What stands behind it and would be looked for from before it moves up.
void CopyTable::empty_slot(std::size_t hole) {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t s = (hole + 1) & mask; slots_[s].entry != nobody; s = (s + 1) & mask) {
    const std::size_t from_home = (s - home_of(slots_[s].hash)) & mask, from_hole = (s - hole) & mask;
    if (from_home < from_hole) continue;
    slots_[hole] = slots_[s];
    hole = s;
  }
  slots_[hole] = {};
}

}  // namespace plimsoll
