#include "sim/core/gradient_owners.h"

#include <algorithm>

namespace plimsoll {

void GradientOwners::add_maker(TensorId gradient, const Part& part) {
  std::vector<const Part*>& owners = owner_[gradient.index];
  const auto owner = std::ranges::find(owners, part.replica, &Part::replica);
  if (owner == owners.end()) {
    owners.push_back(&part);
    return;
  }
  const auto is_on_its_device = [&](const Part* p) { return p->device == part.device; };
  std::vector<const Part*>& others = partial_[gradient.index];
  if (!is_on_its_device(*owner) && std::ranges::none_of(others, is_on_its_device)) others.push_back(&part);
}

std::vector<const Part*> GradientOwners::of(const Op& update) const {
  for (const TensorId t : update.inputs) {
    const auto owner = owner_.find(t.index);
    if (owner != owner_.end()) return owner->second;
  }
  return {};
}

void GradientOwners::sum() {
  for (const auto& [gradient, parts] : partial_) {
    for (const Part* part : parts) sum_at_owner(TensorId{gradient}, *part);
  }
}

void GradientOwners::sum_at_owner(TensorId gradient, const Part& part) {
  const Part& owner = **std::ranges::find(owner_[gradient.index], part.replica, &Part::replica);
  const CopyKey first = copies_.key(gradient, 0, part.replica, copies_.memory_of(part.device));
  for (std::uint32_t chunk = 0; chunk < copies_.chunks_of(gradient); ++chunk) {
    CopyKey from = first, sum = first;
    from.chunk = sum.chunk = chunk;
    sum.memory = copies_.memory_of(owner.device).index;
    refuse_unless_there(gradient, from, part);
    refuse_unless_there(gradient, sum, owner);
    CopyKey arrived = sum;
    arrived.arrived = true;
    const std::vector<StepId> contributors = copies_[from].users;
    const StepId sent =
        copies_.copy(gradient, from, arrived, {part.device, {place::device, MemoryId{sum.memory}}}, StepKind::send);
    for (const StepId contributor : contributors) copies_.wait(sent, contributor);
    add_up(arrived, sum, owner);
    copies_.drop(arrived, owner.device);
    if (problem_.gradients == Gradients::fresh) copies_.drop(from, part.device);
  }
}

/// Sums are made on devices: a tape that has moved the gradient away, to update its parameter on the host, cannot be.
void GradientOwners::refuse_unless_there(TensorId gradient, const CopyKey& k, const Part& part) const {
  if (copies_.contains(k)) return;
  throw CannotLower{"'" + graph_[gradient].name + "' is not on '" + problem_.platform[part.device].name +
                    "' when the parts on several devices that share its parameter sum it there: updates on the host "
                    "need a parameter that one device trains"};
}

void GradientOwners::add_up(const CopyKey& from, const CopyKey& sum, const Part& owner) {
  Copy &source = copies_[from], &target = copies_[sum];
  NewStep step;
  step.kind = StepKind::backward;
  step.stream = copies_.stream(owner.device, way::compute);
  step.replica = owner.replica;
  const OpCost cost{.measured = {}, .flops = Flops{0}, .bytes_moved = 3 * copies_.bytes_of(target)};
  step.work.seconds = duration(cost, graph_.source, problem_.platform[owner.device]).value_or(Seconds{0});
  step.reads = {source.buffer};
  step.writes = {target.buffer};
  step.waits = target.users;
  for (const Copy* copy : {&source, &target}) {
    if (copy->maker) step.waits.push_back(*copy->maker);
  }
  const StepId issued = copies_.add_compute(step, owner.device);
  source.users.push_back(issued);
  target.overwritten(issued);
}

void GradientOwners::hand_out(const Op& update, const Part& owner) {
  for (const TensorId t : update.mutates) {
    if (graph_[t].kind != TensorKind::parameter) continue;
    const CopyKey from = copies_.key(t, 0, owner.replica, copies_.memory_of(owner.device));
    for (const Part& part : partition_.parts) {
      CopyKey to = copies_.key(t, 0, part.replica, copies_.memory_of(part.device));
      if (part.replica != owner.replica || to == from || !copies_.contains(to) || handed_out_.contains(to)) continue;
      handed_out_.insert(to);
      for (CopyKey source = from; source.chunk < copies_.chunks_of(t); to.chunk = ++source.chunk) {
        const StepId updated = copies_[source].users.back();
        const StepId sent =
            copies_.copy(t, source, to, {owner.device, {place::device, MemoryId{to.memory}}}, StepKind::send);
        copies_.wait(sent, updated);
      }
    }
  }
}

}  // namespace plimsoll
