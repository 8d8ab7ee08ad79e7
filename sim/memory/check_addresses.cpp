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
  std::optional<BufferId> buffer;
  std::optional<StepId> step;      ///< that has the workspace
  std::optional<StepId> freed_by;  ///< unset: it stays

  std::string name() const {
    return buffer ? "buffer " + std::to_string(buffer->index) : "the workspace of step " + std::to_string(step->index);
  }
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
      if (!is_gone) return there.name();
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

  std::optional<WrongAddress> judge() {
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
  std::optional<WrongAddress> step(StepId id) {
    const Step& step = schedule_[id];
    for (const BufferId b : schedule_.buffers_in(step.allocates)) {
      if (auto wrong = buffer(b, id)) return wrong;
    }
    return move_in(workspaces_[step.stream.index], addresses_.of_workspace[id.index], step.workspace,
                   {std::nullopt, id, id}, id);
  }

  std::optional<WrongAddress> buffer(BufferId b, std::optional<StepId> current) {
    const Buffer& buffer = schedule_[b];
    return move_in(buffer.memory, addresses_.of_buffer[b.index], buffer.bytes, {b, std::nullopt, freed_by_[b.index]},
                   current);
  }

  std::optional<WrongAddress> move_in(MemoryId memory, std::optional<Bytes> at, Bytes size, const Tenant& tenant,
                                      std::optional<StepId> current) {
    const auto wrong = [&](const std::string& what) {
      return WrongAddress{tenant.buffer, tenant.step, tenant.name() + what};
    };
    const std::optional<Bytes>& block = sizes_[memory.index];
    if (!block && at) return wrong(" lies in a memory without a block");
    if (!block || size <= Bytes{0}) return std::nullopt;
    if (!at) return wrong(" has no address");
    if (*at < Bytes{0} || size > *block || *at > *block - size) return wrong(" lies outside its block");
    const std::optional<std::string> other = tenants_[memory.index].move_in(*at, *at + size, tenant, before_, current);
    if (!other) return std::nullopt;
    return wrong(" may be live together with " + *other + ", with which it shares bytes");
  }

  const Schedule& schedule_;
  const Addresses& addresses_;
  std::vector<MemoryId> workspaces_;             ///< by stream
  std::vector<BlockTenants> tenants_;            ///< by memory
  std::vector<std::optional<Bytes>> sizes_;      ///< by memory: of its block
  std::vector<std::optional<StepId>> freed_by_;  ///< by buffer
  HappensBefore before_;
};

}  // namespace

std::optional<WrongAddress> wrong_address(const Schedule& schedule, const Platform& platform,
                                          const Addresses& addresses) {
  return AddressJudge(schedule, platform, addresses).judge();
}

}  // namespace plimsoll
