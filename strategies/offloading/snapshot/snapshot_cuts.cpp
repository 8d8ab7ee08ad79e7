#include "strategies/offloading/snapshot/snapshot_cuts.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "sim/bound/snapshot_cut.h"

namespace plimsoll {
namespace {

std::vector<bool> used_by(const OpModel& model, std::uint32_t op) {
  std::vector<bool> used(model.storages.size(), false);
  for (const std::uint32_t v : model.ops[op].reads) used[model.values[v].storage] = true;
  for (const std::uint32_t v : model.ops[op].ways.front().makes) used[model.values[v].storage] = true;
  return used;
}

}  // namespace

double seconds_again(const ModelOp& op) {
  return std::min(op.ways.front().time, op.ways.back().time).value;
}

SnapshotFront::SnapshotFront(const PartTask& task, const OpModel& model, std::uint32_t instant)
    : repeats_(task.problem.micro_batches) {
  const SnapshotModel seen = snapshot_model(task.problem, task.part().device, {.one_call = false});
  const OpId op = model.ops[instant].id;
  updates_ = seen.updates.value;
  work_ = (seen.base - seen.updates).value;
  const Instant at = instant_at(seen, op);
  bytes_.push_back(at.bytes);
  if (repeats_ > 1) bytes_.push_back(instant_at(seen, op, MicroBatch::later).bytes);
  KeptBytes kept(model, instant);
  for (const SnapshotCut& cut : SnapshotCuts(seen, at).front()) {
    points_.push_back({cut.kept_bytes, cut.extra.value});
    Again again(model.ops.size(), false);
    for (std::uint32_t o = 0; o < instant; ++o) again[o] = cut.again[model.ops[o].id.index] && !model.ops[o].once;
    kept.set_all(again);
    bends_.push_back({std::move(again), kept.kept(), kept.seconds()});
  }
  std::ranges::reverse(points_);
  std::ranges::stable_sort(bends_, {}, &SnapshotBend::kept);
}

double SnapshotFront::extra(Bytes room) const {
  const auto more = std::ranges::upper_bound(points_, room, {}, &Point::kept);
  if (more == points_.end()) return points_.back().seconds;
  if (more == points_.begin()) return std::numeric_limits<double>::infinity();
  const Point &a = *std::prev(more), &b = *more;
  const double share = static_cast<double>((room - a.kept).count) / static_cast<double>((b.kept - a.kept).count);
  return a.seconds + share * (b.seconds - a.seconds);
}

Seconds SnapshotFront::bound(Bytes budget) const {
  const double repeats = static_cast<double>(repeats_);
  return Seconds{updates_ + repeats * work_ + extra(budget - bytes_.front()) +
                 (repeats - 1) * extra(budget - bytes_.back())};
}

KeptBytes::KeptBytes(const OpModel& model, std::uint32_t instant)
    : model_(&model),
      instant_(instant),
      again_(model.ops.size(), false),
      counted_(model.values.size(), false),
      free_(used_by(model, instant)),
      readers_(model.values.size(), 0),
      in_storage_(model.storages.size(), 0) {
  for (std::uint32_t v = 0; v < model.values.size(); ++v) {
    const ModelValue& value = model.values[v];
    for (const std::uint32_t reader : value.readers) readers_[v] += reader > instant ? 1 : 0;
  }
  for (std::uint32_t v = 0; v < model.values.size(); ++v) recount(v);
}

void KeptBytes::recount(std::uint32_t v) {
  const ModelValue& value = model_->values[v];
  const bool made_later = value.maker && (*value.maker >= instant_ || again_[*value.maker]);
  const bool is_kept = readers_[v] > 0 && !made_later && !free_[value.storage];
  if (is_kept == counted_[v]) return;
  counted_[v] = is_kept;
  std::uint32_t& of_storage = in_storage_[value.storage];
  if (is_kept && of_storage++ == 0) kept_ += model_->storages[value.storage];
  if (!is_kept && --of_storage == 0) kept_ -= model_->storages[value.storage];
}

void KeptBytes::set(std::uint32_t op, bool again) {
  if (again_[op] == again) return;
  again_[op] = again;
  seconds_ += (again ? 1 : -1) * seconds_again(model_->ops[op]);
  for (const std::uint32_t v : model_->ops[op].reads) {
    readers_[v] += again ? 1 : -1;
    recount(v);
  }
  for (const std::uint32_t v : model_->ops[op].ways.front().makes) recount(v);
}

void KeptBytes::set_all(const Again& again) {
  for (std::uint32_t o = 0; o < again.size(); ++o) set(o, again[o]);
}

}  // namespace plimsoll
