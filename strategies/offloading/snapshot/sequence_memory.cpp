#include "strategies/offloading/snapshot/sequence_memory.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

constexpr std::uint32_t nowhere = std::numeric_limits<std::uint32_t>::max();
constexpr std::int64_t far_below = std::numeric_limits<std::int64_t>::min() / 4;  // of a run that is left out

/// Of a storage: one value, or versions each of which overwrites the one before.
bool are_versions(const OpModel& model, const std::vector<std::uint32_t>& values) {
  for (std::size_t k = 0; k < values.size() && values.size() > 1; ++k) {
    const std::optional<std::uint32_t> maker = model.values[values[k]].maker;
    if (!maker || model.ops[*maker].ways.size() > 1 || model.ops[*maker].ways.front().makes.size() > 1) return false;
    const std::vector<std::uint32_t>& reads = model.ops[*maker].reads;
    if (k > 0 && std::ranges::find(reads, values[k - 1]) == reads.end()) return false;
    if (model.ops[*maker].ways.front().clears.size() + 1 < values.size()) return false;
  }
  return true;
}

}  // namespace

SequenceMemory::SequenceMemory(const OpModel& model, const OpSequence& sequence)
    : model_(model), of_storage_(model.storages.size()), of_op_(model.ops.size()) {
  for (const std::vector<std::uint32_t>& values : model.in_storage) versions_.push_back(are_versions(model, values));
  std::vector<std::uint32_t> number;
  for (std::uint32_t o = 0; o < model.ops.size(); ++o) {
    number.resize(std::max<std::size_t>(number.size(), model.ops[o].id.index + 1), nowhere);
    number[model.ops[o].id.index] = o;
  }
  std::vector<std::int64_t> memory;
  std::vector<bool> exists(model.gradients.size(), false);
  Bytes existing;
  const auto use = [&](std::uint32_t storage, std::uint32_t run, bool anew) {
    Few& lives = of_storage_[storage];
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
  at_first_ = std::move(memory);
}

Bytes SequenceMemory::peak() const {
  if (memory_) return Bytes{memory_->most()};
  return Bytes{at_first_.empty() ? 0 : std::max<std::int64_t>(std::ranges::max(at_first_), 0)};
}

/// It may run again, and its results are all that is ever in their storages, or versions of it.
bool SequenceMemory::is_simple(std::uint32_t op) const {
  if (model_.ops[op].once) return false;
  return std::ranges::all_of(model_.ops[op].ways.front().makes,
                             [&](std::uint32_t v) { return versions_[model_.values[v].storage]; });
}

bool SequenceMemory::makes_version(std::uint32_t run, std::uint32_t storage) const {
  const std::vector<std::uint32_t>& makes = model_.ops[runs_[run].op].ways[runs_[run].way].makes;
  return std::ranges::any_of(makes, [&](std::uint32_t v) { return model_.values[v].storage == storage; });
}

/// Its last version is made, and nobody reads one before.
bool SequenceMemory::is_whole(std::uint32_t life) const {
  const Life& of = lives_[life];
  const std::size_t more = model_.in_storage[of.storage].size() - 1;
  return of.uses.size() >= more && std::all_of(of.uses.begin(), of.uses.begin() + static_cast<std::ptrdiff_t>(more),
                                               [&](std::uint32_t use) { return makes_version(use, of.storage); });
}

/// That run and those that overwrite what it made.
std::vector<std::uint32_t> SequenceMemory::makers_of(std::uint32_t run) const {
  std::vector<std::uint32_t> makers{run};
  for (const std::uint32_t l : runs_[run].lives) {
    if (lives_[l].begin != run) continue;
    std::ranges::copy_if(lives_[l].uses, std::back_inserter(makers),
                         [&](std::uint32_t use) { return makes_version(use, lives_[l].storage); });
  }
  return makers;
}

void SequenceMemory::leave_out(Bytes budget) {
  if (!memory_) memory_.emplace(at_first_);
  std::vector<std::pair<double, std::uint32_t>> repeated;  // seconds, with runs that overwrite; run
  for (std::uint32_t o = 0; o < of_op_.size(); ++o) {
    if (!is_simple(o)) continue;
    for (std::size_t k = 1; k < of_op_[o].size(); ++k) {
      const std::uint32_t run = of_op_[o][k];
      const auto overwrites = [&](std::uint32_t l) {
        return lives_[l].begin != run && makes_version(run, lives_[l].storage);
      };
      if (std::ranges::any_of(runs_[run].lives, overwrites)) continue;  // with the run that begins the life
      double seconds = 0;
      for (const std::uint32_t maker : makers_of(run)) seconds += seconds_of(runs_[maker]);
      repeated.emplace_back(seconds, run);
    }
  }
  std::ranges::stable_sort(repeated, std::ranges::greater{}, &std::pair<double, std::uint32_t>::first);
  for (const auto& [seconds, run] : repeated) {
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
  if (!life.gone) memory_->add(life.begin, life.end() + 1, sign * model_.storages[life.storage].count);
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
  const Few uses = lives_[life].uses;
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
  memory_->add(earlier, earlier + 1, trial.workspace);
}

bool SequenceMemory::leave_out(std::uint32_t run, Bytes budget) {
  std::uint32_t earlier = nowhere;
  for (const std::uint32_t r : of_op_[runs_[run].op]) {
    if (r < run && !runs_[r].left_out) earlier = r;
  }
  EXPECTS(earlier != nowhere);
  const auto has_parts = [&](std::uint32_t r) {
    return std::ranges::any_of(runs_[r].lives, [&](std::uint32_t l) { return lives_[l].begin == r && !is_whole(l); });
  };
  if (has_parts(run) || has_parts(earlier)) return false;
  Trial trial;
  const std::size_t lives_before = lives_.size();
  std::vector<std::uint32_t> open{run};
  while (!open.empty()) {
    const std::uint32_t r = open.back();
    open.pop_back();
    const std::vector<std::uint32_t> makers = makers_of(r);
    for (const std::uint32_t maker : makers) {
      trial.left_out.push_back(maker);
      memory_->add(maker, maker + 1, far_below);
    }
    for (const std::uint32_t maker : makers) {
      for (const std::uint32_t l : runs_[maker].lives) {
        if (lives_[l].begin == r) continue;
        change(trial, l, [&](Life& life) {
          life.uses.erase(std::remove(life.uses.begin(), life.uses.end(), maker), life.uses.end());
        });
        // Nobody reads any more what a repeated run has made.
        const std::uint32_t of = lives_[l].begin;
        if (of_op_[runs_[of].op].front() == of || !is_simple(runs_[of].op)) continue;
        const bool is_idle = std::ranges::all_of(runs_[of].lives, [&](std::uint32_t made) {
          return lives_[made].begin != of || lives_[made].uses.size() + 1 == makers_of(of).size();
        });
        if (is_idle && std::ranges::find(open, of) == open.end()) open.push_back(of);
      }
    }
    for (const std::uint32_t l : runs_[r].lives) {
      if (lives_[l].begin != r) continue;
      if (makers.size() > 1) {
        change(trial, l, [&](Life& life) {
          const auto is_version = [&](std::uint32_t use) { return makes_version(use, life.storage); };
          life.uses.erase(std::remove_if(life.uses.begin(), life.uses.end(), is_version), life.uses.end());
        });
      }
      live_on(trial, l, earlier);
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
  for (const std::uint32_t run : trial.left_out) memory_->add(run, run + 1, -far_below);
  if (trial.saving != nowhere) memory_->add(trial.saving, trial.saving + 1, -trial.workspace);
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
