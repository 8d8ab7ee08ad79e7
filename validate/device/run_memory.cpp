#include "validate/device/run_memory.h"

#include <algorithm>
#include <set>

#include "sim/core/expects.h"

namespace plimsoll {

CachingMemory::~CachingMemory() {
  for (const auto& [key, segment] : segments_) {
    if (segment.address != nullptr) source_.give_back(segment.address, segment.size);
  }
}

std::optional<Grant> CachingMemory::take(Bytes bytes, StreamId stream) {
  if (bytes == Bytes{0}) return Grant{};
  const Bytes before = rules_.reserved();
  const std::optional<BlockId> block = rules_.allocate(bytes, stream);
  // Even where the request failed or bytes stayed the same, segments may have gone: then bytes or the block's segment
  // tell.
  const bool is_known = block && segments_.contains({stream, rules_[*block].small, rules_[*block].segment});
  if ((rules_.reserved() != before || !is_known) && !follow_rules()) return std::nullopt;
  if (!block) return std::nullopt;
  const BlockView view = rules_[*block];
  std::byte* address = segments_.at({view.stream, view.small, view.segment}).address + view.offset.count;
  blocks_[address] = *block;
  peaks_.reserved = std::max(peaks_.reserved, rules_.reserved());
  peaks_.allocated = std::max(peaks_.allocated, rules_.allocated());
  return Grant{address, users_of(address, view.size)};
}

void CachingMemory::give_back(std::byte* address, Bytes bytes, std::span<const StepId> by) {
  if (bytes == Bytes{0}) return;
  const auto found = blocks_.find(address);
  EXPECTS(found != blocks_.end());
  used_[address] = {rules_[found->second].size, {by.begin(), by.end()}};
  rules_.free(found->second);
  blocks_.erase(found);
}

/// Takes the segments that the rules have and gives back those that they have no more; no where the source has no more.
bool CachingMemory::follow_rules() {
  std::map<SegmentKey, Bytes> wanted;
  for (const BlockView& block : rules_.blocks()) wanted[{block.stream, block.small, block.segment}] += block.size;
  std::erase_if(segments_, [&](const auto& entry) {
    const auto& [key, segment] = entry;
    if (wanted.contains(key)) return false;
    used_.erase(used_.lower_bound(segment.address), used_.lower_bound(segment.address + segment.size.count));
    source_.give_back(segment.address, segment.size);
    return true;
  });
  bool has_all = true;
  for (const auto& [key, size] : wanted) {
    if (segments_.contains(key)) continue;
    std::byte* address = source_.take(size);
    has_all = has_all && address != nullptr;
    if (address != nullptr) segments_[key] = {address, size};
  }
  return has_all;
}

/// The steps that used any byte of the range, which is nobody's from now on.
std::vector<StepId> CachingMemory::users_of(std::byte* address, Bytes size) {
  std::byte* end = address + size.count;
  std::set<StepId> users;
  auto next = used_.lower_bound(address);
  if (next != used_.begin() && std::prev(next)->first + std::prev(next)->second.size.count > address) --next;
  while (next != used_.end() && next->first < end) {
    const auto [first, used] = *next;
    next = used_.erase(next);
    users.insert(used.by.begin(), used.by.end());
    std::byte* last = first + used.size.count;
    if (first < address) used_[first] = {Bytes{address - first}, used.by};
    if (last > end) used_[end] = {Bytes{last - end}, used.by};
  }
  return {users.begin(), users.end()};
}

KeptBlocks::~KeptBlocks() {
  for (const auto& [address, bytes] : all_) source_.give_back(address, bytes);
}

void KeptBlocks::begin_run(std::optional<Bytes> capacity) {
  capacity_ = capacity;
  taken_ = Bytes{0};
  free_.clear();
  for (const auto& [address, bytes] : all_) free_.emplace(bytes, Grant{address, {}});
}

std::optional<Grant> KeptBlocks::take(Bytes bytes, StreamId) {
  if (bytes == Bytes{0}) return Grant{};
  if (capacity_ && taken_ + bytes > *capacity_) return std::nullopt;
  Grant grant;
  const auto found = free_.find(bytes);
  if (found != free_.end()) {
    grant = found->second;
    free_.erase(found);
  } else {
    if (capacity_ && held_ + bytes > *capacity_) drop_free();
    grant.address = source_.take(bytes);
    if (grant.address == nullptr) {
      drop_free();
      grant.address = source_.take(bytes);
    }
    if (grant.address == nullptr) return std::nullopt;
    all_[grant.address] = bytes;
    held_ += bytes;
  }
  taken_ += bytes;
  return grant;
}

void KeptBlocks::drop_free() {
  for (const auto& [bytes, grant] : free_) {
    all_.erase(grant.address);
    held_ -= bytes;
    source_.give_back(grant.address, bytes);
  }
  free_.clear();
}

void KeptBlocks::give_back(std::byte* address, Bytes bytes, std::span<const StepId> by) {
  if (bytes == Bytes{0}) return;
  taken_ -= bytes;
  free_.emplace(bytes, Grant{address, {by.begin(), by.end()}});
}

}  // namespace plimsoll
