#include "strategies/compression/cut_plans.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "sim/bound/kept_ways.h"
#include "sim/codec/predicted_error.h"
#include "sim/core/codec.h"
#include "sim/core/expects.h"
#include "sim/io/input_error.h"
#include "sim/lower/lowering.h"
#include "strategies/compression/packing.h"
#include "strategies/models/op_sequence.h"
#include "strategies/models/recompute_order.h"
#include "strategies/offloading/activations/offload_moves.h"
#include "strategies/offloading/snapshot/leaving_items.h"

namespace plimsoll {
namespace {

constexpr Codec signs_of_cut_plans{.kind = CodecKind::mask, .bits = 1};
constexpr Seconds never_fits{std::numeric_limits<double>::infinity()};

/// Levels one after the other for which there is no plan: below them it is not tried.
constexpr int most_misses = 3;

/// What is restored stays for a use that comes so many positions later at most: for another gradient of a layer that
/// read it three times.
constexpr std::uint32_t stays_restored = 16;

/// Of many ops the search ends after so many plans in a row that are no faster.
constexpr std::size_t many_ops = 1000;
constexpr int patience_with_many = 4;

/// Where an error is above its bound, it is tried again with less.
constexpr int most_trials_with_copies = 3;

/// So many levels of memory up to what plain training needs, up to two and a half times as many.
constexpr std::int64_t fewest_cut_levels = 200;

/// Of a bound on the squared error: so much less is tried than what a plan misses it by.
constexpr double shy = 0.001;

bool takes_signs(const Graph& graph, const SavedUse& use) {
  const Op& op = graph[use.op];
  return op.uses.empty() ? reads_packed(op, signs_of_cut_plans) : serves(signs_of_cut_plans, use.layer_use());
}

}  // namespace

CutPlans::CutPlans(const PartTask& task, const OffloadModel& plain, CutPlansRules rules)
    : task_(task),
      plain_(plain),
      rules_(std::move(rules)),
      ops_(op_model(task)),
      codecs_(rules_.codecs.begin(), rules_.codecs.end()),
      instant_(static_cast<std::uint32_t>(last_forward(ops_))),
      model_op_(task.problem.graph.ops.size()) {
  EXPECTS(!rules_.errors.empty() && task.problem.micro_batches == 1);
  codecs_.push_back(signs_of_cut_plans);
  for (std::uint32_t o = 0; o < ops_.ops.size(); ++o) model_op_[ops_.ops[o].id.index] = o;
  still_ = cuts_of(BytesPerSecond{});
  const bool moves = rules_.offloads && plain.has_host;
  all_leaves_ = moves && plain.out.bandwidth == unlimited_bandwidth;
  if (moves && !all_leaves_) moving_ = cuts_of(plain.out.bandwidth);
  const Bytes most = std::ranges::max(plain.memory);
  while (10 * step_ * fewest_cut_levels <= most.count) step_ *= 10;
  for (const std::int64_t times : {5, 2}) {
    if (times * step_ * fewest_cut_levels > most.count) continue;
    step_ *= times;
    break;
  }
}

std::unique_ptr<CutPlans::Cuts> CutPlans::cuts_of(BytesPerSecond out) const {
  const DeviceId device = task_.part().device;
  auto cuts = std::make_unique<Cuts>();
  cuts->model = snapshot_model(task_.problem, device, {.codecs = codecs_, .out = out, .one_call = false});
  for (SnapshotOp& op : cuts->model.ops) op.once |= !rules_.recomputes;
  const Instant instant = instant_at(cuts->model, ops_.ops[instant_].id);
  KeptWays ways = kept_ways(cuts->model, instant, device, rules_.codecs);
  KeptWays exact = ways;
  for (KeptValue& value : exact.values) value.ways.resize(1);
  cuts->exact = std::make_unique<PackedCuts>(cuts->model, instant, std::move(exact));
  KeptWays sure = ways;
  bool differ = false;
  for (std::size_t v = 0; v < ways.values.size(); ++v) {
    for (std::size_t w = 0; w < ways.values[v].ways.size(); ++w) {
      KeptWay& way = ways.values[v].ways[w];
      if (!ways.errors_add_up) sure.values[v].ways[w].square = 0;
      way.square = way.likely;
      differ |= way.square != sure.values[v].ways[w].square;
    }
  }
  if (differ) cuts->proven = std::make_unique<PackedCuts>(cuts->model, instant, std::move(sure));
  cuts->packed = std::make_unique<PackedCuts>(cuts->model, instant, std::move(ways));
  return cuts;
}

const PackedBound& CutPlans::packed_bound(Cuts& cuts, Bytes budget, double square) {
  const auto [asked, is_new] = cuts.asked.try_emplace({budget, square});
  if (is_new) asked->second = cuts.packed->bound(budget, square);
  return asked->second;
}

Seconds CutPlans::time_bound(Cuts& cuts, Bytes budget, double square) {
  const auto [asked, is_new] = cuts.times.try_emplace({budget, square});
  if (is_new) {
    const PackedBound found = cuts.proven ? cuts.proven->bound(budget, square) : packed_bound(cuts, budget, square);
    asked->second = found.needs ? never_fits : cuts.model.base + found.extra;
  }
  return asked->second;
}

bool CutPlans::is_slower(Cuts& cuts, Bytes budget, double square, std::optional<Seconds> than) {
  const PackedCuts& sure = cuts.proven ? *cuts.proven : *cuts.packed;
  if (than && cuts.model.base + sure.known(budget, square) >= *than) return true;
  const Seconds bound = time_bound(cuts, budget, square);
  return bound == never_fits || (than && bound >= *than);
}

Seconds CutPlans::exact_bound(Cuts& cuts, Bytes budget) {
  const auto [asked, is_new] = cuts.exact_times.try_emplace(budget);
  if (is_new) {
    const PackedBound found = cuts.exact->bound(budget, 0);
    asked->second = found.needs ? never_fits : cuts.model.base + found.extra;
  }
  return asked->second;
}

Seconds CutPlans::bound(Bytes budget) {
  if (all_leaves_) return still_->model.base;
  const double most = rules_.errors.back();
  return time_bound(cuts(moving_ != nullptr), budget, most * most);
}

Seconds CutPlans::bound_unpacked(Bytes budget) {
  if (all_leaves_) return still_->model.base;
  return exact_bound(cuts(moving_ != nullptr), budget);
}

std::optional<KeptChoice> CutPlans::choice(Cuts& cuts, Bytes budget, double square) {
  const double room = cuts.packed->room(budget);
  if (!(room >= 0)) return std::nullopt;
  const PackedBound& bound = packed_bound(cuts, budget, square);
  return best_choice(*cuts.packed, bound, {room, square});
}

/// Runs again what the choice says, each op right before what first needs it, and packs what waits at the instant.
std::optional<Tape> CutPlans::tape_of(const PackedCuts& cuts, const KeptChoice& choice) const {
  const Graph& graph = task_.problem.graph;
  Evicted evicted(ops_.values.size(), false);
  for (std::uint32_t o = 0; o < graph.ops.size(); ++o) {
    if (!choice.again(o) || !model_op_[o]) continue;
    for (const std::uint32_t v : ops_.ops[*model_op_[o]].ways.front().makes) evicted[v] = true;
  }
  const std::optional<OpSequence> sequence = recompute_order_at(ops_, evicted, instant_);
  if (!sequence) return std::nullopt;
  Tape tape = tape_of_ops(task_.problem.graph, *sequence);
  std::vector<const KeptWay*> way_in(graph.storages, nullptr);
  for (const std::uint32_t v : cuts.values()) {
    if (!choice.is_kept(v) || choice.way(v) == 0) continue;
    way_in[graph[cuts.model().values[v].tensor].storage.index] = &cuts.ways().values[v].ways[choice.way(v)];
  }
  const auto made = offload_model(task_, &tape);
  const auto* model = std::get_if<OffloadModel>(&made);
  if (model == nullptr) return std::nullopt;
  const auto codec_of = [&](const SavedTensor& saved, const SavedUse& use) -> std::optional<Codec> {
    const KeptWay* way = way_in[graph[saved.tensor].storage.index];
    if (way == nullptr || saved.from >= model->turn || !is_backward(graph[use.op].phase)) return std::nullopt;
    return way->signs && takes_signs(graph, use) ? std::optional(signs_of_cut_plans) : way->codec;
  };
  PackingChoice packing = CodecChoice(codec_of);
  packing.stays = stays_restored;
  return packed_tape(graph, *model, saved_tensors(graph, *model), packing);
}

double CutPlans::error_of(const Tape& tape) const {
  const std::variant<Schedule, std::string> lowered = lower(task_.problem, task_.partition, std::span(&tape, 1));
  if (const std::string* why = std::get_if<std::string>(&lowered)) throw InputError(*why);
  return predicted_errors(std::get<Schedule>(lowered), task_.problem.graph).whole;
}

/// With less room where memory is fuller elsewhere, and less error where errors do more together than alone.
std::optional<PlannedTape> CutPlans::without_copies(const Question& question, KeptChoice choice) {
  constexpr int most_trials = 6;
  Cuts& cuts = *still_;
  const double most = rules_.errors[question.error];
  Bytes budget = question.level;
  double square = most * most;
  for (int trial = 0; trial < most_trials; ++trial) {
    std::optional<Tape> tape = tape_of(*cuts.packed, choice);
    if (!tape) return std::nullopt;
    std::optional<PlannedTape> plan = simulated_tape(task_, plain_, *std::move(tape));
    const double error = plan ? error_of(plan->tape) : 0;
    if (plan && plan->peak <= question.level && error <= most) return plan;
    if (plan && plan->peak > question.level) budget -= plan->peak - question.level;
    if (error > most) square *= (1 - shy) * (most / error) * (most / error);
    std::optional<KeptChoice> less = CutPlans::choice(cuts, budget, square);
    if (!less) return std::nullopt;
    choice = *std::move(less);
  }
  return std::nullopt;
}

/// With a share of what could be kept or could leave, the best of several.
std::optional<PlannedTape> CutPlans::with_copies(const Question& question, KeptChoice most_kept, double square,
                                                 int trials) {
  struct Placed {
    OffloadModel model;
    std::vector<OffloadMove> moves;
    Seconds makespan;
  };
  Cuts& cuts = *moving_;
  std::optional<Placed> best;
  double best_share = 0;
  const double room = cuts.packed->room(question.level);
  const auto attempt = [&](double share) {
    std::optional<KeptChoice> choice = most_kept;
    if (share < 1) {
      const Bytes less{static_cast<std::int64_t>((1 - share) * room)};
      choice = CutPlans::choice(cuts, question.level - less, square);
    }
    if (!choice || (best && cuts.model.base.value + choice->seconds() >= best->makespan.value)) return;
    const std::optional<Tape> tape = tape_of(*cuts.packed, *choice);
    if (!tape) return;
    std::variant<OffloadModel, std::string> made = offload_model(task_, &*tape);
    OffloadModel* model = std::get_if<OffloadModel>(&made);
    if (model == nullptr) return;
    const std::optional<std::vector<OffloadItem>> leaving = leaving_items(*model, plain_.out, question.level);
    if (!leaving) return;
    std::optional<PlacedCopies> copies = placed_items(*model, *leaving, question.level);
    if (!copies || (best && best->makespan <= copies->makespan)) return;
    best = Placed{std::move(*model), std::move(copies->moves), copies->makespan};
    best_share = share;
  };
  for (const double share : {1.0, 0.97, 0.93, 0.86, 0.7, 0.5}) attempt(share);
  for (const double step : {0.015, 0.006}) {
    const double middle = best_share;
    if (!best) break;
    attempt(middle - step);
    if (middle + step <= 1) attempt(middle + step);
  }
  if (!best) return std::nullopt;
  std::optional<PlannedTape> plan = planned_moves(task_, best->model, best->moves);
  if (!plan || plan->peak > question.level) return std::nullopt;
  const double most = rules_.errors[question.error], error = error_of(plan->tape);
  if (error <= most) return plan;
  const double less = square * (1 - shy) * (most / error) * (most / error);
  std::optional<KeptChoice> choice = CutPlans::choice(cuts, question.level, less);
  if (!choice || trials == 1) return std::nullopt;
  return with_copies(question, *std::move(choice), less, trials - 1);
}

const PlannedTape* CutPlans::answer(const Question& question, std::optional<Seconds> than) {
  Cuts& cuts = this->cuts(question.copies);
  const double square = rules_.errors[question.error] * rules_.errors[question.error];
  if (!answers_.contains(question)) {
    const auto larger = answers_.find({question.copies, question.error + 1, question.level});
    if (larger != answers_.end() && larger->second.choice && larger->second.choice->square() <= square) {
      return this->answer(larger->first, than);  // it has so little error as it is
    }
  }
  const auto [found, is_new] = answers_.try_emplace(question);
  Answer& answer = found->second;
  if (is_new) answer.choice = choice(cuts, question.level, square);
  if (!answer.choice) return nullptr;
  if (than && cuts.model.base.value + answer.choice->seconds() >= than->value) return nullptr;
  if (!std::exchange(answer.is_planned, true)) {
    answer.plan = question.copies ? with_copies(question, *answer.choice, square, most_trials_with_copies)
                                  : without_copies(question, *answer.choice);
  }
  return answer.plan ? &*answer.plan : nullptr;
}

void CutPlans::search(bool copies, Bytes budget, const PlannedTape*& best, std::optional<Seconds> than) {
  const auto reached = [&] { return best != nullptr ? std::optional(best->makespan) : than; };
  const bool has_many = task_.problem.graph.ops.size() > many_ops;
  for (std::size_t error = rules_.errors.size(); error-- > 0;) {
    const double square = rules_.errors[error] * rules_.errors[error];
    int misses = 0, waited = 0;
    bool any = false, faster = false;
    for (std::int64_t level = budget.count / step_; level > 0 && misses < most_misses; --level) {
      const Bytes memory{level * step_};
      if (is_slower(cuts(copies), memory, square, reached())) break;
      any = true;
      const Question question{copies, error, memory};
      const PlannedTape* plan = answer(question, reached());
      const bool is_faster = plan != nullptr && (!reached() || plan->makespan < *reached());
      if (is_faster) best = plan;
      faster |= is_faster;
      waited = is_faster ? 0 : waited + 1;
      if (has_many && waited >= patience_with_many) break;
      const auto found = answers_.find(question);
      const bool has_none = found != answers_.end() && (!found->second.choice || found->second.has_none());
      misses = has_none ? misses + 1 : 0;
    }
    if (!any || (has_many && !faster)) return;  // with a smaller error nothing is faster
  }
}

const PlannedTape* CutPlans::best(Bytes budget, std::optional<Seconds> than) {
  const PlannedTape* best = nullptr;
  if (moving_) search(true, budget, best, than);
  search(false, budget, best, than);
  return best;
}

std::vector<Bytes> CutPlans::budgets() const {
  constexpr std::int64_t most = 100;
  const std::int64_t levels = std::ranges::max(plain_.memory).count / step_;
  const std::int64_t every = 1 + levels / most;
  std::vector<Bytes> budgets;
  for (std::int64_t level = levels; level > 0; level -= every) budgets.push_back(Bytes{level * step_});
  std::ranges::reverse(budgets);
  return budgets;
}

}  // namespace plimsoll
