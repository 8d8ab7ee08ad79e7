#include "sim/lower/gradient_owners.h"

#include <algorithm>
#include <span>

#include "sim/core/collective_op.h"
#include "sim/core/expects.h"

namespace plimsoll {

void GradientOwners::add_maker(TensorId gradient, OpId op, const Part& part, std::size_t micro_batches) {
  Makers& makers = makers_[gradient];
  makers.copied |= !makers.ops.insert(op).second;
  makers.outstanding += micro_batches;
  const auto is_on_its_device = [&](const Part* p) { return p->device == part.device; };
  if (std::ranges::none_of(makers.parts, is_on_its_device)) makers.parts.push_back(&part);
}

void GradientOwners::begin() {
  for (const Op& op : graph_.ops) {
    if (op.phase != Phase::update || collective_of(op)) continue;
    for (const TensorId t : op.mutates) updating_.try_emplace(t, &op);
  }
  makers_of_.resize(graph_.tensors.size(), nullptr);
  for (auto& [gradient, makers] : makers_) {
    makers_of_[gradient.index] = &makers;
    makers.copied |= partition_.each_updates_shared && makers.parts.size() > 1;
    if (has_copies(makers)) ++buckets_[makers.parts].incomplete;
  }
}

std::vector<const Part*> GradientOwners::of(const Op& update) const {
  for (const TensorId t : update.inputs) {
    const auto found = makers_.find(t);
    if (found == makers_.end()) continue;
    const Makers& makers = found->second;
    return makers.copied ? makers.parts : std::vector{makers.parts.front()};
  }
  for (const TensorId t : update.inputs) {  // who hands a parameter out is who updates it
    const auto updating = updating_.find(t);
    if (updating != updating_.end() && updating->second != &update) return of(*updating->second);
  }
  return {};
}

void GradientOwners::contributed(TensorId gradient) {
  EXPECTS(makers_of_[gradient.index] != nullptr);
  Makers& makers = *makers_of_[gradient.index];
  EXPECTS(makers.outstanding > 0);
  if (--makers.outstanding > 0 || !has_copies(makers)) return;
  Bucket& bucket = buckets_.at(makers.parts);
  bucket.gradients.push_back(gradient);
  bucket.bytes += graph_[gradient].bytes;
  --bucket.incomplete;
  if (bucket.bytes >= partition_.bucket || bucket.incomplete == 0) sum_copies(bucket, makers.parts);
}

void GradientOwners::sum_copies(Bucket& bucket, const std::vector<const Part*>& parts) {
  std::vector<DeviceId> devices;
  for (const Part* part : parts) {
    for (const TensorId gradient : bucket.gradients) refuse_unless_there(gradient, *part);
    devices.push_back(part->device);
  }
  copies_.all_reduce(bucket.gradients, devices);
  bucket.gradients.clear();
  bucket.bytes = {};
}

void GradientOwners::sum() {
  for (const auto& [gradient, makers] : makers_) {
    if (makers.copied) continue;
    for (const Part* part : std::span(makers.parts).subspan(1)) sum_at_owner(gradient, *part);
  }
}

void GradientOwners::sum_at_owner(TensorId gradient, const Part& part) {
  const Part& owner = *makers_.at(gradient).parts.front();
  const CopyKey first = copies_.key(gradient, 0, copies_.memory_of(part.device));
  refuse_unless_there(gradient, part);
  refuse_unless_there(gradient, owner);
  for (std::uint32_t chunk = 0; chunk < copies_.chunks_of(gradient); ++chunk) {
    CopyKey from = first, sum = first;
    from.chunk = sum.chunk = chunk;
    sum.memory = copies_.memory_of(owner.device).index;
    CopyKey arrived = sum;
    arrived.arrived = true;
    const ShortList<StepId, 4> contributors = copies_[from].users;
    const StepId sent =
        copies_.copy(gradient, from, arrived, {part.device, {place::device, MemoryId{sum.memory}}}, StepKind::send);
    for (const StepId contributor : contributors) copies_.wait(sent, contributor);
    add_up(arrived, sum, owner);
    copies_.drop(arrived, owner.device);
    if (problem_.gradients == Gradients::fresh) copies_.drop(from, part.device);
  }
}

/// Sums are made on devices: a tape that has moved the gradient away, to update its parameter on the host, cannot be.
void GradientOwners::refuse_unless_there(TensorId gradient, const Part& part) const {
  CopyKey k = copies_.key(gradient, 0, copies_.memory_of(part.device));
  for (; k.chunk < copies_.chunks_of(gradient); ++k.chunk) {
    if (copies_.contains(k)) continue;
    throw CannotLower{"'" + graph_[gradient].name + "' is not on '" + problem_.platform[part.device].name +
                      "' when the parts on several devices that share its parameter sum it there: updates on the host "
                      "need a parameter that one device trains"};
  }
}

void GradientOwners::add_up(const CopyKey& from, const CopyKey& sum, const Part& owner) {
  Copy &source = copies_[from], &target = copies_[sum];
  NewStep step;
  step.kind = StepKind::backward;
  step.stream = copies_.stream(owner.device, way::compute);
  const OpCost cost{.measured = {}, .flops = Flops{0}, .bytes_moved = 3 * copies_.bytes_of(target)};
  step.work.seconds = duration(cost, graph_.source, problem_.platform[owner.device]).value_or(Seconds{0});
  step.memory_bound = !problem_.platform[owner.device].memory_overlap_slowdown.empty();
  step.reads = {source.buffer};
  step.writes = {target.buffer};
  step.waits.assign(target.users.begin(), target.users.end());
  for (const Copy* copy : {&source, &target}) {
    copy->add_makers(step.waits);
  }
  const StepId issued = copies_.add_compute(step, owner.device);
  source.users.push_back(issued);
  target.overwritten(issued);
  copies_.carry_approximation(source, target);
}

void GradientOwners::hand_out(const Op& update, const Part& owner) {
  const std::vector<const Part*> owners = of(update);
  if (owners.front() != &owner) return;
  const auto updates_it = [&](const Part& part) {
    return std::ranges::any_of(owners, [&](const Part* p) { return p->device == part.device; });
  };
  for (const TensorId t : update.mutates) {
    if (graph_[t].kind != TensorKind::parameter) continue;
    const CopyKey from = copies_.key(t, 0, copies_.memory_of(owner.device));
    for (const Part& part : partition_.parts) {
      CopyKey to = copies_.key(t, 0, copies_.memory_of(part.device));
      if (updates_it(part) || !copies_.contains(to) || handed_out_.contains(to)) continue;
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
