#include "strategies/rematerialization/exact/exact.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <functional>
#include <limits>
#include <string>
#include <unordered_map>
#include <utility>

#include "sim/core/expects.h"
#include "sim/core/tolerance.h"
#include "strategies/api/deadline.h"
#include "strategies/api/front.h"
#include "strategies/api/solver_options.h"
#include "strategies/api/strategy.h"
#include "strategies/models/chain_pass.h"
#include "strategies/models/op_sequence.h"
#include "strategies/rematerialization/cuts/articulation_points.h"
#include "strategies/rematerialization/policies/greedy_recompute.h"
#include "strategies/rematerialization/rotor/cheaper_plans.h"

namespace plimsoll {
namespace {

constexpr std::size_t words = most_state_bits / 64;

/// Values that are there, then inputs that were loaded, then ops that must run and have run.
struct Bits {
  std::array<std::uint64_t, words> word{};

  bool has(std::size_t bit) const { return ((word[bit / 64] >> (bit % 64)) & 1U) != 0; }
  void set(std::size_t bit) { word[bit / 64] |= std::uint64_t{1} << (bit % 64); }
  bool any() const { return (word[0] | word[1]) != 0; }
  friend Bits operator|(Bits a, Bits b) { return {{a.word[0] | b.word[0], a.word[1] | b.word[1]}}; }
  friend Bits operator&(Bits a, Bits b) { return {{a.word[0] & b.word[0], a.word[1] & b.word[1]}}; }
  friend Bits without(Bits a, Bits b) { return {{a.word[0] & ~b.word[0], a.word[1] & ~b.word[1]}}; }
  friend bool operator==(Bits, Bits) = default;
};

Bits bits_of(const std::vector<std::uint32_t>& list) {
  Bits bits;
  for (const std::uint32_t b : list) bits.set(b);
  return bits;
}

struct SearchWay {
  Bits makes, clears;
  double time = 0;
};

struct SearchOp {
  Bits reads, all_makes;
  std::optional<std::size_t> flag;  ///< the bit that says it has run
  bool once = false;
  std::vector<SearchWay> ways;
};

/// What the undone ops still need, in a state.
struct Needs {
  double time = 0;  ///< infinite: something that cannot be made again is missing
  Bits useful;      ///< values that somebody may still read
};

struct Node {
  Bits state;
  double time = 0;
  std::uint32_t parent = 0;
  std::uint16_t op = 0;
  std::uint8_t way = 0;
  bool closed = false;
};

struct HeapEntry {
  double rank = 0, bound = 0, time = 0;
  std::uint32_t node = 0;
  /// The heap's top is the least rank; among equals the one that is furthest.
  friend bool operator<(const HeapEntry& a, const HeapEntry& b) {
    if (a.rank != b.rank) return a.rank > b.rank;
    if (a.time != b.time) return a.time < b.time;
    return a.node < b.node;
  }
};

/// Node numbers by state; open addressing.
class StateTable {
 public:
  StateTable() : slots_(1024, none) {}
  static constexpr std::uint32_t none = 0xFFFFFFFF;

  /// The slot of the state, which holds `none` where the state is new.
  std::uint32_t& find(Bits state, const std::vector<Node>& nodes) {
    if (2 * nodes.size() > slots_.size()) grow(nodes);
    std::size_t at = hash(state) & (slots_.size() - 1);
    while (slots_[at] != none && !(nodes[slots_[at]].state == state)) at = (at + 1) & (slots_.size() - 1);
    return slots_[at];
  }

 private:
  static std::size_t hash(Bits state) {
    std::uint64_t h = state.word[0] * 0x9E3779B97F4A7C15ULL;
    h = (h ^ (h >> 32U) ^ state.word[1]) * 0xD6E8FEB86659FD93ULL;
    return h ^ (h >> 29U);
  }

  void grow(const std::vector<Node>& nodes) {
    slots_.assign(4 * slots_.size(), none);
    for (std::uint32_t n = 0; n < nodes.size(); ++n) {
      std::size_t at = hash(nodes[n].state) & (slots_.size() - 1);
      while (slots_[at] != none) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = n;
    }
  }

  std::vector<std::uint32_t> slots_;
};

class Search {
 public:
  Search(const OpModel& model, Bytes budget, const SearchLimits& limits, bool any)
      : model_(model), budget_(budget), limits_(limits), any_(any), values_(model.values.size()) {
    std::size_t bit = values_;
    loaded_.resize(values_);
    for (std::size_t v = 0; v < values_; ++v) {
      value_bits_.set(v);
      if (!model.values[v].maker) loaded_[v] = bit++;
    }
    for (const ModelOp& op : model.ops) {
      SearchOp& made = ops_.emplace_back();
      made.reads = bits_of(op.reads);
      made.once = op.once;
      if (op.once || op.sink) made.flag = bit++;
      for (const OpWay& way : op.ways) {
        made.ways.push_back({bits_of(way.makes), bits_of(way.clears), way.time.value});
        made.all_makes = made.all_makes | made.ways.back().makes;
      }
    }
    EXPECTS(bit <= most_state_bits);
    for (const std::vector<std::uint32_t>& storage : model.in_storage) storages_.push_back(bits_of(storage));
    for (std::size_t v = 0; v < values_; ++v) {
      if (!model.values[v].maker) inputs_.set(v);
    }
  }

  SearchResult run() {
    const auto start = std::chrono::steady_clock::now();
    visit(Bits{}, 0, 0, 0, 0);
    SearchResult result;
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end());
      const HeapEntry entry = heap_.back();
      heap_.pop_back();
      Node& node = nodes_[entry.node];
      if (node.closed || entry.time != node.time) continue;
      node.closed = true;
      if (is_dominated(node)) continue;
      result.bound = Seconds{entry.bound};
      if (is_done(node.state)) {
        result.end = SearchResult::End::solved;
        result.sequence = sequence_to(entry.node);
        result.states = nodes_.size();
        return result;
      }
      expand(entry.node);
      const bool late = (expanded_++ & 1023U) == 0 && is_late(start);
      if (is_full() || late) {
        result.end = late ? SearchResult::End::out_of_time : SearchResult::End::out_of_states;
        result.states = nodes_.size();
        return result;
      }
    }
    result.end = SearchResult::End::impossible;
    result.states = nodes_.size();
    return result;
  }

 private:
  /// States are what takes memory: the heap may hold some more than once, and arrivals at known ones take time.
  bool is_full() const {
    return nodes_.size() > limits_.states || heap_.size() / 4 > limits_.states || visits_ / 64 > limits_.states;
  }

  /// Whether a state was expanded before in which the same ops have run, more is there, and that took no longer.
  bool is_dominated(const Node& node) {
    const Bits flags = without(node.state, value_bits_);
    std::vector<std::uint32_t>& known = expanded_with_[(flags.word[0] * 0x9E3779B97F4A7C15ULL) ^ flags.word[1]];
    constexpr std::size_t most_compared = 512;  // the latest ones; the rest rarely prunes what these do not
    for (std::size_t k = known.size(); k > 0 && known.size() - k < most_compared; --k) {
      const Node& better = nodes_[known[k - 1]];
      if ((any_ || better.time <= node.time) && better.state.word != node.state.word &&
          !without(node.state, better.state).any() && without(better.state, value_bits_) == flags) {
        return true;
      }
    }
    known.push_back(static_cast<std::uint32_t>(&node - nodes_.data()));
    return false;
  }

  bool is_late(std::chrono::steady_clock::time_point start) const {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    return passed.count() > limits_.seconds;
  }

  bool is_done(Bits state) const {
    return std::ranges::all_of(ops_, [&](const SearchOp& op) { return !op.flag || state.has(*op.flag); });
  }

  /// Values that can be read: those that are there, and inputs that were not loaded yet.
  Bits available(Bits state) const {
    Bits there = state & value_bits_;
    for (std::size_t v = 0; v < values_; ++v) {
      if (loaded_[v] && !state.has(*loaded_[v])) there.set(v);
    }
    return there;
  }

  Needs needs(Bits state) const {
    Needs needs;
    const Bits there = available(state);
    Bits missing;
    for (std::size_t o = ops_.size(); o-- > 0;) {
      const SearchOp& op = ops_[o];
      const bool ran = op.flag && state.has(*op.flag);
      const bool undone = op.flag && !ran;
      const Bits asked = op.all_makes & missing;
      if (undone || asked.any()) {
        if (ran && op.once) {
          needs.time = std::numeric_limits<double>::infinity();
          return needs;
        }
        double time = op.ways[0].time;
        if (op.ways.size() > 1 && !without(asked, op.ways[1].makes).any()) time = std::min(time, op.ways[1].time);
        needs.time += time;
        missing = missing | without(op.reads, there);
      }
      if (!(ran && op.once) && (undone || (op.all_makes & needs.useful).any())) needs.useful = needs.useful | op.reads;
    }
    if ((missing & inputs_).any()) needs.time = std::numeric_limits<double>::infinity();
    return needs;
  }

  std::int64_t bytes(Bits values) const {
    std::int64_t sum = 0;
    for (std::size_t s = 0; s < storages_.size(); ++s) {
      if ((storages_[s] & values).any()) sum += model_.storages[s].count;
    }
    return sum;
  }

  GradientBytes gradients(Bits state, std::size_t number) const {
    GradientBytes sum;
    for (std::size_t g = 0; g < model_.gradients.size(); ++g) {
      const std::vector<std::uint32_t>& makers = model_.makers_of[g];
      const bool exists = std::ranges::any_of(makers, [&](std::uint32_t o) { return state.has(*ops_[o].flag); });
      if (exists) {
        sum.existing += model_.gradients[g];
      } else if (std::ranges::find(makers, number) != makers.end()) {
        sum.fresh += model_.gradients[g];
        sum.any_fresh = true;
      }
    }
    return sum;
  }

  void expand(std::uint32_t from) {
    const Bits state = nodes_[from].state;
    const double time = nodes_[from].time;
    const Bits there = available(state);
    const Bits useful = needs(state).useful;
    for (std::size_t o = 0; o < ops_.size(); ++o) {
      const SearchOp& op = ops_[o];
      if (without(op.reads, there).any()) continue;
      const bool ran = op.flag && state.has(*op.flag);
      if (ran && op.once) continue;
      const bool first = op.flag && !ran;
      if (!first && !(op.all_makes & useful).any()) continue;
      const GradientBytes gradient_bytes = gradients(state, o);
      for (std::size_t w = 0; w < op.ways.size(); ++w) {
        if (!first && !without(op.ways[w].makes & useful, state).any()) continue;
        const Bytes beside = beside_values(model_, model_.ops[o], model_.ops[o].ways[w], gradient_bytes);
        run_op(from, state, time, o, w, budget_ - model_.resident - beside);
      }
    }
  }

  void run_op(std::uint32_t from, Bits state, double time, std::size_t o, std::size_t w, Bytes room) {
    const SearchOp& op = ops_[o];
    const SearchWay& way = op.ways[w];
    const Bits during = ((without(state, way.clears) | way.makes) & value_bits_) | op.reads | (way.clears & op.reads);
    std::int64_t excess = bytes(during) - room.count;
    Bits after = without(state | op.reads, way.clears) | way.makes;
    for (std::size_t v = 0; v < values_; ++v) {
      if (loaded_[v] && op.reads.has(v)) after.set(*loaded_[v]);
    }
    if (op.flag) after.set(*op.flag);
    const Arrival step{from, time + way.time, static_cast<std::uint16_t>(o), static_cast<std::uint8_t>(w)};
    if (excess <= 0) return visit(after, step.time, step.from, step.op, step.way);
    std::vector<std::size_t> droppable;
    const Bits fixed = op.reads | way.makes;
    for (std::size_t s = 0; s < storages_.size(); ++s) {
      const bool there = (storages_[s] & during).any();
      if (there && !(storages_[s] & fixed).any() && model_.storages[s].count > 0) droppable.push_back(s);
    }
    std::ranges::stable_sort(droppable, std::greater<>(), [&](std::size_t s) { return model_.storages[s].count; });
    std::vector<std::int64_t> rest(droppable.size() + 1, 0);
    for (std::size_t d = droppable.size(); d-- > 0;) rest[d] = rest[d + 1] + model_.storages[droppable[d]].count;
    drop_some(droppable, rest, 0, excess, after, step);
  }

  struct Arrival {
    std::uint32_t from = 0;
    double time = 0;
    std::uint16_t op = 0;
    std::uint8_t way = 0;
  };

  /// All sets of droppable storages that are just large enough; sizes fall, so that none in a set is superfluous.
  void drop_some(const std::vector<std::size_t>& droppable, const std::vector<std::int64_t>& rest, std::size_t next,
                 std::int64_t excess, Bits after, const Arrival& step) {
    if (excess <= 0) return visit(after, step.time, step.from, step.op, step.way);
    if (is_full()) return;
    for (std::size_t d = next; d < droppable.size() && rest[d] >= excess; ++d) {
      drop_some(droppable, rest, d + 1, excess - model_.storages[droppable[d]].count,
                without(after, storages_[droppable[d]]), step);
    }
  }

  void visit(Bits state, double time, std::uint32_t parent, std::uint16_t op, std::uint8_t way) {
    ++visits_;
    const Needs left = needs(state);
    if (left.time == std::numeric_limits<double>::infinity()) return;
    for (const Bits storage : storages_) {  // what nobody will read is dropped
      if (!(storage & left.useful).any()) state = without(state, storage);
    }
    std::uint32_t& slot = table_.find(state, nodes_);
    if (slot == StateTable::none) {
      slot = static_cast<std::uint32_t>(nodes_.size());
      nodes_.push_back({state, time, parent, op, way, false});
    } else {
      Node& known = nodes_[slot];
      if (known.time <= time || any_ || known.closed) return;
      known = {state, time, parent, op, way, false};
    }
    heap_.push_back({any_ ? left.time : time + left.time, time + left.time, time, slot});
    std::push_heap(heap_.begin(), heap_.end());
  }

  OpSequence sequence_to(std::uint32_t node) const {
    OpSequence sequence;
    for (; node != 0; node = nodes_[node].parent) {
      const ModelOp& op = model_.ops[nodes_[node].op];
      sequence.push_back({op.id, op.ways[nodes_[node].way].saving});
    }
    std::ranges::reverse(sequence);
    return sequence;
  }

  const OpModel& model_;
  Bytes budget_;
  SearchLimits limits_;
  bool any_;  ///< any schedule will do
  std::size_t values_;
  Bits value_bits_, inputs_;
  std::vector<std::optional<std::size_t>> loaded_;  // by value: the bit of an input
  std::vector<SearchOp> ops_;
  std::vector<Bits> storages_;
  std::vector<Node> nodes_;
  std::vector<HeapEntry> heap_;
  StateTable table_;
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> expanded_with_;  // by ops that have run
  std::size_t expanded_ = 0, visits_ = 0;
};

struct ExactOptions : LimitOptions {
  ExactOptions() { time_limit = 10; }
};

using End = SearchResult::End;

constexpr Bytes no_exact_limit{std::numeric_limits<std::int64_t>::max() / 4};

class Exact {
 public:
  Exact(const PartTask& task, const ExactOptions& options)
      : task_(task),
        model_(op_model(task)),
        limits_{.states = options.states, .seconds = static_cast<double>(options.time_limit)},
        heuristics_(task) {
    heuristics_.add(store_all_ops(task));
    add_greedy_segments(heuristics_, model_, Points::all);
    add_greedy_recompute(heuristics_, model_);
    Seconds once;
    for (const ModelOp& op : model_.ops) once += op.ways.front().time;
    const auto all = static_cast<double>(task.problem.micro_batches);
    updates_ = heuristics_.at(std::nullopt)->makespan.value - all * once.value;
    for (const ModelOp& op : model_.ops) {
      Seconds least = op.ways.front().time;
      if (op.ways.size() > 1 && op.sink) least = std::min(least, op.ways[1].time);
      work_ += least.value;
    }
  }

  std::vector<TapeOutcome> outcomes(std::span<const std::optional<Bytes>> budgets) {
    std::vector<Searched> searched;
    std::vector<std::optional<Bytes>> open;
    for (const std::optional<Bytes>& budget : budgets) {
      searched.push_back(search(budget.value_or(no_exact_limit)));
      if (!searched.back().ended) open.push_back(budget);
    }
    const std::vector<CheaperPlan> cheaper = ask_cheaper(open);
    std::vector<TapeOutcome> outcomes;
    std::size_t next = 0;
    for (Searched& each : searched) {
      outcomes.push_back(each.ended ? std::move(each.outcome) : better_of(std::move(each), cheaper[next++]));
    }
    return outcomes;
  }

  /// Those at which the answer changes, where the search ends within each; else a guess, too.
  std::vector<Bytes> candidates() {
    const Bends bends =
        bends_of([&](std::optional<Bytes> budget) { return search(budget.value_or(no_exact_limit)).outcome; });
    if (bends.are_all) return bends.budgets;
    find_smallest(limits_);
    Bytes least = least_->plan.peak;
    const std::optional<Bytes> nothing{Bytes{0}};
    const std::vector<CheaperPlan> none = ask_cheaper(std::span(&nothing, least_->proven() ? 0 : 1));
    for (const CheaperPlan& plan : none) {
      if (const auto* why = std::get_if<Infeasible>(&plan.outcome)) least = std::min(least, *why->smallest);
    }
    std::vector<Bytes> budgets = heuristics_.budgets();
    const Bytes most = budgets.back();
    std::ranges::copy(budgets_between(least, most, 32), std::back_inserter(budgets));
    std::ranges::copy(bends.budgets, std::back_inserter(budgets));
    return budgets;
  }

 private:
  /// What the search and the heuristics that it begins with say to a budget.
  struct Searched {
    bool ended = false;  ///< else a limit stopped it, and `outcome` is what is known
    TapeOutcome outcome;
    double bound = 0;     ///< seconds of one micro-batch
    std::string stopped;  ///< by which limit
  };

  Searched search(Bytes limit) {
    const Deadline deadline(limits_.seconds);
    const PlannedTape* known = heuristics_.at(limit);
    Searched result{false, Infeasible{"no schedule at all fits", std::nullopt}, work_, {}};
    if (known == nullptr) {
      find_smallest({limits_.states, deadline.left() / 2});
      result.outcome = Infeasible{"no schedule at all fits", least_->plan.peak, least_->proven()};
      result.stopped = stopped(least_->end);
      result.ended = least_->proven();
      if (limit < least_->below) return result;
      std::get<Infeasible>(result.outcome).reason = "no schedule that fits was found";
      if (least_->plan.peak <= limit) known = &least_->plan;
    }
    if (known != nullptr) {
      result.outcome = with_gap(*known, work_);
      result.ended = std::get<PlannedTape>(result.outcome).gap == 0.0;
    }
    if (!is_searchable(model_)) {
      result.stopped = stopped(End::out_of_states);
      return result;
    }
    const SearchResult found = fastest_schedule(model_, limit, {limits_.states, deadline.left()});
    result.bound = std::max(work_, found.bound.value);
    if (found.end == End::solved) {
      PlannedTape made = planned_ops(task_, found.sequence);
      EXPECTS(made.peak <= limit);
      made.gap = 0;
      return {true, std::move(made), 0, {}};
    }
    if (found.end != End::impossible) {
      result.stopped = stopped(found.end);
    } else if (known == nullptr) {
      std::get<Infeasible>(result.outcome).reason = "no schedule at all fits";
    }
    return result;
  }

  std::string stopped(End by) const {
    if (!is_searchable(model_)) {
      return fmt::format("not searched: {} values and ops that must run, the search takes {}", state_bits(model_),
                         most_state_bits);
    }
    if (by == End::out_of_time) return fmt::format("the search stopped after {} s (time_limit)", limits_.seconds);
    return fmt::format("the search stopped after {} states (states)", limits_.states);
  }

  std::vector<CheaperPlan> ask_cheaper(std::span<const std::optional<Bytes>> budgets) const {
    return budgets.empty() ? std::vector<CheaperPlan>{} : cheaper_plans(task_, budgets, limits_.seconds);
  }

  TapeOutcome better_of(Searched searched, const CheaperPlan& cheaper) const {
    TapeOutcome best = std::move(searched.outcome);
    const Infeasible* nothing = std::get_if<Infeasible>(&best);
    const std::string reason = nothing == nullptr ? std::string() : nothing->reason;
    const bool is_cheaper = keep_better(best, cheaper.outcome);
    if (Infeasible* none = std::get_if<Infeasible>(&best)) {
      none->reason = fmt::format("{}; {}", reason, searched.stopped);
      none->smallest_is_proven = *none->smallest <= least_->below;
      return best;
    }
    PlannedTape plan = with_gap(std::get<PlannedTape>(std::move(best)), searched.bound);
    plan.note =
        searched.stopped + "; " + (plan.note.empty() ? "" : plan.note + "; ") +
        (is_cheaper ? fmt::format("the plan is that of {}", cheaper.made_by) : "no cheaper method has a better plan");
    return plan;
  }

  double repeats() const { return static_cast<double>(task_.problem.micro_batches); }

  PlannedTape with_gap(PlannedTape plan, double bound) const {
    const double least = repeats() * bound + updates_;
    plan.gap = relative_gap(plan.makespan, Seconds{least});
    return plan;
  }

  void find_smallest(const SearchLimits& limits) {
    if (!least_) least_ = smallest_schedule(task_, model_, heuristics_, limits);
  }

  const PartTask& task_;
  OpModel model_;
  SearchLimits limits_;
  PlanPool heuristics_;
  double updates_ = 0, work_ = 0;  // seconds; work of one micro-batch
  std::optional<SmallestSchedule> least_;
};

constexpr auto exact_options = options_of<ExactOptions>(
    option_of<&LimitOptions::states>({
        .name = "states",
        .least = 1,
        .most = 100'000'000,
        .help = "stop the search for one budget after this many states (repeatable, unlike a time limit); the answer "
                "is then the best plan known, with its proven gap",
    }),
    option_of<&LimitOptions::time_limit>({
        .name = "time_limit",
        .least = 1,
        .most = 86'400,
        .values = "a whole number of seconds from 1 to 86400",
        .help = "stop the search for one budget after this time; the cheaper strategies run to their end, Checkmate's "
                "relaxations for as long again",
    }));

std::vector<TapeOutcome> exact_tapes(const PartTask& task, const ExactOptions& options,
                                     std::span<const std::optional<Bytes>> budgets, const Tape*) {
  if (const std::optional<std::string> why = not_one_part(task)) return refused(*why, budgets);
  return or_plain_training(task, budgets, Exact(task, options).outcomes(budgets));
}

std::vector<Bytes> exact_candidates(const PartTask& task, const ExactOptions& options) {
  std::vector<Bytes> budgets = Exact(task, options).candidates();
  budgets.push_back(plain_training_peak(task));
  return budgets;
}

}  // namespace

std::size_t state_bits(const OpModel& model) {
  std::size_t bits = model.values.size();
  for (const ModelValue& value : model.values) bits += value.maker ? 0 : 1;
  for (const ModelOp& op : model.ops) bits += op.once || op.sink ? 1 : 0;
  return bits;
}

SearchResult fastest_schedule(const OpModel& model, Bytes budget, const SearchLimits& limits) {
  return Search(model, budget, limits, false).run();
}

SearchResult any_schedule(const OpModel& model, Bytes budget, const SearchLimits& limits) {
  return Search(model, budget, limits, true).run();
}

Bytes least_imaginable(const OpModel& model) {
  Bytes least = model.resident + model.all_gradients;
  for (const ModelOp& op : model.ops) {
    Bytes smallest{std::numeric_limits<std::int64_t>::max()};
    for (const OpWay& way : op.ways) {
      std::vector<std::uint32_t> touched = op.reads;
      touched.insert(touched.end(), way.makes.begin(), way.makes.end());
      std::vector<std::uint32_t> storages;
      Bytes sum = model.resident + std::min(way.workspace, op.makes_gradient ? op.accumulate_workspace : way.workspace);
      for (const std::uint32_t v : touched) {
        const std::uint32_t s = model.values[v].storage;
        if (std::ranges::find(storages, s) != storages.end()) continue;
        storages.push_back(s);
        sum += model.storages[s];
      }
      smallest = std::min(smallest, sum);
    }
    least = std::max(least, smallest);
  }
  return least;
}

SmallestSchedule smallest_schedule(const PartTask& task, const OpModel& model, const PlanPool& known,
                                   const SearchLimits& limits) {
  const Deadline deadline(limits.seconds);
  Bytes low = least_imaginable(model);
  SmallestSchedule least{*known.at(known.least()), low, End::solved};
  if (!is_searchable(model)) {
    if (low < least.plan.peak) least.end = End::out_of_states;
    return least;
  }
  while (low < least.plan.peak) {
    const Bytes middle{low.count + (least.plan.peak.count - low.count) / 2};
    const SearchResult found = any_schedule(model, middle, {limits.states, deadline.left()});
    if (found.end == End::solved) {
      least.plan = planned_ops(task, found.sequence);
      EXPECTS(least.plan.peak <= middle);
    } else {
      low = middle + Bytes{1};
      if (found.end != End::impossible) least.end = found.end;
      if (least.proven()) least.below = low;
    }
  }
  return least;
}

extern constinit const StrategyInfo exact_strategy{
    .name = "exact",
    .family = Family::rematerialization,
    .summary = "the fastest of all recomputations of a graph or chain, by search over sets of resident values",
    .source = "own; A* after Hart, Nilsson, Raphael, 1968",
    .options = exact_options,
    .kind = TapeStrategy{.tapes = by_options<exact_tapes>, .candidates = by_options<exact_candidates>},
    .effort = {.stages = 40, .ops = 80, .trials = {.problems = 100, .stride = 3, .stages = 5, .ops = 8}},
};

}  // namespace plimsoll
