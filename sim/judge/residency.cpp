// One step: residency and order of what it reads, writes and frees.

#include <algorithm>
#include <utility>

#include "sim/judge/judge.h"

namespace plimsoll {

void Judge::judge(StepId s) {
  const Step& step = schedule_[s];
  const auto reads = schedule_.buffers_in(step.reads);
  const auto writes = schedule_.buffers_in(step.writes);
  for (const BufferId b : reads) judge_use(s, b, "reads");
  for (const BufferId b : writes) {
    judge_use(s, b, "writes");
    judge_after_readers(s, b);
  }
  for (const BufferId b : schedule_.buffers_in(step.allocates)) allocate(s, b);
  judge_cost(s);
  if (step.collective != no_collective) {
    judge_flow(s);
  } else if (step.work.is_transfer()) {
    judge_copy(s);
  } else if (step.op != no_op) {
    judge_compute(s);
  } else if (step.reads.count + step.writes.count + step.allocates.count > 0) {  // else it only frees
    judge_conversion(s);
  }
  for (const BufferId b : reads) held_in(b).readers.push_back(s);
  for (const BufferId b : schedule_.buffers_in(step.frees)) judge_free(s, b);
}

bool Judge::same_collective(StepId a, StepId b) const {
  return schedule_[a].collective != no_collective && schedule_[a].collective == schedule_[b].collective;
}

void Judge::judge_use(StepId s, BufferId b, std::string_view verb) {
  const Held& held = held_in(b);
  if (held.life == Life::unborn) return report(Rule::not_resident, s, b, std::string(verb) + " before its allocation");
  if (held.life == Life::dead) return report(Rule::not_resident, s, b, std::string(verb) + " after its free");
  for (const StepId maker : held.makers) {
    if (same_collective(maker, s) || ordered(maker, s)) continue;
    report(Rule::not_ordered, s, b,
           std::string(verb) + ", without waiting for step " + std::to_string(maker.index) + " that makes it,");
  }
  if (held.from != no_collective && schedule_[s].collective != held.from) judge_result_of_collective(s, b);
}

void Judge::judge_after_readers(StepId s, BufferId b) {
  for (const StepId reader : held_in(b).readers) {
    if (same_collective(reader, s) || ordered(reader, s)) continue;
    report(Rule::not_ordered, s, b,
           "overwrites, without waiting for its reader step " + std::to_string(reader.index) + ",");
  }
}

void Judge::allocate(StepId s, BufferId b) {
  const Life life = life_of(b);
  if (life != Life::unborn) report(Rule::malformed, s, b, "allocates again");
  if (life == Life::live) return;
  if (life == Life::dead) held_at_[b.index] = not_yet;
  held_in(b).life = Life::live;
  born(b);
}

void Judge::judge_free(StepId s, BufferId b) {
  Held& held = held_in(b);
  if (held.life == Life::dead) return report(Rule::freed_twice, s, b, "frees again");
  if (held.life == Life::unborn) return report(Rule::freed_twice, s, b, "frees, though it was never allocated,");
  for (const auto* users : {&held.makers, &held.readers}) {
    for (const StepId user : *users) {
      if (ordered(user, s)) continue;
      report(Rule::not_ordered, s, b, "frees, without waiting for its user step " + std::to_string(user.index) + ",");
    }
  }
  held.life = Life::dead;
  died(b);
  if (!outlives_free_[b.index]) forget(b);
}

Judge::Place Judge::place_of(BufferId b) const {
  const Buffer& buffer = schedule_[b];
  const Tensor& tensor = graph_[buffer.tensor];
  return {tensor.storage, per_micro_batch(tensor.kind) ? buffer.micro_batch : 0, buffer.replica, buffer.memory};
}

BufferId& Judge::newest_live(TensorId t, std::uint32_t micro_batch) {
  const Tensor& tensor = graph_[t];
  const std::uint32_t list = per_micro_batch(tensor.kind) ? micro_batch % lists_a_storage_ : 0;
  return newest_live_[std::size_t{tensor.storage.index} * lists_a_storage_ + list];
}

void Judge::born(BufferId b) {
  const Buffer& buffer = schedule_[b];
  if (buffer.is_packed()) return;
  BufferId& newest = newest_live(buffer.tensor, buffer.micro_batch);
  if (newest != none) held_in(newest).newer = b;
  held_in(b).older = std::exchange(newest, b);
}

void Judge::died(BufferId b) {
  const Buffer& buffer = schedule_[b];
  if (buffer.is_packed()) return;
  const Held& held = held_in(b);
  if (held.older != none) held_in(held.older).newer = held.newer;
  if (held.newer != none) {
    held_in(held.newer).older = held.older;
  } else {
    newest_live(buffer.tensor, buffer.micro_batch) = held.older;
  }
}

Judge::Held& Judge::fill(StepId s, BufferId b, Tensors tensors) {
  Held& held = held_in(b);
  held.tensors = std::move(tensors);
  held.makers = {s};
  held.readers.clear();
  held.from = no_collective;
  held.approximate = held.is_pooled = false;
  return held;
}

std::optional<MemoryId> Judge::own_memory(const Step& step) const {
  const Stream& stream = schedule_[step.stream];
  return stream.way.computes() ? ends_of(step).from : platform_[stream.device].memory;
}

bool Judge::belongs(const Buffer& buffer, const Step& step, std::uint32_t micro_batch) const {
  return buffer.replica == step.replica &&
         (!per_micro_batch(graph_[buffer.tensor].kind) || buffer.micro_batch == micro_batch);
}

bool Judge::is_live(TensorId t, const Step& step) {
  const std::optional<MemoryId> memory = own_memory(step);
  for (BufferId b = newest_live(t, step.micro_batch); b != none; b = held_in(b).older) {
    const Buffer& buffer = schedule_[b];
    const bool same_storage = graph_[buffer.tensor].storage == graph_[t].storage;
    if (same_storage && buffer.memory == memory && belongs(buffer, step)) return true;
  }
  return false;
}

}  // namespace plimsoll
