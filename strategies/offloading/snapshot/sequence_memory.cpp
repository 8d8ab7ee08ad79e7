#include "strategies/offloading/snapshot/sequence_memory.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

constexpr std::uint32_t nowhere = std::numeric_limits<std::uint32_t>::max();
constexpr std::int64_t far_below = std::numeric_limits<std::int64_t>::min() / 4;  // of a run that is left out

}  // namespace

SequenceMemory::SequenceMemory(const OpModel& model, const OpSequence& sequence)
    : model_(model), of_storage_(model.storages.size()), of_op_(model.ops.size()), memory_({}) {
  std::vector<std::uint32_t> number;
  for (std::uint32_t o = 0; o < model.ops.size(); ++o) {
    number.resize(std::max<std::size_t>(number.size(), model.ops[o].id.index + 1), nowhere);
    number[model.ops[o].id.index] = o;
  }
  std::vector<std::int64_t> memory;
  std::vector<bool> exists(model.gradients.size(), false);
  Bytes existing;
  const auto use = [&](std::uint32_t storage, std::uint32_t run, bool anew) {
    std::vector<std::uint32_t>& lives = of_storage_[storage];
    const bool here = !lives.empty() && (lives_[lives.back()].begin == run || lives_[lives.back()].end() == run);
    if (here) return;
    if (anew || lives.empty()) {
      lives.push_back(static_cast<std::uint32_t>(lives_.size()));
      lives_.push_back({.storage = storage, .begin = run, .uses = {}});
    } else {
      lives_[lives.back()].uses.push_back(run);
    }
    runs_[run].lives.push_back(lives.back());
  };
  runs_.reserve(sequence.size());
  lives_.reserve(sequence.size());
  memory.reserve(sequence.size());
  for (const OpRun& each : sequence) {
    const auto i = static_cast<std::uint32_t>(runs_.size());
    const std::uint32_t o = number.at(each.op.index);
    const ModelOp& op = model.ops[o];
    const std::uint32_t way = each.saving == Saving::nothing && op.ways.size() > 1 ? 1 : 0;
    GradientBytes gradients{.existing = existing, .fresh = {}, .any_fresh = false};
    for (const std::uint32_t g : op.gradients) {
      if (exists[g]) continue;
      exists[g] = gradients.any_fresh = true;
      gradients.fresh += model.gradients[g];
    }
    runs_.push_back({.op = o, .way = way, .implementation = each.implementation, .gradients = existing, .lives = {}});
    runs_.back().lives.reserve(op.reads.size() + op.ways[way].makes.size());
    existing += gradients.fresh;
    const Bytes beside = each.implementation == 0
                             ? beside_values(model, op, op.ways[way], gradients)
                             : beside_values(model, op, op.alternatives[each.implementation - 1], gradients);
    memory.push_back((model.resident + beside).count);
    of_op_[o].push_back(i);
    for (const std::uint32_t v : op.reads) use(model.values[v].storage, i, false);
    for (const std::uint32_t v : op.ways[way].makes) use(model.values[v].storage, i, true);
  }
  std::vector<std::int64_t> change(memory.size() + 1, 0);
  for (const Life& life : lives_) {
    change[life.begin] += model.storages[life.storage].count;
    change[life.end() + 1] -= model.storages[life.storage].count;
  }
  std::int64_t live = 0;
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] += live += change[i];
  at_first_ = memory;
  memory_ = RangeMaximum(memory);
}

/// Each of its results has a storage of its own, and it may run again.
bool SequenceMemory::is_simple(std::uint32_t op) const {
  if (model_.ops[op].once) return false;
  return std::ranges::all_of(model_.ops[op].ways.front().makes,
                             [&](std::uint32_t v) { return model_.in_storage[model_.values[v].storage].size() == 1; });
}

void SequenceMemory::leave_out(Bytes budget) {
  std::vector<std::uint32_t> repeated;
  for (std::uint32_t o = 0; o < of_op_.size(); ++o) {
    if (!is_simple(o)) continue;
    for (std::size_t k = 1; k < of_op_[o].size(); ++k) repeated.push_back(of_op_[o][k]);
  }
  std::ranges::stable_sort(
      repeated, [&](std::uint32_t a, std::uint32_t b) { return seconds_of(runs_[a]) > seconds_of(runs_[b]); });
  for (const std::uint32_t run : repeated) {
    if (!runs_[run].left_out) leave_out(run, budget);
  }
}

Seconds SequenceMemory::seconds() const {
  double sum = 0;
  for (const Run& run : runs_) sum += run.left_out ? 0 : seconds_of(run);
  return Seconds{sum};
}

double SequenceMemory::seconds_of(const Run& run) const {
  return model_.ops[run.op].ways[run.way].time.value;
}

/// A change of lives that may be taken back.
struct SequenceMemory::Trial {
  struct Changed {
    std::uint32_t life = 0;
    Life before;
  };
  struct Followed {
    std::uint32_t life = 0, by = 0;
  };
  std::vector<Changed> changed;
  std::vector<Followed> followed;       // lives that others take over
  std::vector<std::uint32_t> left_out;  // runs
  std::uint32_t saving = nowhere;       // a run that now saves
  std::int64_t workspace = 0;           // more of it
};

void SequenceMemory::count(const Life& life, std::int64_t sign) {
  if (!life.gone) memory_.add(life.begin, life.end() + 1, sign * model_.storages[life.storage].count);
}

template <class How>
void SequenceMemory::change(Trial& trial, std::uint32_t life, const How& how) {
  trial.changed.push_back({life, lives_[life]});
  count(lives_[life], -1);
  how(lives_[life]);
  count(lives_[life], 1);
}

/// The results of an earlier run of the same op live on to the uses of those of this one.
void SequenceMemory::live_on(Trial& trial, std::uint32_t life, std::uint32_t earlier) {
  const std::vector<std::uint32_t> uses = lives_[life].uses;
  change(trial, life, [](Life& ended) { ended.gone = true; });
  if (uses.empty()) return;
  const std::uint32_t storage = lives_[life].storage;
  const auto is_before = [&](std::uint32_t l) { return !lives_[l].gone && lives_[l].begin == earlier; };
  const auto before = std::ranges::find_if(of_storage_[storage], is_before);
  if (before != of_storage_[storage].end()) {
    trial.followed.push_back({life, *before});
    return change(trial, *before, [&](Life& on) { on.uses.insert(on.uses.end(), uses.begin(), uses.end()); });
  }
  trial.followed.push_back({life, static_cast<std::uint32_t>(lives_.size())});
  lives_.push_back({.storage = storage, .begin = earlier, .uses = uses});
  count(lives_.back(), 1);
  if (trial.saving != nowhere) return;
  const ModelOp& op = model_.ops[runs_[earlier].op];
  const GradientBytes gradients{.existing = runs_[earlier].gradients, .fresh = {}, .any_fresh = false};
  trial.saving = earlier;
  trial.workspace = (beside_values(model_, op, op.ways[0], gradients) -
                     beside_values(model_, op, op.ways[runs_[earlier].way], gradients))
                        .count;
  memory_.add(earlier, earlier + 1, trial.workspace);
}

bool SequenceMemory::leave_out(std::uint32_t run, Bytes budget) {
  std::uint32_t earlier = nowhere;
  for (const std::uint32_t r : of_op_[runs_[run].op]) {
    if (r < run && !runs_[r].left_out) earlier = r;
  }
  EXPECTS(earlier != nowhere);
  Trial trial;
  const std::size_t lives_before = lives_.size();
  std::vector<std::uint32_t> open{run};
  while (!open.empty()) {
    const std::uint32_t r = open.back();
    open.pop_back();
    trial.left_out.push_back(r);
    memory_.add(r, r + 1, far_below);
    for (const std::uint32_t l : runs_[r].lives) {
      if (lives_[l].begin == r) {
        live_on(trial, l, earlier);
        continue;
      }
      change(trial, l, [&](Life& life) { std::erase(life.uses, r); });
      // Nobody reads any more what a repeated run has made.
      const std::uint32_t maker = lives_[l].begin;
      if (of_op_[runs_[maker].op].front() == maker || !is_simple(runs_[maker].op)) continue;
      const bool is_idle = std::ranges::all_of(runs_[maker].lives, [&](std::uint32_t made) {
        return lives_[made].begin != maker || lives_[made].uses.empty();
      });
      if (is_idle && std::ranges::find(open, maker) == open.end()) open.push_back(maker);
    }
  }
  if (peak() <= budget) {
    settle(trial, lives_before);
    return true;
  }
  take_back(trial, lives_before);
  return false;
}

void SequenceMemory::settle(const Trial& trial, std::size_t lives_before) {
  for (const std::uint32_t run : trial.left_out) runs_[run].left_out = true;
  if (trial.saving != nowhere) runs_[trial.saving].way = 0;
  for (std::size_t l = lives_before; l < lives_.size(); ++l) {
    of_storage_[lives_[l].storage].push_back(static_cast<std::uint32_t>(l));
    runs_[lives_[l].begin].lives.push_back(static_cast<std::uint32_t>(l));
  }
  for (const auto& [life, by] : trial.followed) {
    for (const std::uint32_t use : lives_[life].uses) std::ranges::replace(runs_[use].lives, life, by);
  }
}

void SequenceMemory::take_back(const Trial& trial, std::size_t lives_before) {
  for (; lives_.size() > lives_before; lives_.pop_back()) count(lives_.back(), -1);
  for (std::size_t k = trial.changed.size(); k-- > 0;) {
    Life& life = lives_[trial.changed[k].life];
    count(life, -1);
    life = trial.changed[k].before;
    count(life, 1);
  }
  for (const std::uint32_t run : trial.left_out) memory_.add(run, run + 1, -far_below);
  if (trial.saving != nowhere) memory_.add(trial.saving, trial.saving + 1, -trial.workspace);
}

OpSequence SequenceMemory::sequence() const {
  OpSequence sequence;
  for (const Run& run : runs_) {
    if (run.left_out) continue;
    const ModelOp& op = model_.ops[run.op];
    sequence.push_back({op.id, op.ways[run.way].saving, run.implementation});
  }
  return sequence;
}

}  // namespace plimsoll
