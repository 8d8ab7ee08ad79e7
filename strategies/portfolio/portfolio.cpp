// The strategy `portfolio`: asks every method that trains exactly, alone and composed, improves the best of their plans
// by local moves, and takes the fastest within the budget. For those who do not want to choose.

#include <fmt/format.h>

#include <algorithm>

#include "sim/core/tolerance.h"
#include "sim/io/input_error.h"
#include "sim/measure/lower_bounds.h"
#include "strategies/api/front.h"
#include "strategies/list.h"
#include "strategies/portfolio/portfolio_members.h"
#include "strategies/portfolio/portfolio_moves.h"
#include "strategies/portfolio/portfolio_options.h"

namespace plimsoll {
namespace {

using Budgets = std::span<const std::optional<Bytes>>;

constexpr std::int64_t portfolio_levels = 4;   // fixed budgets whose best plans are improved
constexpr std::int64_t trials_at_effort = 40;  // simulations a level
constexpr std::int64_t front_points = 32;
constexpr double near_enough = 0.001;  // of the best of all that recompute and offload

bool host_is_there(const PartTask& task) {
  return memory_at(task.problem.platform, task.part().device, place::host).has_value();
}

/// What no schedule can beat: without a host nothing can leave the device.
LowerBounds bounds_of(const PartTask& task) {
  return lower_bounds(task.problem, 1, host_is_there(task) ? Stays::nothing : Stays::all);
}

/// Between the largest working set and the peak of plain training, whatever is asked: so that an improved plan serves
/// every budget that it fits, and less memory is never faster.
std::vector<Bytes> fixed_levels(const PartTask& task) {
  const std::optional<Bytes> unlimited;
  const TapeOutcome plain =
      store_all_strategy.tapes(task, Options(store_all_strategy.options), std::span(&unlimited, 1), nullptr).front();
  const Bytes least = bounds_of(task).memory, most = std::get<PlannedTape>(plain).peak;
  if (least >= most) return {};
  std::vector<Bytes> budgets = budgets_between(least, most, portfolio_levels);
  std::ranges::reverse(budgets);
  return budgets;
}

class Portfolio {
 public:
  Portfolio(const PartTask& task, std::int64_t effort, MembersFor target, Budgets asked)
      : task_(task),
        effort_(effort),
        target_(target),
        bound_(bounds_of(task).time()),
        has_alternatives_(
            std::ranges::any_of(task.problem.graph.ops, [](const Op& op) { return !op.alternatives.empty(); })),
        has_updates_(
            std::ranges::any_of(task.problem.graph.ops, [](const Op& op) { return op.phase == Phase::update; })) {
    for (const std::optional<Bytes>& budget : asked) rows_.emplace_back().budget = budget;
    if (effort > 0 && !is_large_graph(is_chain(), size(), effort)) {
      for (const Bytes budget : fixed_levels(task)) rows_.emplace_back().budget = budget;
    }
    first_level_ = asked.size();
  }

  std::vector<TapeOutcome> run() {
    const std::vector<Member> members = portfolio_members(is_chain(), size(), effort_, target_);
    ask(members.front(), 0, first_level_);
    ask(members.front(), first_level_, rows_.size());
    for (const bool last_resort : {false, true}) {
      for (const Member& member : std::span(members).subspan(1)) {
        if (member.last_resort == last_resort) ask(member, 0, rows_.size());
      }
    }
    improve();
    std::vector<TapeOutcome> outcomes;
    for (std::size_t r = 0; r < first_level_; ++r) outcomes.push_back(outcome(rows_[r]));
    return outcomes;
  }

 private:
  struct Row {
    std::optional<Bytes> budget;
    std::optional<PlannedTape> best = {};
    std::size_t by = 0;  ///< which candidate the best is
    std::vector<Candidate> candidates = {};
    std::optional<Seconds> bound = {};  ///< of the schedules within this budget, where it is more than for all
    bool near = false;                  ///< `snapshot` proves its plan to be near enough to the best
  };

  bool is_chain() const { return task_.problem.chain.has_value(); }
  std::size_t size() const { return is_chain() ? task_.problem.chain->stages.size() : task_.problem.graph.ops.size(); }

  /// Nobody can be faster.
  bool is_settled(const Row& row) const { return row.near || (row.best && reaches(row.best->makespan, bound_)); }

  bool all_asked_are_settled() const {
    return std::all_of(rows_.begin(), rows_.begin() + static_cast<std::ptrdiff_t>(first_level_),
                       [&](const Row& row) { return is_settled(row); });
  }

  /// For rows [first, last). Those beside the asked ones need no answer once these are settled.
  void ask(const Member& member, std::size_t first, std::size_t last) {
    std::vector<std::size_t> open;
    std::vector<std::optional<Bytes>> budgets;
    const bool none_is_open = all_asked_are_settled();
    for (std::size_t r = first; r < last; ++r) {
      if (!member.reason.empty() || none_is_open || is_settled(rows_[r])) continue;
      if (member.last_resort && rows_[r].best) continue;
      open.push_back(r);
      budgets.push_back(rows_[r].budget);
    }
    std::string reason = member.reason;
    if (reason.empty())
      reason = none_is_open ? "not asked: no plan can be much faster" : "not asked: so large a graph takes long";
    std::vector<TapeOutcome> outcomes;
    try {
      if (!open.empty()) outcomes = judged_tapes_of_passes(task_, member.passes, budgets);
    } catch (const InputError& error) {  // it cannot treat the problem: others can
      reason = error.what();
      open.clear();
    }
    for (std::size_t r = first; r < last; ++r) rows_[r].candidates.push_back({member.spec, std::nullopt, reason});
    for (std::size_t k = 0; k < open.size(); ++k) note(rows_[open[k]], std::move(outcomes[k]), member);
  }

  void note(Row& row, TapeOutcome outcome, const Member& member) {
    Candidate& candidate = row.candidates.back();
    if (const Infeasible* none = std::get_if<Infeasible>(&outcome)) {
      candidate.reason = none->smallest ? fmt::format("needs {} B", none->smallest->count) : none->reason;
      if (needs_less(*none, none_)) none_.smallest = none->smallest;
      return;
    }
    auto& made = std::get<PlannedTape>(outcome);
    candidate.makespan = made.makespan;
    candidate.reason.clear();
    // The search over all schedules without copies: a bound on all where there is nowhere to copy to.
    if (member.spec == "exact" && made.gap && !host_is_there(task_) && !has_alternatives_) {
      row.bound = std::max(row.bound.value_or(Seconds{0}), 1 / (1 + *made.gap) * made.makespan);
    }
    if (member.spec == "snapshot" && made.gap && !has_updates_) {
      row.near = *made.gap <= near_enough;
      if (row.near) row.bound = 1 / (1 + *made.gap) * made.makespan;  // nobody else is asked for one
    }
    if (keep_faster(row.best, std::optional(std::move(made)))) row.by = row.candidates.size() - 1;
  }

  struct Improved {
    PlannedTape tape;
    std::string from;
  };

  void improve() {
    if (all_asked_are_settled()) return;
    for (std::size_t r = first_level_; r < rows_.size(); ++r) {
      const Row& row = rows_[r];
      if (!row.best || !row.budget || is_settled(row)) continue;
      PlannedTape made = improved(task_, *row.best, *row.budget, trials_at_effort * effort_,
                                  target_ == MembersFor::pytorch ? "1" : "4");
      if (!(made.makespan < row.best->makespan)) continue;
      none_.smallest = std::min(none_.smallest.value_or(made.peak), made.peak);
      improved_.push_back({std::move(made), row.candidates[row.by].strategy});
    }
  }

  TapeOutcome outcome(Row& row) {
    for (Improved& each : improved_) {
      if (row.near || (row.budget && each.tape.peak > *row.budget)) continue;
      row.candidates.push_back({each.from + ", improved", each.tape.makespan, ""});
      if (keep_faster(row.best, std::optional(each.tape))) row.by = row.candidates.size() - 1;
    }
    if (!row.best) return none_;
    row.candidates[row.by].taken = true;
    const Seconds bound = std::max(bound_, row.bound.value_or(bound_));
    row.best->gap = std::nullopt;
    if (bound > Seconds{0}) row.best->gap = std::max(0.0, row.best->makespan / bound - 1);
    row.best->candidates = std::move(row.candidates);
    return std::move(*row.best);
  }

  const PartTask& task_;
  std::int64_t effort_;
  MembersFor target_;
  Seconds bound_;
  bool has_alternatives_, has_updates_;
  std::size_t first_level_ = 0;
  std::vector<Row> rows_;  // those asked, the levels
  std::vector<Improved> improved_;
  Infeasible none_{"none of the strategies it asked has a plan", std::nullopt};
};

constexpr auto portfolio_options = options_of<PortfolioOptions>(
    option_of<&PortfolioOptions::effort>({
        .name = "effort",
        .least = 0,
        .most = 100,
        .help = "how much work to spend (repeatable, unlike seconds): scales the sizes up to which searches and "
                "integer programs run, their nodes and states, and the number of local moves; 0: only strategies that "
                "are fast at any size",
    }),
    option_of<&PortfolioOptions::for_pytorch>({
        .name = "target",
        .words = "any pytorch",
        .help = "pytorch: only strategies whose plans PyTorch runs: parameters, gradients and updates stay where they "
                "are, and values move whole; what 'plan --for pytorch' asks for",
    }),
    option_of<&PortfolioOptions::eight_bit>({
        .name = "eight_bit",
        .words = "no yes",
        .help = "yes: every strategy is also asked with 8-bit states (adam8bit), which do not train exactly as 32-bit "
                "states; only where 'simulate' or 'plan' asks portfolio alone",
    }));

std::vector<TapeOutcome> portfolio_tapes(const PartTask& task, const PortfolioOptions& options, Budgets budgets,
                                         const Tape*) {
  if (task.partition.parts.size() > 1 || task.in_flight > 1) {
    throw InputError("portfolio: works on one device and the whole graph only");
  }
  if (options.eight_bit) {
    throw InputError(
        "portfolio: eight_bit=yes is for 'simulate' and 'plan' with portfolio alone: elsewhere begin with adam8bit");
  }
  const MembersFor target = options.for_pytorch ? MembersFor::pytorch : MembersFor::any;
  std::vector<TapeOutcome> outcomes = Portfolio(task, options.effort, target, budgets).run();
  const Platform& platform = task.problem.platform;
  if (platform.devices.size() == 1) return outcomes;
  for (TapeOutcome& outcome : outcomes) {
    PlannedTape* made = std::get_if<PlannedTape>(&outcome);
    if (made == nullptr) continue;
    made->note += fmt::format("{}uses 1 of {} devices", made->note.empty() ? "" : "; ", platform.devices.size());
  }
  return outcomes;
}

std::vector<Bytes> portfolio_candidates(const PartTask& task, const PortfolioOptions& options) {
  const std::vector<std::optional<Bytes>> ends{std::nullopt, Bytes{0}};
  const std::vector<TapeOutcome> outcomes = portfolio_tapes(task, options, ends, nullptr);
  const Bytes most = std::get<PlannedTape>(outcomes[0]).peak;
  const Infeasible* none = std::get_if<Infeasible>(&outcomes[1]);
  const Bytes least = none != nullptr && none->smallest ? std::min(*none->smallest, most) : most;
  std::vector<Bytes> budgets = budgets_between(least, most, front_points);
  budgets.push_back(most);
  return budgets;
}

}  // namespace

extern constinit const StrategyInfo portfolio_strategy{
    .name = "portfolio",
    .family = Family::baseline,
    .summary = "asks every strategy that trains exactly, alone and composed, and improves the best plan by local moves",
    .source = "none: a choice among the other strategies",
    .options = portfolio_options,
    .kind = TapeStrategy{.tapes = by_options<portfolio_tapes>, .candidates = by_options<portfolio_candidates>},
    .effort = {.trials = {.problems = 5, .stride = 7, .stages = 3, .ops = 4}},
};

}  // namespace plimsoll
