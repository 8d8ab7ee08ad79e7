#pragma once
// The buffers that are live while a schedule is issued, by what they hold: a hash table whose entries stay where they
// are, and whose room is used again.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "sim/core/containers/short_list.h"
#include "sim/core/ids.h"

namespace plimsoll {

/// A storage, or a chunk of it, of one micro-batch in one memory.
struct CopyKey {
  std::uint32_t storage = 0;
  std::uint32_t micro_batch = 0;  ///< of a parameter that has versions: the version
  std::uint32_t memory = 0, chunk = 0;
  std::uint32_t from = 0;  ///< of a micro-batch's value elsewhere than on the device that put it there: 1 + that device
  std::uint32_t form = 0;  ///< of LiveCopies::form; 0: the value itself
  bool arrived = false;    ///< another device's part of a gradient, beside the sum of those before it
  friend bool operator==(const CopyKey&, const CopyKey&) = default;
};

struct CopyKeyHash {
  std::size_t operator()(const CopyKey& k) const {
    const std::uint64_t a = (std::uint64_t{k.storage} << 32U) ^ k.micro_batch;
    return std::hash<std::uint64_t>{}(a * 0x9E3779B97F4A7C15ULL ^ k.memory ^ (std::uint64_t{k.chunk} << 48U) ^
                                      (std::uint64_t{k.from} << 24U) ^ (std::uint64_t{k.form} << 56U) ^
                                      (k.arrived ? 1U : 0U));
  }
};

/// A live buffer, who made it and who has used it since.
struct Copy {
  BufferId buffer;
  std::optional<StepId> maker;
  std::vector<StepId> flows;  ///< that made it together, the maker among them; of a collective
  ShortList<StepId, 4> users;
  bool lossy = false;            ///< an approximation
  ShortList<PartId, 2> holders;  ///< parts on one device that hold what is a micro-batch's; it dies with the last drop

  bool is_held_by(PartId part) const { return std::ranges::find(holders, part) != holders.end(); }
  void hold(PartId part) {
    if (!is_held_by(part)) holders.push_back(part);
  }

  /// What a reader waits for.
  void add_makers(std::vector<StepId>& waits) const {
    if (maker) waits.push_back(*maker);
    waits.insert(waits.end(), flows.begin(), flows.end());
  }
  /// By a step that waits for all who used it before.
  void overwritten(StepId by) {
    maker = by;
    flows.clear();
    users.clear();
    users.push_back(by);
  }
};

class CopyTable {
 public:
  /// Of keys of so many storages.
  explicit CopyTable(std::size_t storages) : latest_(storages) {}

  bool contains(const CopyKey& k) const { return entry_of(k) != nullptr; }
  Copy* find(const CopyKey& k) const {
    Entry* const entry = entry_of(k);
    return entry == nullptr ? nullptr : &entry->copy;
  }
  /// What is live at the key, or a new copy of which nothing is known; whether it is new. Neither moves until erased.
  std::pair<Copy*, bool> try_emplace(const CopyKey&);
  /// Which is there.
  void erase(const CopyKey&);
  /// What is at one key is at another from now on, at which nothing is.
  void rename(const CopyKey& from, const CopyKey& to);

 private:
  struct Entry {
    CopyKey key;
    std::uint32_t slot = 0;
    Copy copy;
  };
  /// Of a table that is probed one slot after the other.
  struct Slot {
    std::uint32_t hash = 0;
    Entry* entry = nullptr;
  };
  /// Which of a storage's copies was asked for last: it often is again.
  struct Latest {
    CopyKey key;
    Entry* entry = nullptr;
  };

  static std::uint32_t hash_of(const CopyKey&);
  std::size_t home_of(std::uint32_t hash) const { return hash & (slots_.size() - 1); }
  std::size_t slot_of(const CopyKey&, std::uint32_t hash) const;  ///< that has the key, or is the first free one
  Entry* entry_of(const CopyKey& k) const {
    const Latest& latest = latest_[k.storage];
    return latest.entry != nullptr && latest.key == k ? latest.entry : searched_entry_of(k);
  }
  Entry* searched_entry_of(const CopyKey&) const;
  void fill_slot(std::size_t, std::uint32_t hash, Entry*);
  void empty_slot(std::size_t);
  void forget(const CopyKey&);
  void grow();

  std::vector<Slot> slots_{std::size_t{1} << 10U};  // a power of two, at most half of them taken
  std::deque<Entry> entries_;
  std::vector<Entry*> free_;            // entries without a slot
  mutable std::vector<Latest> latest_;  // by storage
};

}  // namespace plimsoll
