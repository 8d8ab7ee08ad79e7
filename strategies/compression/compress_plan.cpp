// The strategy `compress_plan`: for each saved value a number of bits, recomputation or a copy to the host, for the
// least time within a budget and a bound on the error of all gradients. Own; that bits should differ by what they cost
// in error is from Chen et al., ActNN (ICML 2021), and Liu et al., GACT (ICML 2022), which give bits to a budget of
// bits, without time. Of chains: form_plans.h.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "sim/core/tolerance.h"
#include "sim/model/same_tape.h"
#include "strategies/api/front.h"
#include "strategies/api/own_moves.h"
#include "strategies/compression/cut_plans.h"
#include "strategies/compression/form_plans.h"
#include "strategies/list.h"
#include "strategies/models/chain_part.h"
#include "strategies/models/op_sequence.h"
#include "strategies/models/part_alone.h"
#include "strategies/offloading/activations/offload_bound.h"
#include "strategies/offloading/activations/offload_options.h"
#include "strategies/rematerialization/policies/greedy_recompute.h"

namespace plimsoll {
namespace {

struct CompressPlanOptions : OwnMovesOptions {
  double error = 0.1;
  bool recompute = true;
};

constexpr Codec bits_of_plan(std::uint32_t bits) {
  return {.kind = CodecKind::quantize, .bits = bits, .group = 256, .group_bytes = 8};
}
constexpr std::array codecs_of_plan{bits_of_plan(8), bits_of_plan(4), bits_of_plan(2)};

/// How many levels of memory are planned for, and prices of the whole squared error, in iteration times.
constexpr std::uint32_t levels_of_plan = 24;
constexpr std::array prices_of_plan{0.0, 0.1, 1.0};
constexpr std::array prices_of_stages{0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0};

/// Above so many positions of the tape levels and neighbours are sought for the asked bound on the error alone; and not
/// at all: there cuts alone choose.
constexpr std::size_t few_positions = 64, many_positions = 1000;

/// Where there are no cuts, with more positions values of plain training leave whole.
constexpr std::size_t most_positions = 5000;

/// Above so many stages rotor and the recursion over stages take too long.
constexpr std::size_t most_stages = 250;

/// Of `effort` at so much a position: at least one, at most `most`.
std::size_t affordable(std::size_t effort, const OffloadModel& model, std::size_t most) {
  return std::clamp<std::size_t>(effort / std::max<std::size_t>(model.positions(), 1), 1, most);
}

class CompressPlanner {
 public:
  CompressPlanner(const PartTask& task, const OffloadModel& model, const CompressPlanOptions& options,
                  const Tape* before)
      : task_(task),
        model_(model),
        before_(before),
        recomputes_(options.recompute && before == nullptr && !not_one_part(task)),
        offloads_(options.offload != OwnMoves::no && model.has_host),
        largest_error_(options.error),
        saved_(saved_tensors(task.problem.graph, model)),
        packed_(task.problem.graph, saved_, codecs_of_plan, task.problem.platform[task.part().device]),
        joint_(packed_),
        ops_(recomputes_ ? std::optional(op_model(task)) : std::nullopt) {
    if (ops_) joint_.offer_recomputation(model, *ops_);
    if (before == nullptr && !not_one_part(task) && task.problem.micro_batches == 1) {
      cuts_.emplace(task, model, CutPlansRules{codecs_of_plan, errors(true), recomputes_, offloads_});
      if (recomputes_) once_.emplace(task, model, CutPlansRules{codecs_of_plan, errors(true), false, offloads_});
    }
  }

  /// What is tried without recomputation is tried beside it, too, so that it is never better.
  void search() {
    if (cuts_ && has_many_positions()) {
      FormPlans plans(task_, model_, saved_, packed_, nullptr, largest_error_);
      plans.allow(largest_error_);
      for (const std::vector<std::uint32_t>& forms : same_everywhere()) plans.add(forms);
      pools_.push_back(std::move(plans).pool());
      return;
    }
    search(packed_, {.recomputes = false});
    if (recomputes_) search(joint_, {.recomputes = true});
  }

  std::vector<TapeOutcome> outcomes(std::span<const std::optional<Bytes>> budgets, std::string_view reason) {
    std::vector<TapeOutcome> best = pools_.front().outcomes(budgets, reason);
    if (pools_.size() > 1) keep_better(best, pools_.back().outcomes(budgets, reason));
    for (std::optional<CutPlans>* cuts : {&cuts_, &once_}) {
      for (std::size_t b = 0; b < budgets.size() && *cuts; ++b) {
        if (!budgets[b]) continue;
        const PlannedTape* plan = std::get_if<PlannedTape>(&best[b]);
        const PlannedTape* cut = (*cuts)->best(*budgets[b], plan ? std::optional(plan->makespan) : std::nullopt);
        if (cut != nullptr) best[b] = *cut;
      }
    }
    keep_better_of_others(best, budgets);
    for (std::size_t b = 0; b < budgets.size(); ++b) {
      if (PlannedTape* tape = std::get_if<PlannedTape>(&best[b])) {
        tape->gap.reset();  // of one way alone
        if (cuts_ && budgets[b]) tape->gap = relative_gap(tape->makespan, cuts_->bound(*budgets[b]));
        continue;
      }
      auto& none = std::get<Infeasible>(best[b]);
      none = {std::string(reason), none.smallest, false};
    }
    return best;
  }

  /// Budgets at which the answer may change.
  std::vector<Bytes> candidates() const {
    std::vector<Bytes> budgets;
    for (const Front& pool : pools_) {
      const std::vector<Bytes> more = pool.budgets();
      budgets.insert(budgets.end(), more.begin(), more.end());
    }
    if (cuts_) {
      const std::vector<Bytes> more = cuts_->budgets();
      budgets.insert(budgets.end(), more.begin(), more.end());
    }
    std::vector<const StrategyInfo*> others = recomputing();
    if (offloads_) others.push_back(&offload_greedy_strategy);
    for (const StrategyInfo* strategy : others) {
      const std::vector<Bytes> more = strategy->candidates(task_, Options(strategy->options));
      budgets.insert(budgets.end(), more.begin(), more.end());
    }
    std::ranges::sort(budgets);
    return budgets;
  }

 private:
  bool has_many_positions() const { return model_.positions() > many_positions; }

  /// Of the methods that pack nothing, or offload a packed tape, where they may be faster.
  void keep_better_of_others(std::vector<TapeOutcome>& best, std::span<const std::optional<Bytes>> budgets) {
    std::vector<std::size_t> asked;
    for (std::size_t b = 0; b < budgets.size(); ++b) {
      const PlannedTape* plan = std::get_if<PlannedTape>(&best[b]);
      const bool none_is_faster = cuts_ && has_many_positions() && plan != nullptr && budgets[b] &&
                                  plan->makespan <= cuts_->bound_unpacked(*budgets[b]);
      if (!none_is_faster) asked.push_back(b);
    }
    if (asked.empty()) return;
    std::vector<std::optional<Bytes>> of_these;
    for (const std::size_t b : asked) of_these.push_back(budgets[b]);
    const auto ask = [&](const StrategyInfo& strategy, const Options& options, const Tape* before) {
      std::vector<TapeOutcome> others = strategy.tapes(task_, options, of_these, before);
      for (std::size_t k = 0; k < asked.size(); ++k) keep_better(best[asked[k]], std::move(others[k]));
    };
    // Where it needs to be asked, `snapshot` asks greedy_recompute.
    const bool asks_snapshot = before_ == nullptr && cuts_ && recomputes_;
    if (!asks_snapshot || !has_many_positions()) {
      for (const StrategyInfo* strategy : recomputing()) ask(*strategy, Options(strategy->options), nullptr);
    }
    const Options offload(offload_greedy_strategy.options);
    Options whole = offload, few_levels = offload;
    whole.change<OffloadOptions>().chunks = 1;
    few_levels.change<OffloadOptions>() = {{.chunks = 1}, 8};
    const bool may_be_coarse = !cuts_ && model_.positions() > most_positions;
    if (offloads_) ask(offload_greedy_strategy, may_be_coarse ? whole : offload, before_);
    for (const Tape& tape : to_offload_) {
      ask(offload_greedy_strategy, has_many_positions() ? few_levels : offload, &tape);
    }
    if (!asks_snapshot) return;
    Options exact(snapshot_strategy.options);
    exact.change<OwnMovesOptions>().offload = offloads_ ? OwnMoves::yes : OwnMoves::no;
    ask(snapshot_strategy, exact, nullptr);
  }

  /// Rotor and the recursion over stages can be asked.
  bool is_short_chain() const { return task_.problem.chain && task_.problem.chain->stages.size() <= most_stages; }

  /// Of few ops for rising bounds on the error, each on top of what the ones before have left: a greater one of these
  /// is never worse.
  void search(const KeptForms& kept_forms, const StageEffort& effort) {
    FormPlans plans(task_, model_, saved_, kept_forms, effort.recomputes ? &*ops_ : nullptr, largest_error_);
    for (const std::vector<std::uint32_t>& forms : same_everywhere()) plans.add(forms);
    if (is_short_chain() && before_ == nullptr && !not_one_part(task_)) {
      const ChainPart part = chain_part(task_.problem, task_.part());
      for (const PackedStages& plan : stage_plans(task_, model_, saved_, packed_, prices(prices_of_stages), effort)) {
        plans.add(chain_tape(task_.problem, task_.partition, task_.id, part, plan.sequence), plan.forms);
      }
    }
    const auto levels = static_cast<std::uint32_t>(affordable(24'000, model_, levels_of_plan));
    for (const double error : errors(model_.positions() <= few_positions)) {
      plans.allow(error);
      const bool one_price = effort.recomputes && has_many_positions();
      for (const double price : prices(one_price ? std::span(prices_of_plan).subspan(1, 1) : prices_of_plan)) {
        for (const auto& forms : forms_of_levels(kept_forms, model_, levels, error * error, price)) plans.add(forms);
      }
      plans.improve(affordable(20'000, model_, 100));
      offload_some(plans.pool());
    }
    pools_.push_back(std::move(plans).pool());
  }

  /// As the methods that know one number of bits, or none.
  std::vector<std::vector<std::uint32_t>> same_everywhere() const {
    std::vector<std::vector<std::uint32_t>> all(1, std::vector<std::uint32_t>(packed_.size(), 0));
    std::vector<std::optional<Codec>> codecs{std::nullopt};
    codecs.insert(codecs.end(), codecs_of_plan.begin(), codecs_of_plan.end());
    for (const std::optional<Codec>& codec : codecs) {
      std::vector<std::uint32_t>& forms = all.emplace_back();
      for (std::size_t i = 0; i < packed_.size(); ++i) forms.push_back(packed_.form_of(i, codec));
    }
    return all;
  }

  /// Seconds for the whole squared error.
  std::vector<double> prices(std::span<const double> of_iteration) const {
    Seconds all;
    for (const Seconds time : model_.time) all += time;
    std::vector<double> prices;
    for (const double price : of_iteration) prices.push_back(price * all.value);
    return prices;
  }

  /// Up to the asked one 0 and 1, 2 and 5 times the powers of 10 from the least error that there is on; or the asked
  /// one alone.
  std::vector<double> errors(bool series) const {
    if (!series) return {largest_error_};
    double least = largest_error_;
    for (std::size_t i = 0; i < packed_.size(); ++i) {
      for (const KeptForm& form : packed_[i].forms) {
        if (form.square > 0) least = std::min(least, std::sqrt(form.square));
      }
    }
    std::vector<double> errors{0};
    for (double power = 1e-6; power < 100; power *= 10) {
      for (const double error : {power, 2 * power, 5 * power}) {
        if (least <= error && error < (1 - model_tolerance) * largest_error_) errors.push_back(error);
      }
    }
    if (least < largest_error_) errors.push_back(largest_error_);
    return errors;
  }

  /// Whose answers without an error are never to be better.
  std::vector<const StrategyInfo*> recomputing() const {
    if (!recomputes_) return {};
    if (is_short_chain()) return {&rotor_strategy};  // asks greedy_recompute, too
    return {&greedy_recompute_strategy};
  }

  /// Some of the pool, from the least memory to the most.
  void offload_some(const Front& pool) {
    if (!offloads_) return;
    const std::vector<Bytes> peaks = pool.budgets();
    const std::size_t count = std::min<std::size_t>(has_many_positions() ? 1 : 3, peaks.size());
    for (std::size_t k = 0; k < count; ++k) {
      const Tape& tape = pool.at(peaks[k * peaks.size() / count])->tape;
      const auto is_that = [&](const Tape& other) { return same(tape, other); };
      if (std::ranges::none_of(to_offload_, is_that)) to_offload_.push_back(tape);
    }
  }

  const PartTask& task_;
  const OffloadModel& model_;
  const Tape* before_;
  bool recomputes_, offloads_;
  double largest_error_;
  std::vector<SavedTensor> saved_;
  KeptForms packed_, joint_;  // the same forms, and last of the second's: made again
  std::optional<OpModel> ops_;
  std::vector<Front> pools_;  // without recomputation, and with it
  std::vector<Tape> to_offload_;
  std::optional<CutPlans> cuts_;  // of the one part of a problem with one micro-batch
  std::optional<CutPlans> once_;  // the same where no op repeats, beside, so that this alone is never better
};

constexpr auto compress_plan_options = options_of<CompressPlanOptions>(
    option_of<&CompressPlanOptions::error>({
        .name = "error",
        .least = 0.000001,
        .most = 10,
        .values = "a number from 0.000001 to 10",
        .help = "the largest relative error of all gradients as one vector, as `gradient_error` predicts it",
    }),
    option_of<&CompressPlanOptions::recompute>({
        .name = "recompute",
        .words = "no yes",
        .values = "yes or no",
        .help = "whether values may be recomputed for the backward; no where the pass before has chosen which",
    }),
    option_of<&OwnMovesOptions::offload>({
        .name = "offload",
        .words = "auto yes no",
        .help = "whether values may go to the host, packed or not; none do where the device has no host; auto: unless "
                "an offloading pass after this one moves them",
    }));

std::vector<TapeOutcome> compress_plan_tapes(const PartTask& task, const CompressPlanOptions& options,
                                             std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  if (is_part_alone(task.problem.graph)) {
    return refused("a part of a pipeline does not know the effect of an error on the gradients of the others", budgets);
  }
  const std::variant<OffloadModel, std::string> made = offload_model(task, before);
  if (const std::string* why = std::get_if<std::string>(&made)) return refused(*why, budgets);
  const auto& model = std::get<OffloadModel>(made);
  refuse_if_unfit("compress_plan", task.problem.graph, saved_tensors(task.problem.graph, model), "all",
                  codecs_of_plan.front());
  CompressPlanner planner(task, model, options, before);
  planner.search();
  const std::string reason = fmt::format("no choice that was tried needs less with an error of {}", options.error);
  return planner.outcomes(budgets, reason);
}

std::vector<Bytes> compress_plan_candidates(const PartTask& task, const CompressPlanOptions& options) {
  const std::variant<OffloadModel, std::string> made = offload_model(task, nullptr);
  if (std::holds_alternative<std::string>(made)) return {};
  CompressPlanner planner(task, std::get<OffloadModel>(made), options, nullptr);
  planner.search();
  return planner.candidates();
}

}  // namespace

extern constinit const StrategyInfo compress_plan_strategy{
    .name = "compress_plan",
    .family = Family::compression,
    .summary =
        "keeps each saved value in 8, 4, 2 or all its bits, on the host or not at all, for the least time within a "
        "bound on gradients' error",
    .source = "own; bits by their cost: Chen et al., ActNN, ICML 2021; Liu et al., GACT, ICML 2022",
    .options = compress_plan_options,
    .kind =
        TapeStrategy{
            .tapes = by_options<compress_plan_tapes>,
            .candidates = by_options<compress_plan_candidates>,
            .packs_stages = true,
        },
};

}  // namespace plimsoll
