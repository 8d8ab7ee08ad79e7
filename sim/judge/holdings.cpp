#include "sim/judge/holdings.h"

#include <algorithm>
#include <utility>

namespace plimsoll {

Holdings::Holdings(const Schedule& schedule, const Graph& graph, const std::vector<std::vector<OpId>>& makers)
    : schedule_(schedule),
      graph_(graph),
      makers_(makers),
      held_at_(schedule.buffers.size(), not_yet),
      outlives_free_(schedule.buffers.size(), false) {
  const std::size_t storages = std::max<std::size_t>(1, graph.storages);
  lists_a_storage_ = static_cast<std::uint32_t>(
      std::min<std::size_t>(std::max(1U, schedule.micro_batches), 1 + 2 * schedule.buffers.size() / storages));
  newest_live_.resize(storages * lists_a_storage_, HeldValue::none);
  for (const Collective& collective : schedule.collectives) {
    for (const std::vector<BufferId>* list : {&collective.inputs, &collective.outputs}) {
      for (const BufferId b : *list) outlives_free_[b.index] = true;
    }
  }
}

void HeldValue::forget() {
  life = Life::unborn;
  tensors.clear();
  sums = {};
  version = 0;
  makers.clear();
  readers.clear();
  from = no_collective;
  approximate = is_clipped = is_pooled = false;
  newer = older = none;
}

HeldValue& Holdings::begin_or_dead(BufferId b) {
  std::uint32_t& at = held_at_[b.index];
  if (at == no_more) return dead_ = {.life = Life::dead};
  if (unused_.empty()) {
    unused_.push_back(static_cast<std::uint32_t>(held_.size()));
    held_.emplace_back();
  }
  at = unused_.back();
  unused_.pop_back();
  const Buffer& buffer = schedule_[b];
  HeldValue& held = held_[at];
  held.forget();
  if (!makers_[buffer.tensor.index].empty()) held.sums = RangedSums(buffer.range_offset, buffer.range_length);
  return held;
}

HeldAt Holdings::place_of(BufferId b) const {
  const Buffer& buffer = schedule_[b];
  const Tensor& tensor = graph_[buffer.tensor];
  return {tensor.storage, per_micro_batch(tensor.kind) ? buffer.micro_batch : 0, buffer.replica, buffer.memory};
}

void Holdings::allocate(BufferId b) {
  const Life life = life_of(b);
  if (life == Life::live) return;
  if (life == Life::dead) held_at_[b.index] = not_yet;
  HeldValue& held = (*this)[b];
  held.life = Life::live;
  born(b, held);
}

void Holdings::free(BufferId b) {
  if (life_of(b) != Life::live) return;
  HeldValue& held = (*this)[b];
  held.life = Life::dead;
  died(b, held);
  if (outlives_free_[b.index]) return;
  unused_.push_back(std::exchange(held_at_[b.index], no_more));
}

HeldValue& Holdings::fill(StepId s, BufferId b, HeldTensors tensors) {
  HeldValue& held = (*this)[b];
  held.tensors = std::move(tensors);
  held.makers = {s};
  held.readers.clear();
  held.from = no_collective;
  held.approximate = held.is_pooled = held.is_clipped = false;
  return held;
}

std::size_t Holdings::list_of(TensorId t, std::uint32_t micro_batch) const {
  const Tensor& tensor = graph_[t];
  const std::uint32_t list = per_micro_batch(tensor.kind) ? micro_batch % lists_a_storage_ : 0;
  return std::size_t{tensor.storage.index} * lists_a_storage_ + list;
}

void Holdings::born(BufferId b, HeldValue& held) {
  const Buffer& buffer = schedule_[b];
  if (buffer.is_packed()) return;
  BufferId& newest = newest_live_[list_of(buffer.tensor, buffer.micro_batch)];
  if (newest != HeldValue::none) (*this)[newest].newer = b;
  held.older = std::exchange(newest, b);
}

void Holdings::died(BufferId b, const HeldValue& held) {
  const Buffer& buffer = schedule_[b];
  if (buffer.is_packed()) return;
  if (held.older != HeldValue::none) (*this)[held.older].newer = held.newer;
  if (held.newer != HeldValue::none) {
    (*this)[held.newer].older = held.older;
  } else {
    newest_live_[list_of(buffer.tensor, buffer.micro_batch)] = held.older;
  }
}

}  // namespace plimsoll
