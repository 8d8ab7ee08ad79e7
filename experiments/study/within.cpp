#include "experiments/study/within.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "sim/core/expects.h"
#include "sim/io/quantity.h"

namespace plimsoll {
namespace {

/// Of the device that has the least left of its budget.
struct Fullest {
  std::size_t device;
  Bytes need, limit;
};

/// Its allocator has no more than there is, or than its settings let it have.
std::optional<Bytes> limit_of(bool is_reserved, const Memory& memory, const Answer& answer, std::size_t device) {
  std::optional<Bytes> limit = answer.budget ? answer.budget : memory.capacity;
  if (!is_reserved) return limit;
  const std::optional<OutOfMemory>& failed = answer.reserved[device].out_of_memory;
  for (const std::optional<Bytes>& other : {memory.capacity, failed ? std::optional(failed->limit) : std::nullopt}) {
    if (other) limit = std::min(limit.value_or(*other), *other);
  }
  return limit;
}

std::optional<Fullest> fullest(Within within, const Platform& platform, const Answer& answer) {
  std::optional<Fullest> found;
  for (std::size_t d = 0; d < platform.devices.size(); ++d) {
    const bool is_reserved = within == Within::reserved;
    const std::optional<Bytes> limit = limit_of(is_reserved, platform[platform.devices[d].memory], answer, d);
    const Bytes need = is_reserved ? answer.reserved[d].reserved : answer.guaranteed[d];
    if (limit && (!found || need - *limit > found->need - found->limit)) found = {d, need, *limit};
  }
  return found;
}

/// By how much it is too much; nothing where it fits, or is unlimited.
std::optional<Bytes> excess(Within within, const Platform& platform, const Answer& answer) {
  if (within == Within::live) return std::nullopt;
  const std::optional<Fullest> found = fullest(within, platform, answer);
  if (!found || found->need <= found->limit) return std::nullopt;
  return found->need - found->limit;
}

class Search {
 public:
  Search(const Question& question, const Problem& problem, Answer first)
      : question_(question), problem_(problem), first_(std::move(first)), solve_s_(first_.solve_s) {
    above_ = first_.metrics->peak;
  }

  Answer run(Bytes too_much) {
    Bytes live = above_ - too_much;
    for (int plans = 1; plans < most_plans; ++plans) {
      const std::optional<Bytes> less = ask(live);
      if (!less) break;
      live = *less;
    }
    Answer made = best_ ? std::move(*best_) : nothing_fits();
    made.budget = first_.budget;
    made.solve_s = solve_s_;
    return made;
  }

 private:
  static constexpr int most_plans = 12;
  static constexpr std::int64_t close_enough = 256;  ///< of the distance, relative to what was too much

  /// What to ask for next; nothing: it is enough.
  std::optional<Bytes> ask(Bytes live) {
    Answer made = planned(std::max(live, Bytes{1}));
    if (!made.schedule) {
      if (best_ || has_asked_least_ || !made.smallest_feasible || *made.smallest_feasible >= above_)
        return std::nullopt;
      has_asked_least_ = true;
      return made.smallest_feasible;
    }
    const Bytes peak = made.metrics->peak;
    made.budget = first_.budget;
    if (const std::optional<Bytes> too_much = excess(question_.within, problem_.platform, made)) {
      above_ = std::min({above_, peak, live});
      if (!best_) return has_asked_least_ ? std::nullopt : std::optional(above_ - *too_much);
    } else {
      take(std::move(made), live);
    }
    if (above_.count - fits_.count <= above_.count / close_enough) return std::nullopt;
    return Bytes{fits_.count + (above_.count - fits_.count) / 2};
  }

  Answer planned(Bytes live) {
    const std::optional<Bytes> budget = live;
    Answer made = std::move(answer(question_, problem_, std::span(&budget, 1)).front());
    solve_s_ += made.solve_s;
    return made;
  }

  void take(Answer made, Bytes live) {
    fits_ = live;
    if (best_ && best_->metrics->makespan <= made.metrics->makespan) return;
    made.schedule->budget = first_.budget;
    // All that fit have at most the first one's live bytes, so none of them is faster than its bound.
    const Seconds first = first_.metrics->makespan, found = made.metrics->makespan;
    made.gap = first_.gap ? std::optional(std::max(0.0, (1 + *first_.gap) * (found / first) - 1)) : std::nullopt;
    made.note += fmt::format("{}planned with {} of live bytes, so that the {} ones fit", made.note.empty() ? "" : "; ",
                             format_bytes(live), written(question_.within));
    best_ = std::move(made);
  }

  /// In words what the first plan needs.
  Answer nothing_fits() {
    refuse_beyond(question_.within, problem_.platform, first_);
    Answer made = planned(Bytes{1});
    made.outcome = first_.outcome;
    made.reason = fmt::format("{}; nor does a plan with fewer live bytes", first_.reason);
    made.smallest_feasible.reset();
    made.smallest_by.clear();
    return made;
  }

  const Question& question_;
  const Problem& problem_;
  Answer first_;
  Bytes above_, fits_;  ///< live bytes that are too many; those of the last plan that fits
  std::optional<Answer> best_;
  bool has_asked_least_ = false;
  double solve_s_;
};

}  // namespace

void refuse_beyond(Within within, const Platform& platform, Answer& answer) {
  if (!excess(within, platform, answer)) return;
  const Fullest most = *fullest(within, platform, answer);
  const std::string& name = platform.devices[most.device].name;
  answer.outcome = within == Within::reserved ? Outcome::out_of_memory : Outcome::infeasible;
  answer.reason =
      within == Within::reserved
          ? fmt::format("its allocator reserves {} B of {}, above {} B", most.need.count, name, most.limit.count)
          : fmt::format("by another timing it keeps {} B on {}, above {} B", most.need.count, name, most.limit.count);
}

Answer answer_within(const Question& question, const Problem& problem, std::optional<Bytes> budget,
                     double transform_s) {
  Answer first = std::move(answer(question, problem, std::span(&budget, 1), transform_s).front());
  if (!first.schedule) return first;
  const std::optional<Bytes> too_much = excess(question.within, problem.platform, first);
  if (!too_much) return first;
  return Search(question, problem, std::move(first)).run(*too_much);
}

namespace {

bool is_better(const Answer& plan, const Answer& made) {
  return !made.feasible() || plan.metrics->makespan < made.metrics->makespan;
}

/// The plan of a smaller budget in place of what was made for a larger one, with what is proven there.
Answer carried(const Answer& plan, const Answer& made) {
  Answer taken = plan;
  taken.budget = made.budget;
  taken.schedule->budget = made.budget;
  taken.solve_s = made.solve_s;
  const bool has_gap = made.feasible() && made.gap.has_value();
  const double longer = has_gap ? (1 + *made.gap) * (plan.metrics->makespan / made.metrics->makespan) - 1 : 0;
  taken.gap = has_gap ? std::optional(std::max(0.0, longer)) : std::nullopt;
  return taken;
}

}  // namespace

void answer_within(const Question& question, const Problem& problem, std::span<const std::optional<Bytes>> budgets,
                   const TakeAnswer& take, double transform_s) {
  std::vector<std::size_t> order(budgets.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  constexpr Bytes all{std::numeric_limits<std::int64_t>::max()};
  const std::optional<Bytes> capacity = capacity_of(problem.platform);
  std::ranges::stable_sort(order, {}, [&](std::size_t b) { return budgets[b].value_or(capacity.value_or(all)); });
  std::optional<Answer> best;
  const double each_s = transform_s / static_cast<double>(std::max<std::size_t>(budgets.size(), 1));
  for (const std::size_t b : order) {
    Answer made = answer_within(question, problem, budgets[b], each_s);
    if (best && is_better(*best, made)) made = carried(*best, made);
    if (made.feasible()) best = made;
    take(b, made);
  }
}

}  // namespace plimsoll
