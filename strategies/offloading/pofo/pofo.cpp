#include "strategies/offloading/pofo/pofo.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "sim/core/expects.h"
#include "sim/core/tolerance.h"
#include "strategies/api/front.h"
#include "strategies/api/strategy.h"
#include "strategies/list.h"
#include "strategies/models/chain_part.h"
#include "strategies/models/op_sequence.h"
#include "strategies/models/tape_cost.h"
#include "strategies/offloading/activations/offload_bound.h"
#include "strategies/offloading/activations/offload_options.h"
#include "strategies/offloading/activations/offload_selection.h"

namespace plimsoll {
namespace {

constexpr double infinite_block = std::numeric_limits<double>::infinity();

double as_double(Bytes bytes) {
  return static_cast<double>(bytes.count);
}

constexpr double infinite_time = std::numeric_limits<double>::infinity();
constexpr std::uint32_t no_entry = std::numeric_limits<std::uint32_t>::max();

double search_as_double(Bytes bytes) {
  return static_cast<double>(bytes.count);
}

/// Before stage `stage`: what the stages before it, the last of them group [first, stage), have decided.
struct Label {
  double kept = 0, leaving = 0, returning = 0, seconds = 0;  // A, dF, dB
  std::uint32_t parent = no_entry;
  std::uint32_t first = 0, stage = 0;
  bool saves = false;                           ///< the group is one stage that saves, not a block
  bool x_leaves = false, inner_leaves = false;  ///< what the group's input is made of
};

class PofoSearch {
 public:
  PofoSearch(const PofoBlocks& blocks, const PofoLinks& links, Bytes budget, Seconds limit)
      : blocks_(blocks),
        model_(blocks.model()),
        conditions_(blocks.conditions()),
        links_(links),
        memory_(search_as_double(budget - model_.resident - model_.x[0])),
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
    for (std::uint32_t label = final; labels_[label].parent != no_entry; label = labels_[label].parent) {
      groups.push_back(label);
    }
    PofoPlan plan{.sequence = {},
                  .output_leaves = std::vector<bool>(model_.stages(), false),
                  .inner_leaves = std::vector<bool>(model_.stages(), false),
                  .makespan = Seconds{labels_[final].seconds}};
    for (std::size_t g = groups.size(); g-- > 0;) {
      const Label& group = labels_[groups[g]];
      if (group.x_leaves) plan.output_leaves[group.first - 1] = true;
      if (group.inner_leaves) plan.inner_leaves[group.first - 1] = true;
      for (std::size_t k = group.first; k < group.stage; ++k) {
        plan.sequence.push_back({group.saves ? ChainStep::Kind::forward_saving : ChainStep::Kind::forward, k});
      }
    }
    for (const std::uint32_t g : groups) {
      const Label &group = labels_[g], &before = labels_[group.parent];
      if (group.saves) {
        plan.sequence.push_back({ChainStep::Kind::backward, group.first});
      } else {
        const Fate fate = PofoSearch::fate(before, group.x_leaves, group.inner_leaves, x(group.first),
                                           before.saves ? inner(group.first) : 0);
        blocks_.append(plan.sequence, group.first, group.stage - 1, fate.room(memory_), fate.returning);
      }
    }
    return plan;
  }

 private:
  using Open = std::unordered_map<std::uint64_t, std::uint32_t>;  // label by its slots

  /// Bytes of what stage i reads; the network's input is not counted.
  double x(std::size_t i) const { return i == 0 ? 0 : search_as_double(model_.x[i]); }

  /// What the stage before i saves beside it.
  double inner(std::size_t i) const { return search_as_double(model_.saved[i - 1] - model_.x[i]); }

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

  /// What becomes of the next group's input: x, and the inner tensors of the stage before. x must be there for all of
  /// the group's forwards and backwards, and so are inner tensors that stay.
  struct Fate {
    bool x_leaves, inner_leaves;
    double kept, leaving, returning;  // of the label before the group and inner tensors that leave
    double x, inner;                  // inner: what stays of them

    double room(double memory) const { return memory - kept - x - inner; }
  };

  static Fate fate(const Label& label, bool x_leaves, bool inner_leaves, double x, double inner) {
    const double gone = inner_leaves ? inner : 0;
    return {x_leaves, inner_leaves, label.kept, label.leaving + gone, label.returning + gone, x, inner - gone};
  }

  static void finish(Label& next, const Fate& fate, double off, double pre) {
    const double x_gone = fate.x_leaves ? fate.x : 0;
    next.x_leaves = fate.x_leaves;
    next.inner_leaves = fate.inner_leaves;
    next.kept = fate.kept + fate.x + fate.inner - x_gone;
    next.leaving = std::max(0.0, fate.leaving + x_gone - off);
    next.returning = std::max(0.0, fate.returning - pre) + x_gone;
  }

  static double idle(double bytes, double bandwidth) { return bytes > 0 ? bytes / bandwidth : 0; }

  void expand(std::uint32_t from, bool saved, std::vector<std::uint32_t>& finals) {
    const Label label = labels_[from];
    const std::size_t i = label.stage;
    const double x = this->x(i), inner = saved ? this->inner(i) : 0;
    const double dead = saved ? search_as_double(conditions_.dead_input(i)) : 0;
    Label next = label;
    next.parent = from;
    next.first = label.stage;
    for (const bool x_leaves : {false, true}) {
      for (const bool inner_leaves : {false, true}) {
        if (inner_leaves && inner == 0) continue;
        if (!x_leaves || (x - dead > 0 && i + 1 < model_.stages())) {
          save(next, fate(label, x_leaves, inner_leaves, x - dead, inner), dead, finals);
        }
        if (!x_leaves || x > 0) expand_blocks(next, fate(label, x_leaves, inner_leaves, x, inner));
      }
    }
  }

  void save(Label next, const Fate& fate, double dead, std::vector<std::uint32_t>& finals) {
    const std::size_t i = next.first;
    const double room = fate.room(memory_);
    const double forward = search_as_double(conditions_.forward(i)) + dead;
    const double backward = search_as_double(conditions_.backward(i)) + dead;
    if (forward > room || backward > room) return;
    const double out = std::max(0.0, forward + fate.leaving - room);
    const double in = std::max(0.0, backward + fate.returning - room);
    next.saves = true;
    next.stage = next.first + 1;
    next.seconds += model_.forward[i].value + model_.backward[i].value + idle(out, links_.out) + idle(in, links_.in);
    finish(next, fate, model_.forward[i].value * links_.out + out, model_.backward[i].value * links_.in + in);
    if (next.stage < model_.stages()) return add(next, true);
    if (!down_) next.seconds += idle(next.leaving, links_.out) + idle(next.returning, links_.in);
    if (next.seconds > limit_) return;
    finals.push_back(static_cast<std::uint32_t>(labels_.size()));
    labels_.push_back(next);
  }

  void expand_blocks(const Label& before, const Fate& fate) {
    const std::size_t i = before.first;
    const double room = fate.room(memory_);
    Label next = before;
    next.saves = false;
    double forwards = 0, out = 0;  // seconds; bytes that must drain before them
    for (std::size_t j = i; j + 1 < model_.stages() && conditions_.recomputable(j); ++j) {
      const double need = search_as_double(conditions_.null_step(i, j));
      if (need > room) break;
      out = std::max(out, need - forwards * links_.out + fate.leaving - room);
      forwards += model_.nograd[j].value;
      const double backwards = blocks_.time(i, j, room, fate.returning) * (1 - (down_ ? float_tolerance : 0));
      next.seconds = before.seconds + forwards + idle(out, links_.out) + backwards;
      next.stage = static_cast<std::uint32_t>(j + 1);
      if (next.seconds + rest_[next.stage] > limit_) continue;
      finish(next, fate, forwards * links_.out + out, backwards * links_.in);
      add(next, false);
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
    std::vector<double> least(size * size, infinite_time);  // kept, by slots of leaving and returning or less
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

struct PofoOptions : ChunkOptions {
  std::int32_t slots = 100;
  std::int64_t levels = 40;
};

constexpr Bytes no_pofo_limit{std::numeric_limits<std::int64_t>::max() / 4};
constexpr std::size_t plans_tried = 4;  // of the program's best, at each level
constexpr double slack = 1.05;          // copies in chunks and exact sizes may be faster than the program's times

/// What this one is never worse than: cheaper strategies, and the two that together do what it does.
std::vector<std::vector<Pass>> pofo_others() {
  const Pass rotor = pass_of(rotor_strategy), greedy = pass_of(offload_greedy_strategy);
  return {{rotor},
          {rotor, greedy},
          {greedy},
          {pass_of(offload_dp_strategy)},
          {pass_of(offload_fractional_strategy)},
          {pass_of(save_on_cpu_strategy)},
          {pass_of(vdnn_strategy)},
          {pass_of(superneurons_strategy)},
          {pass_of(capuchin_strategy)}};
}

double finite(BytesPerSecond bandwidth) {
  return std::min(bandwidth.value, 1e18);
}

class PofoPlanner {
 public:
  PofoPlanner(const PartTask& task, const PofoOptions& options, const OffloadModel& plain)
      : task_(task),
        plain_(plain),
        part_(chain_part(task.problem, task.part())),
        model_(chain_model(task.problem, part_)),
        chunks_(options.chunks),
        levels_(options.levels),
        slots_(options.slots),
        links_{finite(plain.out.bandwidth), finite(plain.in.bandwidth)},
        base_(model_.resident + model_.x[0]),
        most_(evaluate(model_, store_all_sequence(model_.stages())).peak),
        slot_{std::max<std::int64_t>(1, ((most_ - base_).count + slots_ - 1) / slots_)} {}

  /// Plans whatever the budget: of other strategies at the levels of memory, and own ones that may be faster.
  Front plans() const {
    Front pool;
    std::vector<Bytes> levels = budgets_between(base_, most_, static_cast<std::uint32_t>(levels_));
    levels.front() = most_;
    std::rotate(levels.begin(), levels.begin() + 1, levels.end());  // std::ranges' needs a newer Clang than 15
    std::vector<std::optional<Bytes>> budgets{std::nullopt};
    budgets.insert(budgets.end(), levels.begin(), levels.end());
    for (const std::vector<Pass>& passes : pofo_others()) {
      for (PlannedTape& tape : known_tapes(passes, task_, budgets)) pool.add(std::move(tape));
    }
    if (!plain_.has_host) return pool;
    const PofoBlocks blocks(model_, links_.in, slot_, slots_, SlotRounding::up);
    for (const Bytes budget : levels) {
      const PlannedTape* fastest = pool.at(budget);
      if (fastest != nullptr && fastest->makespan <= work()) break;
      add_plans(blocks, budget, pool);
    }
    return pool;
  }

  /// For each budget the fastest of these plans and of what the others answer to just that budget: whatever else is
  /// asked, the answer is the same.
  std::vector<TapeOutcome> outcomes(std::span<const std::optional<Bytes>> budgets) const {
    std::vector<TapeOutcome> best = plans().outcomes(budgets, "no recomputation and offloading of stages fits");
    for (const std::vector<Pass>& passes : pofo_others()) keep_better(best, tapes_of_passes(task_, passes, budgets));
    return best;
  }

  /// No schedule of the class takes less. Nothing where it is not known.
  std::vector<std::optional<Seconds>> bounds(std::span<const std::optional<Bytes>> budgets,
                                             std::span<const TapeOutcome> outcomes) const {
    std::vector<std::optional<Seconds>> bounds(budgets.size());
    if (task_.problem.micro_batches > 1 || !plain_.has_host) return bounds;
    const PofoBlocks blocks(model_, links_.in, slot_, slots_, SlotRounding::down);
    for (std::size_t b = 0; b < budgets.size(); ++b) {
      const auto* tape = std::get_if<PlannedTape>(&outcomes[b]);
      if (tape == nullptr) continue;
      const Seconds after = updates(task_);
      const Bytes budget = std::min(budgets[b].value_or(no_pofo_limit), most_);
      bounds[b] = pofo_bound(blocks, links_, budget, tape->makespan - after) + after;
    }
    return bounds;
  }

 private:
  /// Of an iteration that recomputes nothing and waits for nothing.
  Seconds work() const { return tape_cost(task_.problem, task_.part(), offload_tape(plain_, {})).makespan; }

  void add_plans(const PofoBlocks& blocks, Bytes budget, Front& pool) const {
    const PlannedTape* other = pool.at(budget);
    const auto count = static_cast<double>(task_.problem.micro_batches);
    const Seconds limit = other == nullptr ? Seconds{std::numeric_limits<double>::max()}
                                           : slack / count * (other->makespan - updates(task_));
    for (const PofoPlan& plan : pofo_plans(blocks, links_, budget, limit, plans_tried)) {
      const Tape tape = chain_tape(task_.problem, task_.partition, task_.id, part_, plan.sequence);
      const std::variant<OffloadModel, std::string> made = offload_model(task_, &tape);
      const auto& model = std::get<OffloadModel>(made);
      const std::vector<bool> chosen = chosen_gaps(model, plan);
      for (const std::uint32_t chunks : {1U, chunks_}) {
        if (const std::optional<PlacedCopies> placed = place_chosen(model, chosen, chunks, budget)) {
          pool.add(planned_moves(task_, model, placed->moves));
        }
      }
    }
  }

  /// Values between forward and backward that the first forward of a stage has made to leave.
  std::vector<bool> chosen_gaps(const OffloadModel& model, const PofoPlan& plan) const {
    std::vector<bool> leaves(task_.problem.graph.tensors.size(), false);
    for (std::size_t i = 0; i < plan.output_leaves.size(); ++i) {
      const Op& forward = task_.problem.graph[task_.problem.index->forward[part_.first + part_.forward_only + i]];
      for (const TensorId t : forward.outputs) {
        const bool is_inner = std::ranges::find(forward.saved, t) != forward.saved.end();
        leaves[t.index] = is_inner ? plan.inner_leaves[i] : plan.output_leaves[i];
      }
    }
    std::vector<bool> chosen(model.gaps.size(), false);
    for (const std::uint32_t g : saved_gaps(model)) chosen[g] = leaves[model.gaps[g].tensor.index];
    return chosen;
  }

  const PartTask& task_;
  const OffloadModel& plain_;
  ChainPart part_;
  ChainModel model_;
  std::uint32_t chunks_;
  std::int64_t levels_;
  std::int32_t slots_;
  PofoLinks links_;
  Bytes base_, most_, slot_;
};

constexpr auto pofo_options = options_of<PofoOptions>(
    option_of<&PofoOptions::slots>({
        .name = "slots",
        .least = 2,
        .most = 200,
        .help = "resolution of the choice: sizes are rounded to 1/slots of the memory of plain training; the plan "
                "itself is exact",
    }),
    copy_chunks_option,
    option_of<&PofoOptions::levels>({
        .name = "levels",
        .least = 1,
        .most = 200,
        .help = "number of memory levels at which plans are made, the same for all budgets",
    }));

std::vector<TapeOutcome> pofo_tapes(const PartTask& task, const PofoOptions& options,
                                    std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  if (before != nullptr) return refused("pofo chooses recomputation and offloading together, itself", budgets);
  const std::variant<OffloadModel, std::string> plain = offload_model(task, nullptr);
  if (const std::string* why = std::get_if<std::string>(&plain)) return refused(*why, budgets);
  const PofoPlanner planner(task, options, std::get<OffloadModel>(plain));
  std::vector<TapeOutcome> outcomes = planner.outcomes(budgets);
  const std::vector<std::optional<Seconds>> bounds = planner.bounds(budgets, outcomes);
  for (std::size_t b = 0; b < outcomes.size(); ++b) {
    auto* tape = std::get_if<PlannedTape>(&outcomes[b]);
    if (tape == nullptr) continue;
    tape->gap = std::nullopt;
    if (bounds[b]) tape->gap = std::max(0.0, tape->makespan / *bounds[b] - 1);
  }
  return outcomes;
}

std::vector<Bytes> pofo_candidates(const PartTask& task, const PofoOptions& options) {
  const std::variant<OffloadModel, std::string> plain = offload_model(task, nullptr);
  if (std::holds_alternative<std::string>(plain)) return {};
  return PofoPlanner(task, options, std::get<OffloadModel>(plain)).plans().budgets();
}

}  // namespace

PofoBlocks::PofoBlocks(ChainModel model, double bytes_per_second, Bytes slot, std::int32_t slots, SlotRounding rounding)
    : model_{std::move(model)},
      conditions_{model_},
      bandwidth_{bytes_per_second},
      slot_{as_double(slot)},
      slots_{slots},
      rounding_{rounding} {
  EXPECTS(slot > Bytes{0} && slots > 0);
  const auto rounded = [&](Bytes bytes) {
    const double exact = as_double(bytes) / slot_;
    return static_cast<std::int32_t>(
        std::min<double>(rounding == SlotRounding::up ? std::ceil(exact) : std::floor(exact), slots_ + 1));
  };
  const std::size_t n = model_.stages();
  nograd_before_.push_back(0);
  work_before_.push_back(0);
  for (std::size_t i = 0; i < n; ++i) {
    x_.push_back(rounded(model_.x[i]));
    kept_.push_back(rounded(conditions_.kept(i)));
    nograd_before_.push_back(nograd_before_.back() + model_.nograd[i].value);
    work_before_.push_back(work_before_.back() + model_.forward[i].value + model_.backward[i].value);
    std::vector<double>& run = run_.emplace_back(1, 0.0);
    for (std::size_t k = i; k < n; ++k) {
      run.push_back(conditions_.recomputable(k) ? std::max(run.back(), as_double(conditions_.null_step(i, k)))
                                                : infinite_block);
    }
  }
  times_.resize(n * (n + 1) / 2);
  for (std::size_t l = 0; l < n; ++l) {
    for (std::size_t i = l + 1; i-- > 0;) {
      std::vector<float>& times = times_[l * (l + 1) / 2 + i];
      times.reserve(static_cast<std::size_t>(slots_ + 1) * static_cast<std::size_t>(slots_ + 2) / 2);
      for (std::int32_t m = 0; m <= slots_; ++m) {
        for (std::int32_t d = 0; d <= m; ++d) times.push_back(static_cast<float>(best(i, l, {m, d}).seconds));
      }
    }
  }
}

/// Slots that must be there so many seconds before `bytes` are.
std::int32_t PofoBlocks::returning_before(double bytes, double seconds) const {
  const double left = (bytes - bandwidth_ * seconds) / slot_;
  if (left <= 0) return 0;
  return static_cast<std::int32_t>(rounding_ == SlotRounding::up ? whole_above(left) : whole_below(left));
}

double PofoBlocks::idle(double bytes) const {
  return bytes > 0 ? bytes / bandwidth_ : 0;
}

double PofoBlocks::at(std::size_t i, std::size_t l, Cell c) const {
  if (c.memory < c.returning) return infinite_block;
  return times_[l * (l + 1) / 2 + i][static_cast<std::size_t>(c.memory) * static_cast<std::size_t>(c.memory + 1) / 2 +
                                     static_cast<std::size_t>(c.returning)];
}

/// What the stages behind i have once B_i and what it idles are over, in reverse.
PofoBlocks::Cell PofoBlocks::inside_save(std::size_t i, Cell c) const {
  const double wait = as_double(conditions_.backward(i)) + bytes(c.returning) - bytes(c.memory);
  return {c.memory - kept_[i], returning_before(bytes(c.returning), model_.backward[i].value + idle(wait))};
}

double PofoBlocks::save(std::size_t i, std::size_t l, Cell c) const {
  const double memory = bytes(c.memory), backward = as_double(conditions_.backward(i));
  const double forward = as_double(conditions_.held(l) + conditions_.forward(i));
  if (backward > memory || forward > memory) return infinite_block;
  double seconds = model_.backward[i].value + idle(backward + bytes(c.returning) - memory);
  if (i < l) {
    const Cell inside = inside_save(i, c);
    if (inside.memory < 0) return infinite_block;
    seconds += at(i + 1, l, inside);
  }
  const double there = std::max(0.0, bytes(c.returning) - bandwidth_ * seconds);
  return seconds + idle(forward + there - memory) + model_.forward[i].value;
}

PofoBlocks::Cell PofoBlocks::late_part(std::size_t i, std::size_t j, Cell c) const {
  return {c.memory - x_[j], returning_before(bytes(c.returning), at(i, j - 1, c))};
}

double PofoBlocks::split(std::size_t i, std::size_t j, std::size_t l, Cell c) const {
  const double memory = bytes(c.memory), need = as_double(conditions_.held(l)) + run_[i][j - i];
  const double early = at(i, j - 1, c);
  if (need > memory || early == infinite_block) return infinite_block;
  const Cell late = late_part(i, j, c);
  if (late.memory < 0) return infinite_block;
  const double seconds = early + at(j, l, late);
  const double there = std::max(0.0, bytes(c.returning) - bandwidth_ * seconds);
  return seconds + idle(need + there - memory) + nograd_before_[j] - nograd_before_[i];
}

PofoBlocks::Choice PofoBlocks::best(std::size_t i, std::size_t l, Cell c) const {
  Choice best{save(i, l, c), i};
  const double work = work_before_[l + 1] - work_before_[i];
  for (std::size_t j = i + 1; j <= l && work + nograd_before_[j] - nograd_before_[i] < best.seconds; ++j) {
    const double seconds = split(i, j, l, c);
    if (seconds < best.seconds) best = {seconds, j};
  }
  return best;
}

PofoBlocks::Cell PofoBlocks::cell(double memory, double returning) const {
  const bool up = rounding_ == SlotRounding::up;
  const double m = memory / slot_, d = returning / slot_;
  const auto within = [&](double slots) {
    return static_cast<std::int32_t>(std::clamp(slots, -1.0, static_cast<double>(slots_)));
  };
  return {within(up ? whole_below(m) : whole_above(m)), within(up ? whole_above(d) : whole_below(d))};
}

double PofoBlocks::time(std::size_t i, std::size_t l, double memory, double returning) const {
  const Cell c = cell(memory, returning);
  return c.memory < 0 ? infinite_block : at(i, l, c);
}

void PofoBlocks::append(ChainSequence& sequence, std::size_t i, std::size_t l, double memory, double returning) const {
  append(sequence, i, l, cell(memory, returning));
}

void PofoBlocks::append(ChainSequence& sequence, std::size_t i, std::size_t l, Cell c) const {
  const auto [seconds, j] = best(i, l, c);
  EXPECTS(seconds < infinite_block);
  if (j == i) {
    sequence.push_back({ChainStep::Kind::forward_saving, i});
    if (i < l) append(sequence, i + 1, l, inside_save(i, c));
    sequence.push_back({ChainStep::Kind::backward, i});
    return;
  }
  for (std::size_t k = i; k < j; ++k) sequence.push_back({ChainStep::Kind::forward, k});
  append(sequence, j, l, late_part(i, j, c));
  append(sequence, i, j - 1, c);
}

std::vector<PofoPlan> pofo_plans(const PofoBlocks& blocks, const PofoLinks& links, Bytes budget, Seconds limit,
                                 std::size_t most) {
  EXPECTS(blocks.rounding() == SlotRounding::up);
  PofoSearch search(blocks, links, budget, limit);
  std::vector<PofoPlan> plans;
  for (const std::uint32_t final : search.run()) {
    if (plans.size() == most) break;
    plans.push_back(search.plan(final));
  }
  return plans;
}

Seconds pofo_bound(const PofoBlocks& blocks, const PofoLinks& links, Bytes budget, Seconds limit) {
  EXPECTS(blocks.rounding() == SlotRounding::down);
  PofoSearch search(blocks, links, budget, limit);
  const std::vector<std::uint32_t> finals = search.run();
  return finals.empty() ? limit : Seconds{std::min(limit.value, search.seconds(finals.front()))};
}

// The strategy `pofo`: recomputation and offloading of a chain's activations chosen together, by dynamic programming.
// Source: Beaumont, Eyraud-Dubois, Shilova, "Efficient combination of rematerialization and offloading for training
// DNNs", NeurIPS 2021.
extern constinit const StrategyInfo pofo_strategy{
    .name = "pofo",
    .family = Family::offloading,
    .summary =
        "chooses recomputation and offloading together, by dynamic programming over the bytes kept, leaving and "
        "returning",
    .source =
        "Beaumont, Eyraud-Dubois, Shilova, \"Efficient combination of rematerialization and offloading\", NeurIPS "
        "2021",
    .chains_only = true,
    .options = pofo_options,
    .kind = TapeStrategy{.tapes = by_options<pofo_tapes>, .candidates = by_options<pofo_candidates>},
    .effort = {.stages = 40},
};

}  // namespace plimsoll
