#include "strategies/offloading/snapshot/snapshot_plans.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "sim/bound/snapshot_cut.h"
#include "sim/bound/trade_pieces.h"
#include "sim/core/expects.h"
#include "sim/core/tolerance.h"
#include "sim/measure/lower_bounds.h"
#include "strategies/api/front.h"
#include "strategies/models/chain_pass.h"
#include "strategies/models/fullest_moment.h"
#include "strategies/models/recompute_order.h"

namespace plimsoll {
namespace {

/// What repairs of models of some thousand ops come to, of plain training's time: those above are in vain.
constexpr double most_before_shortening = 1.6;

/// 1, 2.5 or 5 times a power of ten, at least that.
std::int64_t round_step(std::int64_t least) {
  std::int64_t step = 1;
  while (10 * step < least) step *= 10;
  if (step >= least) return step;
  if (step >= 10 && step / 10 * 25 >= least) return step / 10 * 25;
  return 5 * step >= least ? 5 * step : 10 * step;
}

/// Of the ops up to 16 places from those.
std::uint32_t most_proving(const PartTask& task, const OpModel& model, std::span<const std::uint32_t> instants) {
  constexpr std::int64_t farthest = 16;
  const Bytes half{plain_training_peak(task).count / 2};
  const SnapshotModel seen = snapshot_model(task.problem, task.part().device, {.one_call = false});
  std::uint32_t best = instants.front();
  Seconds most{-1};
  for (std::uint32_t o = 0; o < model.ops.size(); ++o) {
    const auto is_near = [&](std::uint32_t of) { return std::abs(std::int64_t{of} - std::int64_t{o}) <= farthest; };
    if (!seen.ops[model.ops[o].id.index].is_there || std::ranges::none_of(instants, is_near)) continue;
    const Seconds extra = SnapshotCuts(seen, instant_at(seen, model.ops[o].id)).bound(half).extra;
    if (extra <= most) continue;
    most = extra;
    best = o;
  }
  return best;
}

}  // namespace

/// From the trade that keeps all downwards. An order is taken if half of what is above the memory that a trade is for
/// goes away.
std::optional<OrderedPart> ordered_part(const PartTask& given, std::span<const std::uint32_t> instants) {
  constexpr double less = 0.5;
  int left = 3;  // trades for which there is none
  OrderedPart found{given.partition, most_proving(given, op_model(given), instants)};
  std::vector<OpId>& order = found.partition.parts[given.id.index].ops;
  const OpId at = order[found.instant];
  const PartTask task{given.problem, found.partition, given.id, given.in_flight};
  std::optional<SnapshotPlans> plans(std::in_place, task, found.instant, 1);
  for (std::size_t k = plans->bends().size(); k-- > 0;) {
    const Bytes level = plans->beside() + plans->bends()[k].kept;
    const std::optional<OpSequence> trade = plans->sequence_of(plans->bends()[k].again);
    if (!trade) break;
    const SequenceMemory memory(plans->model(), *trade);
    if (memory.peak() <= level) continue;
    const OpSequence moved = memory.rearranged(level);
    const bool helps = SequenceMemory(plans->model(), moved).above(level) <= less * memory.above(level);
    if (!helps && --left == 0) break;
    if (!helps) continue;
    order.clear();
    std::set<OpId> seen;
    for (const OpRun& run : moved) {
      if (seen.insert(run.op).second) order.push_back(run.op);
    }
    found.instant = static_cast<std::uint32_t>(std::ranges::find(order, at) - order.begin());
    plans.emplace(task, found.instant, 1);
  }
  return order != given.part().ops ? std::optional(std::move(found)) : std::nullopt;
}

std::vector<std::uint32_t> snapshot_instants(const PartTask& task) {
  const OpModel model = op_model(task);
  const auto fullest = static_cast<std::uint32_t>(fullest_moment(model, store_all_ops(task)).run);
  const auto last = static_cast<std::uint32_t>(last_forward(model));
  if (fullest == last) return {last};
  return {fullest, last};
}

SnapshotPlans::SnapshotPlans(const PartTask& task, std::uint32_t instant, std::int64_t effort)
    : task_(task),
      effort_(effort),
      model_(op_model(task)),
      instant_(instant),
      front_(task, model_, instant_),
      plain_(plan_of(store_all_ops(task))) {
  const std::vector<SnapshotBend>& bends = front_.bends();
  for (std::size_t k = 0; k + 1 < bends.size(); ++k) parts_.push_back(parts_of(bends[k].again, bends[k + 1].again));
  const std::vector<MemoryOfRun> memory = memory_of_runs(model_, plain_.sequence);
  if (!memory.empty()) beside_ = memory[instant_].during - bends.back().kept;
  floor_with_copies_ = std::max(lower_bounds(task.problem, 1).memory, front_.at_instant());
  floor_ = std::max(floor_with_copies_, front_.least());
  find_levels();
}

double SnapshotPlans::seconds_of(const std::vector<std::uint32_t>& part) const {
  double sum = 0;
  for (const std::uint32_t o : part) sum += seconds_again(model_.ops[o]);
  return sum;
}

/// Ops that the first runs again and the second does not, in pieces that have nothing to do with each other, longest
/// first.
std::vector<std::vector<std::uint32_t>> SnapshotPlans::parts_of(const Again& less, const Again& more) const {
  std::vector<bool> in(model_.ops.size());
  for (std::size_t o = 0; o < in.size(); ++o) in[o] = less[o] && !more[o];
  std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
  for (const ModelValue& value : model_.values) {
    if (!value.maker || !in[*value.maker]) continue;
    for (const std::uint32_t reader : value.readers) pairs.emplace_back(*value.maker, reader);
  }
  std::vector<std::vector<std::uint32_t>> parts = pieces_of(in, pairs);
  std::ranges::stable_sort(parts, [&](const auto& a, const auto& b) { return seconds_of(a) > seconds_of(b); });
  return parts;
}

/// The order in which pieces are kept: the longest first; or, for pieces that run again in groups, the latest and then
/// the last of each group before the others, since what the backward reads first has the least room to be made again.
std::vector<std::size_t> SnapshotPlans::order_of(const std::vector<std::vector<std::uint32_t>>& parts,
                                                 std::size_t group) const {
  std::vector<std::size_t> order(parts.size());
  std::iota(order.begin(), order.end(), 0);
  if (group == 0) return order;
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return parts[a].back() > parts[b].back(); });
  std::vector<bool> first(parts.size(), false);
  for (std::size_t at = 0; at < order.size(); ++at) first[order[at]] = at == 0 || (order.size() - at) % group == 0;
  std::stable_partition(order.begin(), order.end(), [&](std::size_t k) { return first[k]; });
  return order;
}

/// Pieces of the next trades that there is room for are kept, in that order.
void SnapshotPlans::keep_pieces(KeptBytes& now, Bytes kept, std::size_t bend, std::size_t group) const {
  for (std::size_t k = bend; k < parts_.size(); ++k) {
    for (const std::size_t each : order_of(parts_[k], group)) keep_piece(now, kept, parts_[k][each]);
  }
}

void SnapshotPlans::keep_piece(KeptBytes& now, Bytes kept, const std::vector<std::uint32_t>& piece) const {
  if (!std::ranges::all_of(piece, [&](std::uint32_t o) { return now.again()[o]; })) return;
  for (const std::uint32_t o : piece) now.set(o, false);
  if (now.kept() <= kept) return;
  for (const std::uint32_t o : piece) now.set(o, true);
}

/// Of the pieces of so many trades from that one on those of the most seconds that there is room for.
void SnapshotPlans::keep_worthiest(KeptBytes& now, Bytes kept, std::size_t bend, std::size_t trades) const {
  std::vector<const std::vector<std::uint32_t>*> pieces;
  for (std::size_t k = bend; k < std::min(bend + trades, parts_.size()); ++k) {
    for (const std::vector<std::uint32_t>& piece : parts_[k]) pieces.push_back(&piece);
  }
  std::vector<PieceWorth> worth;
  for (const std::vector<std::uint32_t>* piece : pieces) {
    const Bytes before = now.kept();
    for (const std::uint32_t o : *piece) now.set(o, false);
    worth.push_back({(now.kept() - before).count, seconds_of(*piece)});
    for (const std::uint32_t o : *piece) now.set(o, true);
  }
  for (const std::size_t k : worthiest(worth, (kept - now.kept()).count)) keep_piece(now, kept, *pieces[k]);
}

Again SnapshotPlans::again_within(Bytes kept, std::size_t group) const {
  const std::vector<SnapshotBend>& bends = front_.bends();
  const auto above = std::ranges::upper_bound(bends, kept, {}, &SnapshotBend::kept);
  const std::size_t bend = above == bends.begin() ? 0 : static_cast<std::size_t>(above - bends.begin()) - 1;
  if (reaches(Seconds{bends[bend].seconds}, front_.again(beside_ + kept))) return bends[bend].again;
  KeptBytes least(model_, instant_);
  least.set_all(bends[bend].again);
  KeptBytes best = least;
  keep_pieces(best, kept, bend, group);
  if (group > 0) return best.again();
  for (const std::size_t trades : {1, 2, 3}) {
    KeptBytes now = least;
    keep_worthiest(now, kept, bend, trades);
    keep_pieces(now, kept, bend, group);
    if (now.seconds() < best.seconds()) best = std::move(now);
  }
  return best.again();
}

std::optional<OpSequence> SnapshotPlans::sequence_of(const Again& again) const {
  Evicted evicted(model_.values.size(), false);
  for (std::uint32_t o = 0; o < model_.ops.size(); ++o) {
    if (!again[o]) continue;
    for (const std::uint32_t v : model_.ops[o].ways.front().makes) evicted[v] = true;
  }
  return recompute_order_at(model_, evicted, instant_);
}

/// Decides anew what is kept where memory is above the budget, from the first such place on. Nothing, too, where that
/// takes longer than `most`.
std::optional<SequenceMemory> SnapshotPlans::repaired(OpSequence sequence, Bytes budget, double share,
                                                      Seconds most) const {
  constexpr int most_cuts = 64;
  for (int k = 0; k < most_cuts; ++k) {
    SequenceMemory memory(model_, sequence);
    const std::optional<std::size_t> full = memory.fullest_above(budget);
    if (!full) return memory;
    if (memory.seconds() > most) return std::nullopt;
    std::optional<OpSequence> changed = memory.cut_at(*full, budget, share);
    if (!changed) return std::nullopt;
    sequence = *std::move(changed);
  }
  return std::nullopt;
}

/// Without the repeated runs that it does not need.
SequencedTape SnapshotPlans::shortened(SequenceMemory& fits, Bytes budget) const {
  fits.leave_out(budget);
  SequencedTape plan = plan_of(fits.sequence());
  EXPECTS(plan.peak <= budget);
  return plan;
}

/// Of sums that are too low the next are asked for as much less.
std::optional<SequencedTape> SnapshotPlans::in_segments(Bytes budget) {
  constexpr int most_rounds = 4;
  if (!segments_) segments_.emplace(model_, instant_, front_.bends());
  std::optional<SequencedTape> best;
  for (const bool from_kept : {true, false}) {
    Bytes asked = budget;
    for (int round = 0; round < most_rounds; ++round) {
      const std::optional<Again> again = segments_->within(asked, from_kept);
      if (!again) break;
      const std::optional<OpSequence> sequence = sequence_of(*again);
      if (!sequence) break;
      SequenceMemory memory(model_, *sequence);
      if (best && memory.seconds() > 1.03 * best->makespan) break;
      if (memory.peak() <= budget) {
        keep_faster(best, std::optional(shortened(memory, budget)));
        break;
      }
      asked -= memory.peak() - budget;
      const Seconds most = 1.1 * (best ? best->makespan : memory.seconds());
      keep_faster(best, fitting(*sequence, budget, most));
    }
  }
  return best;
}

std::optional<SequencedTape> SnapshotPlans::within(Bytes budget) {
  struct Start {
    std::size_t group;
    double part;  // of the room at the instant
  };
  constexpr std::array<Start, 12> starts{
      {{0, 1}, {2, 1}, {3, 1}, {4, 1}, {6, 1}, {8, 1}, {12, 1}, {16, 1}, {0, 0.96}, {0, 0.9}, {0, 0.8}, {0, 0.6}}};
  std::optional<SequencedTape> best;
  if (budget < fits_from_ && is_middling() && has_segments_) best = in_segments(budget);
  std::vector<Again> tried;
  int worse = 0;
  for (const auto& [group, part] : starts) {
    if (part < 1 && !is_small()) break;
    const double room = part * static_cast<double>((budget - beside_).count);
    Again again = again_within(Bytes{static_cast<std::int64_t>(room)}, group);
    if (std::ranges::find(tried, again) != tried.end()) continue;
    const std::optional<OpSequence> made = sequence_of(again);
    tried.push_back(std::move(again));
    if (!made) continue;
    SequenceMemory memory(model_, *made);
    const bool fits = memory.peak() <= budget;
    Seconds most{std::numeric_limits<double>::infinity()};
    if (is_middling() && !is_small()) most = most_before_shortening * plain_.makespan;
    if (best) most = 1.03 * best->makespan;
    const bool is_best = fits && reaches(memory.seconds(), front_.once() + front_.again(budget));
    std::optional<SequencedTape> plan = is_best ? std::optional(plan_of(*made))
                                        : fits  ? std::optional(shortened(memory, budget))
                                                : fitting(*made, budget, most);
    if (!plan && is_middling() && !is_small()) break;  // as what follows will, too
    if (!plan) continue;
    const bool is_better = !best || plan->makespan < best->makespan;
    worse = is_better ? 0 : worse + 1;
    if (is_better) best = std::move(plan);
    if ((fits && part == 1) || (worse == 3 && !is_small())) break;
  }
  return best;
}

std::optional<SequencedTape> SnapshotPlans::fitting(const OpSequence& sequence, Bytes budget, Seconds most) const {
  for (const double share : {1.0, 0.8, 0.6}) {
    std::optional<SequenceMemory> fits = repaired(sequence, budget, share, most);
    if (fits) return shortened(*fits, budget);
  }
  return std::nullopt;
}

SequencedTape SnapshotPlans::plan_of(const OpSequence& sequence) const {
  return {planned_ops(task_, sequence), sequence};
}

Seconds SnapshotPlans::time_before() const {
  Seconds sum;
  for (std::uint32_t o = 0; o < instant_; ++o) sum += model_.ops[o].ways.front().time;
  return sum;
}

Seconds SnapshotPlans::work_with(const Again& again) const {
  Seconds sum;
  for (std::uint32_t o = 0; o < model_.ops.size(); ++o) {
    sum += Seconds{(again[o] ? 2 : 1) * seconds_again(model_.ops[o])};
  }
  return sum;
}

const SequencedTape* SnapshotPlans::at_level(std::size_t level) {
  const auto [at, is_new] = planned_.try_emplace(level);
  if (is_new) at->second = within(levels_[level]);
  return at->second ? &*at->second : nullptr;
}

Bytes SnapshotPlans::least(Bytes most) {
  Bytes least = std::min(most, plain_.peak);
  for (std::size_t level = 0; level < levels_.size() && (is_small() || levels_[level] < most); ++level) {
    const SequencedTape* plan = at_level(level);
    if (plan == nullptr) continue;
    least = std::min(least, is_small() ? plan->peak : levels_[level]);
    if (!is_small() || levels_[level] >= fits_from_) break;
  }
  return least;
}

/// No plan within the budget is faster.
bool SnapshotPlans::is_enough(Seconds found, Bytes budget) const {
  return front_.bound(budget) >= found || (others_ && others_(budget) >= found);
}

const SequencedTape* SnapshotPlans::best(std::optional<Bytes> budget, Seconds known) {
  if (!budget || *budget >= plain_.peak) return &plain_;
  if (*budget < floor_) return nullptr;
  const SequencedTape* best = nullptr;
  const auto end = std::ranges::upper_bound(levels_, *budget) - levels_.begin();
  for (auto level = static_cast<std::size_t>(end); level-- > 0;) {
    if (is_enough(best != nullptr ? std::min(best->makespan, known) : known, levels_[level])) break;
    const SequencedTape* plan = at_level(level);
    if (plan != nullptr && (best == nullptr || plan->makespan < best->makespan)) best = plan;
  }
  // Plans of levels above may fit, too.
  for (auto level = static_cast<std::size_t>(end); is_small() && level < levels_.size(); ++level) {
    if (levels_[level] > fits_from_) break;
    const SequencedTape* plan = at_level(level);
    if (plan == nullptr || plan->peak > *budget) continue;
    if (best == nullptr || plan->makespan < best->makespan) best = plan;
  }
  return best;
}

/// Of the ops that run again in the smallest plan's cut the first with which there is no order.
std::optional<OpId> SnapshotPlans::stuck() const {
  const Again& all = front_.bends().front().again;
  if (sequence_of(all)) return std::nullopt;
  std::size_t low = 0, high = all.size();
  while (high - low > 1) {
    const std::size_t middle = low + (high - low) / 2;
    Again some(all);
    std::fill(some.begin() + static_cast<std::ptrdiff_t>(middle), some.end(), false);
    (sequence_of(some) ? low : high) = middle;
  }
  return model_.ops[high - 1].id;
}

std::vector<Bytes> SnapshotPlans::budgets() {
  constexpr std::size_t few = 500;
  if (levels_.size() > few && model_.ops.size() > few) {
    std::vector<Bytes> budgets;
    for (const SnapshotBend& bend : front_.bends()) {
      if (beside_ + bend.kept >= fits_from_) budgets.push_back(beside_ + bend.kept);
    }
    budgets.push_back(plain_.peak);
    return budgets;
  }
  FrontOf<std::size_t> front;
  front.add(plain_.peak, plain_.makespan, 0);
  for (const SnapshotBend& bend : front_.bends()) {
    if (const SequencedTape* plan = best(beside_ + bend.kept)) front.add(plan->peak, plan->makespan, 0);
  }
  const SequencedTape* smallest = best(least(plain_.peak));
  front.add(smallest->peak, smallest->makespan, 0);
  if (levels_.size() > few) return front.budgets();
  for (const Bytes level : levels_) {
    if (const SequencedTape* plan = best(level)) front.add(plan->peak, plan->makespan, 0);
  }
  return front.budgets();
}

/// Close to each other where every trade of the front is a plan as it is; few below, where plans are repaired.
void SnapshotPlans::find_levels() {
  const auto fine = static_cast<std::uint32_t>(192 * effort_);
  std::vector<std::int64_t> coarse{(is_small() ? 60 : 20) * effort_};
  if (is_middling() && !is_small()) coarse.push_back(60 * effort_);
  const std::vector<SnapshotBend>& bends = front_.bends();
  const auto level_of = [&](const SnapshotBend& bend) { return beside_ + bend.kept; };
  const auto is_plan = [&](const SnapshotBend& bend) {
    const std::optional<OpSequence> sequence = sequence_of(bend.again);
    return sequence && SequenceMemory(model_, *sequence).peak() <= level_of(bend);
  };
  const auto lowest = std::ranges::partition_point(bends, [&](const SnapshotBend& bend) { return !is_plan(bend); });
  const auto add = [&](Bytes from, Bytes to, std::uint32_t most) {
    if (from >= to) return;
    const auto count = static_cast<std::uint32_t>(std::min<std::int64_t>(most, (to - from).count));
    const std::vector<Bytes> between = budgets_between(from, to, count);
    levels_.insert(levels_.end(), between.begin(), between.end());
  };
  fits_from_ = lowest == bends.end() ? plain_.peak : level_of(*lowest);
  for (const std::int64_t some : coarse) {
    const std::int64_t step = round_step((fits_from_ - level_of(bends.front())).count / some + 1);
    for (std::int64_t k = level_of(bends.front()).count / step; Bytes{k * step} < fits_from_; ++k) {
      levels_.push_back(std::max(Bytes{k * step}, level_of(bends.front())));
    }
  }
  for (auto bend = lowest; bend != bends.end() && std::next(bend) != bends.end(); ++bend) {
    add(level_of(*bend), level_of(*std::next(bend)), fine);
  }
  if (lowest != bends.end()) levels_.push_back(level_of(bends.back()));
  constexpr std::int64_t apart = 2000;  // of plain training's memory
  const std::int64_t round = round_step(plain_.peak.count / apart + 1);
  for (std::int64_t k = fits_from_.count / round + 1; Bytes{k * round} < plain_.peak; ++k) {
    levels_.push_back(Bytes{k * round});
  }
  std::erase_if(levels_, [&](Bytes level) { return level < floor_; });
  std::ranges::sort(levels_);
  levels_.erase(std::unique(levels_.begin(), levels_.end()), levels_.end());
}

}  // namespace plimsoll
