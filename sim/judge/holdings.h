#pragma once
// What every buffer holds while the steps are walked in issue order: which tensors, which summed contributions, which
// version, who made and who read it. No judgement is here: the walk gives buffers their lives, and the judge of what a
// step fills says with what.

#include <cstdint>
#include <deque>
#include <tuple>
#include <vector>

#include "sim/core/containers/short_list.h"
#include "sim/core/graph.h"
#include "sim/core/schedule.h"
#include "sim/judge/sums.h"

namespace plimsoll {

enum class Life : std::uint8_t { unborn, live, dead };

using HeldTensors = ShortList<TensorId, 1>;
using HeldSteps = ShortList<StepId, 3>;

/// What one buffer holds.
struct HeldValue {
  static constexpr BufferId none{UINT32_MAX};

  Life life = Life::unborn;
  HeldTensors tensors;                  ///< valid now, of the buffer's storage
  RangedSums sums;                      ///< of a parameter gradient
  std::uint32_t version = 0;            ///< how often it was updated; of a parameter gradient: for which update it is
  HeldSteps makers;                     ///< who filled it last
  HeldSteps readers;                    ///< since
  CollectiveId from = no_collective;    ///< whose result it is
  bool approximate = false;             ///< not the value itself, but what a lossy codec has left of it or of others
  bool is_clipped = false;              ///< a gradient that was scaled by the norm of all
  bool is_pooled = false;               ///< by a codec that pools, of this value
  BufferId newer = none, older = none;  ///< of the list of live ones that it is in

  /// Of a buffer that nothing is known of; what lists took of memory may stay theirs.
  void forget();
};

/// A tensor's storage of one micro-batch and replica in one memory.
using HeldAt = std::tuple<StorageId, std::uint32_t, std::uint32_t, MemoryId>;

class Holdings {
 public:
  /// Makers: by tensor, the ops that contribute to a parameter's gradient. Of a well-formed schedule.
  Holdings(const Schedule&, const Graph&, const std::vector<std::vector<OpId>>& makers);

  /// What a buffer holds; one that is freed holds nothing that can be changed. Kept for as long as there is need, so
  /// that a schedule of many steps is judged within the caches.
  HeldValue& operator[](BufferId b) {
    const std::uint32_t at = held_at_[b.index];
    return at < no_more ? held_[at] : begin_or_dead(b);
  }
  Life life_of(BufferId b) const {
    const std::uint32_t at = held_at_[b.index];
    return at == not_yet ? Life::unborn : at == no_more ? Life::dead : held_[at].life;
  }
  /// Though it is not dead, which is reported by itself.
  bool holds_nothing(BufferId b) { return life_of(b) != Life::dead && (*this)[b].tensors.empty(); }
  HeldAt place_of(BufferId b) const;

  /// A dead buffer may live again; a live one stays as it is.
  void allocate(BufferId b);
  /// Nothing if it is not live.
  void free(BufferId b);
  /// Marks a buffer as filled by a step, with values that are exact.
  HeldValue& fill(StepId s, BufferId b, HeldTensors tensors);

  /// The first of a list of live buffers with plain values, among them all of the tensor's storage and micro-batch.
  BufferId newest_live(TensorId t, std::uint32_t micro_batch) const { return newest_live_[list_of(t, micro_batch)]; }

 private:
  static constexpr std::uint32_t not_yet = UINT32_MAX, no_more = UINT32_MAX - 1;

  HeldValue& begin_or_dead(BufferId b);
  std::size_t list_of(TensorId, std::uint32_t micro_batch) const;
  void born(BufferId b, HeldValue& held);
  void died(BufferId b, const HeldValue& held);

  const Schedule& schedule_;
  const Graph& graph_;
  const std::vector<std::vector<OpId>>& makers_;
  std::vector<std::uint32_t> held_at_;  ///< by buffer: index into held_, not_yet or no_more
  std::deque<HeldValue> held_;          ///< of a buffer, one after the other
  std::vector<std::uint32_t> unused_;   ///< of held_
  HeldValue dead_;                      ///< of every buffer that has none any more
  std::vector<bool> outlives_free_;     ///< by buffer: its collective may end later
  std::uint32_t lists_a_storage_ = 1;   ///< of live buffers; micro-batches take turns at them
  std::vector<BufferId> newest_live_;   ///< by list, none if it is empty
};

}  // namespace plimsoll
