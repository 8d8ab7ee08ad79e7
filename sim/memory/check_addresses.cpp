#include <algorithm>
#include <map>
#include <utility>

#include "sim/core/expects.h"
#include "sim/judge/happens_before.h"
#include "sim/judge/workspace_memories.h"
#include "sim/memory/addresses.h"

namespace plimsoll {
namespace {

/// A buffer, or the workspace of a step.
struct Tenant {
  std::string name;
  std::optional<StepId> freed_by;  ///< unset: it stays
};

/// Who has had each byte of a block last.
class BlockTenants {
 public:
  /// The first of those before that may still be there when the current step starts.
  std::optional<std::string> move_in(Bytes from, Bytes end, const Tenant& tenant, const HappensBefore& before,
                                     std::optional<StepId> current) {
    cut_at(from);
    cut_at(end);
    for (auto at = ranges_.lower_bound(from); at != ranges_.end() && at->first < end; at = ranges_.erase(at)) {
      const Tenant& there = at->second.second;
      const bool is_gone = current && there.freed_by && *there.freed_by < *current && before.finished(*there.freed_by);
      if (!is_gone) return there.name;
    }
    ranges_.emplace(from, std::pair(end, tenant));
    return std::nullopt;
  }

 private:
  void cut_at(Bytes place) {
    auto after = ranges_.lower_bound(place);
    if (after == ranges_.begin()) return;
    const auto at = std::prev(after);
    if (at->second.first <= place) return;
    ranges_.emplace(place, at->second);
    at->second.first = place;
  }

  std::map<Bytes, std::pair<Bytes, Tenant>> ranges_;  ///< by where they begin
};

class AddressJudge {
 public:
  AddressJudge(const Schedule& schedule, const Platform& platform, const Addresses& addresses)
      : schedule_(schedule),
        addresses_(addresses),
        workspaces_(workspace_memories(schedule, platform)),
        tenants_(platform.memories.size()),
        sizes_(platform.memories.size()),
        freed_by_(schedule.buffers.size()),
        before_(schedule) {
    for (const AddressBlock& block : addresses.blocks) sizes_[block.memory.index] = block.size;
    for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
      for (const BufferId b : schedule.buffers_in(schedule.steps[s].frees)) freed_by_[b.index] = id_at<StepId>(s);
    }
  }

  std::optional<std::string> judge() {
    for (const BufferId b : schedule_.resident) {
      if (auto wrong = buffer(b, std::nullopt)) return wrong;
    }
    for (std::size_t s = 0; s < schedule_.steps.size(); ++s) {
      EXPECTS(before_.next());
      if (auto wrong = step(id_at<StepId>(s))) return wrong;
    }
    return std::nullopt;
  }

 private:
  std::optional<std::string> step(StepId id) {
    const Step& step = schedule_[id];
    for (const BufferId b : schedule_.buffers_in(step.allocates)) {
      if (auto wrong = buffer(b, id)) return wrong;
    }
    const std::optional<Bytes>& at = addresses_.of_workspace[id.index];
    if (!at) return std::nullopt;
    return move_in(workspaces_[step.stream.index], *at, step.workspace,
                   {"the workspace of step " + std::to_string(id.index), id}, id);
  }

  std::optional<std::string> buffer(BufferId b, std::optional<StepId> current) {
    const std::optional<Bytes>& at = addresses_.of_buffer[b.index];
    const Buffer& buffer = schedule_[b];
    if (!at) return std::nullopt;
    return move_in(buffer.memory, *at, buffer.bytes, {"buffer " + std::to_string(b.index), freed_by_[b.index]},
                   current);
  }

  std::optional<std::string> move_in(MemoryId memory, Bytes at, Bytes size, const Tenant& tenant,
                                     std::optional<StepId> current) {
    if (at < Bytes{0} || at + size > sizes_[memory.index]) return tenant.name + " lies outside its block";
    const std::optional<std::string> other = tenants_[memory.index].move_in(at, at + size, tenant, before_, current);
    if (!other) return std::nullopt;
    return tenant.name + " may be live together with " + *other + ", with which it shares bytes";
  }

  const Schedule& schedule_;
  const Addresses& addresses_;
  std::vector<MemoryId> workspaces_;             ///< by stream
  std::vector<BlockTenants> tenants_;            ///< by memory
  std::vector<Bytes> sizes_;                     ///< by memory: of its block
  std::vector<std::optional<StepId>> freed_by_;  ///< by buffer
  HappensBefore before_;
};

}  // namespace

std::optional<std::string> wrong_address(const Schedule& schedule, const Platform& platform,
                                         const Addresses& addresses) {
  return AddressJudge(schedule, platform, addresses).judge();
}

}  // namespace plimsoll
