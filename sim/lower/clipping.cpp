#include "sim/lower/clipping.h"

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "sim/model/graph_updates.h"

namespace plimsoll {
namespace {

class Clipping {
 public:
  Clipping(const Problem& problem, const GradientOwners& owners, LiveCopies& copies)
      : problem_(problem), owners_(owners), copies_(copies) {}

  void run() {
    for (const Op& op : problem_.graph.ops) {
      if (!updates_parameters(op)) continue;
      for (const Part* owner : owners_.of(op)) {
        for (const TensorId t : op.inputs) {
          if (problem_.graph[t].kind == TensorKind::parameter_gradient) take(t, owner->device);
        }
      }
    }
    std::vector<StepId> norms;
    for (const auto& [where, copies] : read_) norms.push_back(read(where, copies));
    for (const auto& [where, copies] : scaled_) scale(where, copies, norms);
  }

 private:
  using Where = std::pair<DeviceId, MemoryId>;  ///< a device, or the host's processor for it

  /// What updates will read of a gradient, once; the device's own copy where it has one.
  void take(TensorId t, DeviceId device) {
    for (std::uint32_t chunk = 0; chunk < copies_.chunks_of(t); ++chunk) {
      bool is_there = false;
      for (const MemoryId at : {place::device, place::host}) {
        if (at == place::host && !has_host(device)) continue;
        CopyKey k = copies_.key_at(t, 0, device, at);
        k.chunk = chunk;
        Copy* const copy = copies_.find(k);
        if (copy == nullptr) continue;
        if (taken_.insert(copy).second) {
          if (!is_there) read_[{device, at}].push_back(copy);
          scaled_[{device, at}].push_back(copy);
        }
        is_there = true;
      }
      if (is_there) continue;
      throw CannotLower{"'" + problem_.graph[t].name + "' is neither on '" + problem_.platform[device].name +
                        "' nor on its host after the backward, when gradients are clipped by the norm of all"};
    }
  }

  bool has_host(DeviceId device) {
    const auto [known, is_new] = hosts_.try_emplace(device, false);
    if (is_new) known->second = memory_at(problem_.platform, device, place::host).has_value();
    return known->second;
  }

  StepId read(const Where& where, const std::vector<Copy*>& copies) {
    NewStep step = begun(where);
    for (const Copy* copy : copies) {
      step.reads.push_back(copy->buffer);
      copy->add_makers(step.waits);
    }
    const StepId issued = issue(where, step);
    for (Copy* copy : copies) copy->users.push_back(issued);
    return issued;
  }

  void scale(const Where& where, const std::vector<Copy*>& copies, const std::vector<StepId>& norms) {
    NewStep step = begun(where);
    step.waits.insert(step.waits.end(), norms.begin(), norms.end());
    for (const Copy* copy : copies) {
      step.writes.push_back(copy->buffer);
      copy->add_makers(step.waits);
      step.waits.insert(step.waits.end(), copy->users.begin(), copy->users.end());
    }
    const StepId issued = issue(where, step);
    for (Copy* copy : copies) copy->overwritten(issued);
  }

  NewStep begun(const Where& where) {
    const auto [device, at] = where;
    NewStep step;
    step.kind = StepKind::update;
    step.stream = copies_.stream(device, Way{at, at});
    if (at != place::device) return step;
    copies_.take_waits(device, step.waits);
    step.memory_bound = !problem_.platform[device].memory_overlap_slowdown.empty();
    return step;
  }

  StepId issue(const Where& where, const NewStep& step) {
    return where.second == place::device ? copies_.add_compute(step, where.first) : copies_.add(step);
  }

  const Problem& problem_;
  const GradientOwners& owners_;
  LiveCopies& copies_;
  std::map<DeviceId, bool> hosts_;
  std::set<const Copy*> taken_;
  std::map<Where, std::vector<Copy*>> read_, scaled_;
};

}  // namespace

void clip_gradients(const Problem& problem, const GradientOwners& owners, LiveCopies& copies) {
  Clipping(problem, owners, copies).run();
}

}  // namespace plimsoll
