// What a plan of ops keeps at one of its runs, by a minimum cut over what is there then (sim/bound/README.md).

#include <algorithm>
#include <limits>
#include <utility>

#include "sim/bound/snapshot_cut.h"
#include "sim/bound/trade_pieces.h"
#include "strategies/offloading/snapshot/sequence_memory.h"
#include "strategies/rematerialization/programs/checkmate_solver.h"

namespace plimsoll {
namespace {

constexpr std::uint32_t no_number = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint32_t the_run = 0, all_later = 1;  // ops of the instant's model
constexpr Bytes never_kept{std::int64_t{1} << 50};   // more than what is kept can come to

}  // namespace

class SequenceMemory::Cut {
 public:
  /// Ops that need more than `largest` may not run again.
  Cut(const SequenceMemory& plan, std::uint32_t run, Bytes budget, Bytes largest, double share)
      : plan_(plan),
        model_(plan.model_),
        run_(run),
        budget_(budget),
        largest_(largest),
        share_(share),
        at_run_(model_.storages.size(), no_number),
        last_before_(model_.storages.size(), no_number),
        evicted_(plan.lives_.size(), false),
        extended_(model_.storages.size(), false),
        made_(model_.storages.size(), false),
        op_number_(model_.ops.size(), no_number),
        value_number_(model_.values.size(), no_number),
        inserted_(model_.ops.size(), no_number) {
    find_lives();
    find_stretch();
  }

  std::optional<OpSequence> sequence() {
    state();
    if (!decide()) return std::nullopt;
    for (std::uint32_t r = 0; r < plan_.runs_.size(); ++r) {
      const Run& run = plan_.runs_[r];
      if (r > run_) {
        for (const std::uint32_t l : run.lives) {
          const std::uint32_t storage = plan_.lives_[l].storage;
          if (!evicted_[l] || made_[storage]) continue;
          if (!make(model_.in_storage[storage].back(), r)) return std::nullopt;
        }
      }
      const ModelOp& op = model_.ops[run.op];
      sequence_.push_back({op.id, op.ways[run.way].saving, run.implementation});
    }
    if (!is_runnable(model_, sequence_)) return std::nullopt;  // versions in the wrong order
    return std::move(sequence_);
  }

 private:
  Bytes bytes_of(std::uint32_t life) const { return model_.storages[plan_.lives_[life].storage]; }

  /// No run overwrites it any more, either.
  bool is_idle(std::uint32_t l) const {
    const Life& life = plan_.lives_[l];
    if (life.begin >= run_ || run_ >= life.end() || !plan_.versions_[life.storage] || !plan_.is_whole(l)) return false;
    const std::size_t more = model_.in_storage[life.storage].size() - 1;
    return (more == 0 || life.uses[more - 1] < run_) && !std::ranges::binary_search(life.uses, run_);
  }

  void find_lives() {
    for (std::uint32_t l = 0; l < plan_.lives_.size(); ++l) {
      const Life& life = plan_.lives_[l];
      if (life.gone || life.begin > run_) continue;
      (life.end() < run_ ? last_before_ : at_run_)[life.storage] = l;
    }
  }

  /// From where on memory is above the budget until the run; what was made before has to fit there, too.
  void find_stretch() {
    stretch_ = run_;
    while (stretch_ > 0 && plan_.at_first_[stretch_ - 1] > budget_.count) --stretch_;
    most_until_stretch_.assign(stretch_ + 1, 0);
    for (std::uint32_t r = stretch_; r-- > 0;)
      most_until_stretch_[r] = std::max(most_until_stretch_[r + 1], plan_.at_first_[r]);
  }

  /// The value may be there at the run, though nobody reads it from before it until after it.
  bool can_stay(std::uint32_t storage) const {
    if (last_before_[storage] == no_number || !plan_.is_whole(last_before_[storage])) return false;
    const std::uint32_t end = plan_.lives_[last_before_[storage]].end();
    return end >= stretch_ || most_until_stretch_[end + 1] + model_.storages[storage].count <= budget_.count;
  }

  Bytes own_bytes(std::uint32_t op) const {
    Bytes sum = model_.ops[op].ways.front().workspace;
    for (const std::uint32_t v : model_.ops[op].reads) sum += model_.storages[model_.values[v].storage];
    for (const std::uint32_t v : model_.ops[op].ways.front().makes) sum += model_.storages[model_.values[v].storage];
    return sum;
  }

  bool is_last_version(std::uint32_t v) const { return model_.in_storage[model_.values[v].storage].back() == v; }

  /// It overwrites that value, which it reads.
  bool overwrites(std::uint32_t op, std::uint32_t v) const {
    return std::ranges::any_of(model_.ops[op].ways.front().makes, [&](std::uint32_t made) {
      return model_.values[made].storage == model_.values[v].storage;
    });
  }

  bool may_run_again(std::uint32_t op) const {
    const auto can_be_there = [&](std::uint32_t v) {
      return plan_.versions_[model_.values[v].storage] && (is_last_version(v) || overwrites(op, v));
    };
    return plan_.is_simple(op) && std::ranges::all_of(model_.ops[op].reads, can_be_there) && own_bytes(op) <= largest_;
  }

  /// Whether it is made after the run, before another.
  bool is_made_between(std::uint32_t storage, std::uint32_t before) const {
    return std::ranges::any_of(plan_.of_storage_[storage], [&](std::uint32_t l) {
      return !plan_.lives_[l].gone && plan_.lives_[l].begin > run_ && plan_.lives_[l].begin < before;
    });
  }

  std::uint32_t number_of_value(std::uint32_t v, Bytes bytes) {
    value_number_[v] = static_cast<std::uint32_t>(seen_.values.size());
    values_.push_back(v);
    seen_.values.push_back({.tensor = model_.values[v].tensor, .bytes = bytes, .maker = {}, .readers = {}});
    return value_number_[v];
  }

  /// Its number; its inputs are looked at later.
  std::uint32_t number_of_op(std::uint32_t o, std::uint32_t until) {
    if (op_number_[o] != no_number) return op_number_[o];
    op_number_[o] = static_cast<std::uint32_t>(seen_.ops.size());
    SnapshotOp op;
    op.again = std::min(model_.ops[o].ways.front().time, model_.ops[o].ways.back().time);
    op.once = !may_run_again(o);
    seen_.ops.push_back(op);
    ops_.push_back(o);
    if (!op.once) open_.push_back({o, until});
    return op_number_[o];
  }

  void reads(std::uint32_t op, std::uint32_t value) {
    seen_.ops[op].reads.push_back(value);
    seen_.values[value].readers.push_back(op);
  }

  void set_maker(std::uint32_t value, std::uint32_t op) {
    seen_.values[value].maker = op;
    seen_.ops[op].makes.push_back(value);
  }

  void state() {
    seen_.ops.resize(2);
    ops_.assign(2, no_number);
    Bytes idle;
    for (std::uint32_t s = 0; s < at_run_.size(); ++s) {
      const std::uint32_t l = at_run_[s];
      if (l == no_number || !is_idle(l) || bytes_of(l) == Bytes{0}) continue;
      const std::uint32_t v = model_.in_storage[s].back();
      const std::optional<std::uint32_t> maker = model_.values[v].maker;
      if (!maker || !may_run_again(*maker)) continue;
      idle += bytes_of(l);
      const std::uint32_t value = number_of_value(v, bytes_of(l));
      reads(all_later, value);
      idle_.push_back(value);
      set_maker(value, number_of_op(*maker, *std::ranges::upper_bound(plan_.lives_[l].uses, run_)));
    }
    while (!open_.empty()) {
      const auto [o, until] = open_.back();
      open_.pop_back();
      for (const std::uint32_t v : model_.ops[o].reads) add_read(o, v, until);
    }
    instant_.side.assign(seen_.ops.size(), Side::before);
    instant_.side[the_run] = Side::itself;
    instant_.side[all_later] = Side::after;
    instant_.counted.assign(seen_.values.size(), false);
    instant_.bytes = Bytes{plan_.at_first_[run_]} - idle;
  }

  void add_read(std::uint32_t o, std::uint32_t v, std::uint32_t until) {
    const std::uint32_t op = op_number_[o], storage = model_.values[v].storage;
    if (value_number_[v] != no_number) return reads(op, value_number_[v]);
    const bool is_last = is_last_version(v);  // others are never there without what overwrites them
    if (is_last && (at_run_[storage] != no_number || is_made_between(storage, until))) return;  // for nothing
    const bool stays = is_last && can_stay(storage);
    const std::uint32_t value = number_of_value(v, stays ? model_.storages[storage] : never_kept);
    reads(op, value);
    if (model_.values[v].maker) set_maker(value, number_of_op(*model_.values[v].maker, until));
  }

  bool decide() {
    SnapshotCuts cuts(seen_, instant_);
    const double room = share_ * static_cast<double>((budget_ - instant_.bytes).count);
    const Bytes used = instant_.bytes + Bytes{static_cast<std::int64_t>(room)};
    const InstantBound bound = cuts.bound(used);
    if (bound.needs || !bound.within) return false;
    const std::vector<bool> again = filled(seen_, *bound.within, bound.over, used - instant_.bytes);
    for (const std::uint32_t value : idle_) {
      if (again[*seen_.values[value].maker]) evicted_[at_run_[model_.values[values_[value]].storage]] = true;
    }
    for (std::uint32_t value = 0; value < values_.size(); ++value) {
      const SnapshotValue& of = seen_.values[value];
      if (of.maker && again[*of.maker]) continue;
      const bool is_read = std::ranges::any_of(of.readers, [&](std::uint32_t r) { return again[r]; });
      if (is_read) extended_[model_.values[values_[value]].storage] = true;
    }
    return true;
  }

  bool is_there(std::uint32_t v, std::uint32_t before) const {
    if (!is_last_version(v)) return false;
    const std::uint32_t storage = model_.values[v].storage;
    if (made_[storage] || extended_[storage]) return true;
    if (at_run_[storage] != no_number && !evicted_[at_run_[storage]]) return true;
    return std::ranges::any_of(plan_.of_storage_[storage], [&](std::uint32_t l) {
      const Life& life = plan_.lives_[l];
      return !life.gone && life.begin > run_ && life.begin < before;
    });
  }

  /// Puts in what makes it right before that run.
  bool make(std::uint32_t value, std::uint32_t before) {
    struct Open {
      std::uint32_t op = 0, asked = 0;
      std::size_t next = 0;
    };
    std::vector<Open> open;
    const auto ask = [&](std::uint32_t v) {
      const std::optional<std::uint32_t> maker = model_.values[v].maker;
      if (!maker || !may_run_again(*maker)) return false;
      if (inserted_[*maker] == no_number) {
        open.push_back({*maker, v});
        return true;
      }
      const ModelOp& op = model_.ops[*maker];  // it has not saved
      sequence_[inserted_[*maker]].saving = op.ways.front().saving;
      for (const std::uint32_t made : op.ways.front().makes) made_[model_.values[made].storage] = true;
      return true;
    };
    if (!ask(value)) return false;
    while (!open.empty()) {
      Open& last = open.back();
      const ModelOp& op = model_.ops[last.op];
      if (last.next < op.reads.size()) {
        const std::uint32_t v = op.reads[last.next++];
        if (!is_there(v, before) && !ask(v)) return false;
        continue;
      }
      const bool saves =
          op.ways.size() > 1 && std::ranges::find(op.ways[1].makes, last.asked) == op.ways[1].makes.end();
      const OpWay& way = saves ? op.ways.front() : op.ways.back();
      inserted_[last.op] = static_cast<std::uint32_t>(sequence_.size());
      for (const std::uint32_t v : way.makes) made_[model_.values[v].storage] = true;
      sequence_.push_back({op.id, way.saving});
      open.pop_back();
    }
    return true;
  }

  const SequenceMemory& plan_;
  const OpModel& model_;
  std::uint32_t run_;
  Bytes budget_, largest_;
  double share_;
  std::uint32_t stretch_ = 0;
  std::vector<std::int64_t> most_until_stretch_;     // by run
  std::vector<std::uint32_t> at_run_, last_before_;  // by storage: lives
  std::vector<bool> evicted_, extended_, made_;      // by life; by storage; by storage: by what was put in
  SnapshotModel seen_;
  Instant instant_;
  std::vector<std::uint32_t> op_number_, value_number_;  // in it
  std::vector<std::uint32_t> ops_, values_, idle_;       // the other way round; values that wait for readers
  std::vector<std::pair<std::uint32_t, std::uint32_t>> open_;
  std::vector<std::uint32_t> inserted_;  // by op: its place
  OpSequence sequence_;
};

std::optional<std::size_t> SequenceMemory::fullest_above(Bytes budget) const {
  const auto is_above = [&](std::int64_t bytes) { return bytes > budget.count; };
  const auto first = std::ranges::find_if(at_first_, is_above);
  if (first == at_first_.end()) return std::nullopt;
  const auto fullest = std::max_element(first, std::find_if_not(first, at_first_.end(), is_above));
  return static_cast<std::size_t>(fullest - at_first_.begin());
}

std::optional<OpSequence> SequenceMemory::cut_at(std::size_t run, Bytes budget, double share) const {
  // Ops of half the budget are the last to run again: what else is there then has little room.
  const auto at = static_cast<std::uint32_t>(run);
  if (at_first_[run] <= 2 * budget.count) share = 1;
  std::optional<OpSequence> changed = Cut(*this, at, budget, Bytes{budget.count / 2}, share).sequence();
  return changed ? std::move(changed) : Cut(*this, at, budget, budget, 1).sequence();
}

}  // namespace plimsoll
