#include "strategies/offloading/pofo_search.h"

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();
constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
// Seconds of the rounded blocks are kept in single precision.
constexpr double precision = 1e-6;

double as_double(Bytes bytes) {
  return static_cast<double>(bytes.count);
}

/// Before stage `stage`: what the stages before it, the last of them group [first, stage), have decided.
struct Label {
  double kept = 0, leaving = 0, returning = 0, seconds = 0;  // A, dF, dB
  std::uint32_t parent = none;
  std::uint32_t first = 0, stage = 0;
  bool saves = false;   ///< the group is one stage that saves, not a block
  bool leaves = false;  ///< the group's input goes to the host
};

class Search {
 public:
  Search(const PofoBlocks& blocks, const PofoLinks& links, Bytes budget, Seconds limit)
      : blocks_(blocks),
        model_(blocks.model()),
        conditions_(blocks.conditions()),
        links_(links),
        memory_(as_double(budget - model_.resident - model_.x[0])),
        limit_(limit.value),
        down_(blocks.rounding() == SlotRounding::down),
        open_(2 * model_.stages()),
        rest_(model_.stages() + 1, 0.0) {
    for (std::size_t i = model_.stages(); i-- > 0;) {
      rest_[i] = rest_[i + 1] + std::min(model_.forward[i], model_.nograd[i]).value + model_.backward[i].value;
    }
  }

  /// Labels behind the loss, fastest first.
  std::vector<std::uint32_t> run() {
    std::vector<std::uint32_t> finals;
    if (memory_ < 0) return finals;
    labels_.emplace_back();
    expand(0, false, finals);
    for (std::size_t i = 1; i < model_.stages(); ++i) {
      for (const bool saved : {false, true}) {
        for (const std::uint32_t label : undominated(i, saved)) expand(label, saved, finals);
        open_[2 * i + (saved ? 1 : 0)] = {};
      }
    }
    std::ranges::sort(finals, {}, [&](std::uint32_t f) { return std::pair(labels_[f].seconds, f); });
    return finals;
  }

  double seconds(std::uint32_t label) const { return labels_[label].seconds; }

  PofoPlan plan(std::uint32_t final) const {
    std::vector<std::uint32_t> groups;
    for (std::uint32_t label = final; labels_[label].parent != none; label = labels_[label].parent) {
      groups.push_back(label);
    }
    PofoPlan plan{.sequence = {},
                  .leaves = std::vector<bool>(model_.stages(), false),
                  .makespan = Seconds{labels_[final].seconds}};
    for (std::size_t g = groups.size(); g-- > 0;) {
      const Label& group = labels_[groups[g]];
      if (group.leaves) plan.leaves[group.first - 1] = true;
      for (std::size_t k = group.first; k < group.stage; ++k) {
        plan.sequence.push_back({group.saves ? ChainStep::Kind::forward_saving : ChainStep::Kind::forward, k});
      }
    }
    for (const std::uint32_t g : groups) {
      const Label &group = labels_[g], &before = labels_[group.parent];
      if (group.saves) {
        plan.sequence.push_back({ChainStep::Kind::backward, group.first});
      } else {
        blocks_.append(plan.sequence, group.first, group.stage - 1,
                       memory_ - before.kept - input(group.first, before.saves), before.returning);
      }
    }
    return plan;
  }

 private:
  using Open = std::unordered_map<std::uint64_t, std::uint32_t>;  // label by its slots

  /// Bytes of what stage i reads; the network's input is not counted.
  double input(std::size_t i, bool saved) const {
    if (i == 0) return 0;
    return as_double(saved ? model_.saved[i - 1] : model_.x[i]);
  }

  std::uint64_t slots(const Label& label) const {
    const auto whole = [&](double bytes) { return static_cast<std::uint64_t>(bytes / blocks_.slot()); };
    const auto count = static_cast<std::uint64_t>(memory_ / blocks_.slot()) + 1;
    return (whole(label.kept) * count + whole(label.leaving)) * count + whole(label.returning);
  }

  void add(const Label& label, bool saved) {
    if (label.kept + std::max(label.leaving, label.returning) > memory_) return;
    if (label.seconds + rest_[label.stage] > limit_) return;
    Open& open = open_[2 * label.stage + (saved ? 1 : 0)];
    const auto [at, is_new] = open.try_emplace(slots(label), static_cast<std::uint32_t>(labels_.size()));
    if (is_new) {
      labels_.push_back(label);
      return;
    }
    Label& other = labels_[at->second];
    if (down_) {
      other.kept = std::min(other.kept, label.kept);
      other.leaving = std::min(other.leaving, label.leaving);
      other.returning = std::min(other.returning, label.returning);
      other.seconds = std::min(other.seconds, label.seconds);
    } else if (std::pair(label.seconds, label.kept) < std::pair(other.seconds, other.kept)) {
      other = label;
    }
  }

  /// Both fates of the group's input, which holds `stays` bytes once the group's forwards have run.
  void add_both(Label next, bool saved, double stays, double off, double pre) {
    const double leaving = next.leaving, returning = next.returning;
    next.leaving = std::max(0.0, leaving - off);
    next.returning = std::max(0.0, returning - pre);
    next.kept += stays;
    add(next, saved);
    if (stays == 0) return;
    next.kept -= stays;
    next.leaving = std::max(0.0, leaving + stays - off);
    next.returning += stays;
    next.leaves = true;
    add(next, saved);
  }

  struct Turn {
    double idle_out, idle_in;  // bytes
    double seconds;
  };

  /// The forward and backward of a stage that saves.
  std::optional<Turn> save(const Label& label, std::size_t i, double stays, double dead) const {
    const double room = memory_ - label.kept - stays;
    const double forward = as_double(conditions_.forward(i)) + dead;
    const double backward = as_double(conditions_.backward(i)) + dead;
    if (forward > room || backward > room) return std::nullopt;
    const double out = std::max(0.0, forward + label.leaving - room);
    const double in = std::max(0.0, backward + label.returning - room);
    return Turn{out, in,
                label.seconds + model_.forward[i].value + model_.backward[i].value + idle(out, links_.out) +
                    idle(in, links_.in)};
  }

  static double idle(double bytes, double bandwidth) { return bytes > 0 ? bytes / bandwidth : 0; }

  void expand(std::uint32_t from, bool saved, std::vector<std::uint32_t>& finals) {
    const Label label = labels_[from];
    const std::size_t i = label.stage;
    const double input_bytes = input(i, saved), dead = saved ? as_double(conditions_.dead_input(i)) : 0;
    Label next = label;
    next.parent = from;
    next.first = label.stage;
    next.leaves = false;
    if (const std::optional<Turn> turn = save(label, i, input_bytes - dead, dead)) {
      next.saves = true;
      next.stage = label.stage + 1;
      next.seconds = turn->seconds;
      const double off = model_.forward[i].value * links_.out + turn->idle_out;
      const double pre = model_.backward[i].value * links_.in + turn->idle_in;
      if (next.stage < model_.stages()) {
        add_both(next, true, input_bytes - dead, off, pre);
      } else {
        next.seconds += down_ ? 0.0
                              : idle(std::max(0.0, label.leaving - off), links_.out) +
                                    idle(std::max(0.0, label.returning - pre), links_.in);
        if (next.seconds <= limit_) {
          finals.push_back(static_cast<std::uint32_t>(labels_.size()));
          labels_.push_back(next);
        }
      }
    }
    next.saves = false;
    expand_blocks(next, label, input_bytes);
  }

  void expand_blocks(Label next, const Label& label, double input_bytes) {
    const std::size_t i = label.stage;
    const double room = memory_ - label.kept - input_bytes;
    double forwards = 0, drained_late = 0;  // seconds; bytes that must drain before the block, or infinite
    for (std::size_t j = i; j + 1 < model_.stages() && conditions_.recomputable(j); ++j) {
      const double need = as_double(conditions_.null_step(i, j));
      if (need > room) break;
      drained_late = std::max(drained_late, need - forwards * links_.out + label.leaving - room);
      forwards += model_.nograd[j].value;
      const double backwards = blocks_.time(i, j, room, label.returning);
      if (backwards == infinite) continue;
      next.stage = static_cast<std::uint32_t>(j + 1);
      next.kept = label.kept;
      next.leaving = label.leaving;
      next.returning = label.returning;
      next.seconds =
          label.seconds + forwards + idle(drained_late, links_.out) + backwards * (1 - (down_ ? precision : 0));
      if (next.seconds + rest_[next.stage] > limit_) continue;
      add_both(next, false, input_bytes, forwards * links_.out + drained_late, backwards * links_.in);
    }
  }

  /// Labels before stage i that no other one of them is at least as good as.
  std::vector<std::uint32_t> undominated(std::size_t i, bool saved) const {
    std::vector<std::uint32_t> labels;
    for (const auto& [slots, label] : open_[2 * i + (saved ? 1 : 0)]) labels.push_back(label);
    std::ranges::sort(labels, {}, [&](std::uint32_t k) {
      const Label& label = labels_[k];
      return std::tuple(label.seconds, label.kept, label.leaving, label.returning, k);
    });
    const auto size = static_cast<std::size_t>(memory_ / blocks_.slot()) + 2;
    std::vector<double> least(size * size, infinite);  // kept, by slots of leaving and returning or less
    std::vector<std::uint32_t> left;
    for (const std::uint32_t k : labels) {
      const Label& label = labels_[k];
      const auto f = static_cast<std::size_t>(label.leaving / blocks_.slot());
      const auto b = static_cast<std::size_t>(label.returning / blocks_.slot());
      if (least[f * size + b] <= label.kept) continue;
      left.push_back(k);
      const std::size_t f_up = f + (label.leaving > 0 ? 1 : 0), b_up = b + (label.returning > 0 ? 1 : 0);
      for (std::size_t y = f_up; y < size && least[y * size + b_up] > label.kept; ++y) {
        for (std::size_t x = b_up; x < size && least[y * size + x] > label.kept; ++x) least[y * size + x] = label.kept;
      }
    }
    return left;
  }

  const PofoBlocks& blocks_;
  const ChainModel& model_;
  const RotorConditions& conditions_;
  PofoLinks links_;
  double memory_, limit_;
  bool down_;
  std::vector<Label> labels_;
  std::vector<Open> open_;    // by stage, then whether the stage before saved
  std::vector<double> rest_;  // least seconds of the stages from one on
};

}  // namespace

std::vector<PofoPlan> pofo_plans(const PofoBlocks& blocks, const PofoLinks& links, Bytes budget, Seconds limit,
                                 std::size_t most) {
  EXPECTS(blocks.rounding() == SlotRounding::up);
  Search search(blocks, links, budget, limit);
  std::vector<PofoPlan> plans;
  for (const std::uint32_t final : search.run()) {
    if (plans.size() == most) break;
    plans.push_back(search.plan(final));
  }
  return plans;
}

Seconds pofo_bound(const PofoBlocks& blocks, const PofoLinks& links, Bytes budget, Seconds limit) {
  EXPECTS(blocks.rounding() == SlotRounding::down);
  Search search(blocks, links, budget, limit);
  const std::vector<std::uint32_t> finals = search.run();
  return finals.empty() ? limit : Seconds{std::min(limit.value, search.seconds(finals.front()))};
}

}  // namespace plimsoll
