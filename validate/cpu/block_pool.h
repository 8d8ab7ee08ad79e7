#pragma once
// Real memory for a replay: blocks that are kept for the next request of their size, so that after a warm-up no page is
// new. What is live is counted elsewhere (memory_ledger.h); this only gives addresses.

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "sim/core/units.h"

namespace plimsoll {

class BlockPool {
 public:
  /// Aligned to 64 bytes; throws std::bad_alloc where the machine has no more.
  std::byte* take(Bytes);
  void give_back(std::byte*, Bytes);

 private:
  struct Free {
    void operator()(std::byte*) const;
  };

  std::mutex mutex_;
  std::vector<std::unique_ptr<std::byte, Free>> blocks_;
  std::map<Bytes, std::vector<std::byte*>> free_;
};

}  // namespace plimsoll
