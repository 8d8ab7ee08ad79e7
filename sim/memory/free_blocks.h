#pragma once
// The free blocks of one pool by size, then address.

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/core/ids.h"
#include "sim/core/units.h"

namespace plimsoll {

using BlockId = Id<struct BlockTag>;

/// A sorted sequence. A pool rarely has more than some hundred free blocks, and moving those is faster than a tree.
class FreeBlocks {
 public:
  struct Entry {
    Bytes size;
    std::int64_t address = 0;
    BlockId block;

    friend auto operator<=>(const Entry&, const Entry&) = default;
  };
  using Iterator = std::vector<Entry>::const_iterator;

  void insert(const Entry& entry) { entries_.insert(std::ranges::lower_bound(entries_, entry), entry); }
  void erase(const Entry& entry) { entries_.erase(std::ranges::lower_bound(entries_, entry)); }

  /// The first of at least this size.
  Iterator at_least(Bytes size) const { return std::ranges::lower_bound(entries_, size, {}, &Entry::size); }
  Iterator begin() const { return entries_.begin(); }
  Iterator end() const { return entries_.end(); }
  bool empty() const { return entries_.empty(); }
  const Entry& largest() const { return entries_.back(); }

 private:
  std::vector<Entry> entries_;
};

}  // namespace plimsoll
