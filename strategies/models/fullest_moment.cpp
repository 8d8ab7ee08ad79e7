#include "strategies/models/fullest_moment.h"

#include <algorithm>
#include <unordered_map>

namespace plimsoll {
namespace {

struct PlannedRun {
  std::uint32_t op = 0;
  std::size_t way = 0;
  std::uint32_t implementation = 0;
  std::vector<std::uint32_t> dies;  ///< storages, after it
};

/// A plan with what dies after each step: a storage's last reader before it is filled anew.
std::vector<PlannedRun> steps_of(const OpModel& model, const OpSequence& sequence) {
  std::unordered_map<std::uint32_t, std::uint32_t> number;
  for (std::uint32_t o = 0; o < model.ops.size(); ++o) number[model.ops[o].id.index] = o;
  std::vector<PlannedRun> steps;
  for (const OpRun& run : sequence) {
    const std::uint32_t op = number.at(run.op.index);
    const bool nothing = run.saving == Saving::nothing && model.ops[op].ways.size() > 1;
    steps.push_back({op, nothing ? std::size_t{1} : 0, run.implementation, {}});
  }
  std::vector<bool> read_later(model.storages.size(), false);
  for (std::size_t i = steps.size(); i-- > 0;) {
    const ModelOp& op = model.ops[steps[i].op];
    const auto use = [&](std::uint32_t v) {
      const std::uint32_t s = model.values[v].storage;
      if (!read_later[s]) steps[i].dies.push_back(s);
      read_later[s] = true;
    };
    std::ranges::for_each(op.ways[steps[i].way].makes, use);
    std::ranges::for_each(op.reads, use);
    for (const std::uint32_t v : op.ways[steps[i].way].makes) read_later[model.values[v].storage] = false;
    for (const std::uint32_t v : op.reads) read_later[model.values[v].storage] = true;
  }
  return steps;
}

class MomentWalk {
 public:
  explicit MomentWalk(const OpModel& model) : model_(model), exists_(model.gradients.size(), false) {
    moment_.there.assign(model.storages.size(), false);
    moment_.runs.assign(model.ops.size(), 0);
  }

  Bytes run(const PlannedRun& step) {
    const ModelOp& op = model_.ops[step.op];
    const OpWay& way = op.ways[step.way];
    for (const std::uint32_t v : op.reads) make(v);
    for (const std::uint32_t v : way.makes) make(v);
    GradientBytes gradients{.existing = existing_, .fresh = {}, .any_fresh = false};
    for (const std::uint32_t g : op.gradients) {
      if (exists_[g]) continue;
      exists_[g] = gradients.any_fresh = true;
      gradients.fresh += model_.gradients[g];
    }
    existing_ += gradients.fresh;
    moment_.turn = std::max<std::size_t>(moment_.turn, step.op);
    const Bytes values = model_.resident + live_;
    if (step.implementation == 0) return values + beside_values(model_, op, way, gradients);
    return values + beside_values(model_, op, op.alternatives[step.implementation - 1], gradients);
  }

  void end(const PlannedRun& step) {
    for (const std::uint32_t s : step.dies) {
      live_ -= model_.storages[s];
      moment_.there[s] = false;
    }
  }

  Bytes live() const { return model_.resident + live_; }
  FullestMoment moment() && { return std::move(moment_); }

 private:
  void make(std::uint32_t v) {
    const std::uint32_t s = model_.values[v].storage;
    if (moment_.there[s]) return;
    moment_.there[s] = true;
    live_ += model_.storages[s];
  }

  const OpModel& model_;
  std::vector<bool> exists_;  // by parameter gradient
  Bytes live_, existing_;
  FullestMoment moment_;
};

}  // namespace

std::vector<MemoryOfRun> memory_of_runs(const OpModel& model, const OpSequence& sequence) {
  std::vector<MemoryOfRun> memory;
  MomentWalk walk(model);
  for (const PlannedRun& step : steps_of(model, sequence)) {
    const Bytes before = walk.live();
    memory.push_back({before, walk.run(step)});
    walk.end(step);
  }
  return memory;
}

FullestMoment fullest_moment(const OpModel& model, const OpSequence& sequence) {
  const std::vector<PlannedRun> steps = steps_of(model, sequence);
  std::size_t fullest = 0;
  Bytes peak;
  MomentWalk first(model);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Bytes needed = first.run(steps[i]);
    if (needed > peak) {
      peak = needed;
      fullest = i;
    }
    first.end(steps[i]);
  }
  MomentWalk second(model);
  for (std::size_t i = 0; i <= fullest && i < steps.size(); ++i) {
    second.run(steps[i]);
    if (i < fullest) second.end(steps[i]);
  }
  FullestMoment moment = std::move(second).moment();
  moment.peak = peak;
  moment.run = fullest;
  for (const PlannedRun& step : steps) ++moment.runs[step.op];
  return moment;
}

}  // namespace plimsoll
