#include "strategies/hybrid/cluster/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <utility>

#include "sim/core/expects.h"
#include "sim/io/input_error.h"
#include "strategies/hybrid/cluster/shared_costs.h"

namespace plimsoll {
namespace {

bool asks_updates_on_devices(const ClusterOptions& options) {
  const std::vector<std::string_view> words = read_words(options.updates);
  return words.empty() || std::ranges::find(words, cluster_updates().front().name) != words.end();
}

class ClusterSearch {
 public:
  ClusterSearch(const ClusterQuestion& question, const ClusterOptions& options)
      : question_(question),
        limit_(options.limit),
        updates_on_devices_(asks_updates_on_devices(options)),
        costs_(std::make_shared<ClusterCosts>(question)) {
    ClusterSpace space = cluster_space(question.extent, options);
    if (space.points.empty()) throw InputError("cluster: " + space.empty_because);
    answer_.points = space.points.size();
    for (const ClusterPoint& point : space.points) {
      add(point);
      goes_on({}, [&] { return answer_.points; });
    }
    refuse_what_no_rank_can(options);
    sort_by_bounds();
  }

  ClusterAnswer bounded() && { return std::move(answer_); }

  Bytes least_bound() const { return answer_.least.value_or(Bytes{std::numeric_limits<std::int64_t>::max()}); }

  ClusterAnswer run() && {
    const auto is_too_large = [&](const ClusterRow& row) {
      return question_.budget && row.memory.total() > *question_.budget;
    };
    for (ClusterRow& row : answer_.rows) {
      row.has_device_twin = updates_on_devices_ && row.point.updates > 0;
      costs_->raise_within_budget(row);
    }
    sort_by_bounds();
    std::vector<ClusterRow> large;
    std::ranges::copy_if(answer_.rows, std::back_inserter(large), is_too_large);
    answer_.too_large = std::erase_if(answer_.rows, is_too_large);
    for (ClusterRow& row : large) row.is_too_large = true;
    simulate_first();
    for (const bool moving : {false, true}) simulate_by_bounds(moving);
    conclude();
    if (!answer_.best && question_.asks_least) find_least(std::move(large));
    return std::move(answer_);
  }

 private:
  /// Whether the question lets it, or nothing has been found yet.
  bool goes_on(Seconds bound, const std::function<std::size_t()>& left) {
    if (!question_.goes_on) return true;
    ClusterProgress now{answer_.points, answer_.rows.size() + answer_.refused + answer_.too_large, answer_.simulated};
    now.bounded = std::min(now.bounded, now.points);
    if (answer_.best) now.best = best_time();
    now.bound = bound;
    now.left = left;
    answer_.is_stopped |= !question_.goes_on(now);
    return !answer_.is_stopped || !answer_.best;
  }

  void sort_by_bounds() {
    std::ranges::stable_sort(answer_.rows, {}, [](const ClusterRow& row) { return std::pair(row.bound, row.guess); });
  }

  Seconds best_time() const { return *answer_.rows[*answer_.best].outcome->makespan; }

  void add(const ClusterPoint& point) {
    std::variant<ClusterRow, std::string> made = costs_->bounded(point);
    if (const std::string* why = std::get_if<std::string>(&made)) return refuse(*why);
    ClusterRow& row = std::get<ClusterRow>(made);
    if (!answer_.least || row.memory.total() < *answer_.least) {
      answer_.least = row.memory.total();
      answer_.least_parts = row.memory;
    }
    answer_.rows.push_back(std::move(row));
  }

  /// The next better bounds of the point; false where there are none.
  bool tighten(ClusterRow& row) {
    if (!costs_->tighten(row)) return false;
    if (!row.is_too_large && question_.budget && row.memory.total() > *question_.budget) {
      row.is_too_large = true;
      ++answer_.too_large;
    }
    return true;
  }

  /// Where an option asks only for what the model's operators or the links do not allow.
  void refuse_what_no_rank_can(const ClusterOptions& options) const {
    if (!answer_.rows.empty()) return;
    const std::optional<std::string> option = refused_option(options, answer_.refused_because);
    if (option) throw InputError(fmt::format("cluster: {} leaves no point: {}", *option, answer_.refused_because));
  }

  /// The question's own.
  void simulate_first() {
    if (!question_.first) return;
    const auto first = std::ranges::find(answer_.rows, *question_.first, &ClusterRow::point);
    if (first != answer_.rows.end()) simulate_whole(static_cast<std::size_t>(first - answer_.rows.begin()));
  }

  /// Of points that move values or updates elsewhere, or of the others, those with the least bounds first, each behind
  /// what its better bounds say, until none may be faster.
  void simulate_by_bounds(bool moving) {
    std::set<std::pair<Seconds, std::size_t>> open;
    for (std::size_t r = 0; r < answer_.rows.size(); ++r) {
      const ClusterPoint& point = answer_.rows[r].point;
      if ((point.offload > 0 || point.updates > 0) == moving) open.emplace(answer_.rows[r].bound, r);
    }
    while (!open.empty()) {
      const std::size_t r = open.begin()->second;
      open.erase(open.begin());
      ClusterRow& row = answer_.rows[r];
      if (answer_.simulated >= limit_ || !may_be_faster(row)) return;
      if (row.outcome) continue;
      const auto left = [&] {
        const auto end = answer_.best ? open.lower_bound({best_time(), 0}) : open.end();
        return static_cast<std::size_t>(std::distance(open.begin(), end)) + 1;
      };
      if (!goes_on(row.bound, left)) return;
      if (!tighten(row) && !raise_to_twin(row)) {
        simulate_whole(r);
      } else if (!row.is_too_large) {
        open.emplace(row.bound, r);
      }
    }
  }

  /// Nothing fits: the least that a point needs, those with the least bounds on memory first, likewise.
  void find_least(std::vector<ClusterRow> large) {
    std::vector<ClusterRow>& rows = answer_.rows;
    rows.insert(rows.end(), std::move_iterator(large.begin()), std::move_iterator(large.end()));
    std::set<std::pair<Bytes, std::size_t>> open;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      if (!rows[r].outcome) open.emplace(rows[r].memory.total(), r);
    }
    while (!open.empty()) {
      const auto [memory, r] = *open.begin();
      open.erase(open.begin());
      if (answer_.is_least_simulated && memory >= *answer_.least) break;
      if (tighten(rows[r])) {
        open.emplace(rows[r].memory.total(), r);
        continue;
      }
      goes_on({}, [&] { return open.size() + 1; });
      if (answer_.simulated >= limit_ || answer_.is_stopped) return;
      simulate_whole(r);
    }
    answer_.is_least_proven = answer_.is_least_simulated;
  }

  void refuse(const std::string& why) {
    if (answer_.refused++ == 0) answer_.refused_because = why;
  }

  /// Raises the bound of a point that offloads to what its plan takes without that and without contention, once; false
  /// where this is done, or not known. Behind a saver that always recomputes the same, and before updates that stay
  /// where they are, it has the steps of that plan in the same order on each stream, beside its copies, and each takes
  /// as long at least. With contention that does not follow: a copy that delays one exchange may let another one pass.
  bool raise_to_twin(ClusterRow& row) {
    ClusterPoint twin = row.point;
    twin.offload = 0;
    const bool does_the_same = twin.has_fixed_saver() && twin.has_fixed_updates() && !row.point.offloads_by_stages();
    if (row.is_raised || row.point.offload == 0 || row.point.compression > 0 || !does_the_same) return false;
    row.is_raised = true;
    const auto [found, is_new] = alone_.try_emplace(twin);
    if (is_new) found->second = question_.alone(twin, composed(twin, row.sequence));
    row.bound = std::max(row.bound, found->second.value_or(Seconds{}));
    return true;
  }

  bool may_be_faster(const ClusterRow& row) const { return !answer_.best || row.bound < best_time(); }

  void simulate_whole(std::size_t r) {
    ClusterRow& row = answer_.rows[r];
    row.outcome = question_.outcome(row.point, row.as());
    ++answer_.simulated;
    if (row.outcome->smallest && (!answer_.is_least_simulated || *row.outcome->smallest < *answer_.least)) {
      answer_.least = row.outcome->smallest;
      answer_.is_least_simulated = true;
    }
    if (!row.outcome->makespan) return;
    const auto is_better = [&](const ClusterRow& best) {
      return std::pair(*row.outcome->makespan, r) < std::pair(*best.outcome->makespan, *answer_.best);
    };
    if (!answer_.best || is_better(answer_.rows[*answer_.best])) answer_.best = r;
  }

  void conclude() {
    std::optional<Seconds> open;
    for (const ClusterRow& row : answer_.rows) {
      if (!row.outcome && !row.is_too_large) open = std::min(open.value_or(row.bound), row.bound);
    }
    answer_.is_proven = !open;
    if (!answer_.best) return;
    const Seconds best = best_time();
    answer_.bound = std::min(best, open.value_or(best));
    answer_.is_proven = answer_.bound == best;
    answer_.is_stopped &= !answer_.is_proven;
  }

  const ClusterQuestion& question_;
  std::size_t limit_;
  bool updates_on_devices_;                               // of some points
  std::shared_ptr<ClusterCosts> costs_;                   // of a front's searches together
  std::map<ClusterPoint, std::optional<Seconds>> alone_;  // of points that offload nothing
  ClusterAnswer answer_;
};

/// Whether a simulation within more memory gives the same within this: what was planned fits, or nothing did.
bool holds_within(const ClusterOutcome& outcome, Bytes budget) {
  if (outcome.makespan) return outcome.peak <= budget;
  return !outcome.smallest || *outcome.smallest > budget;
}

}  // namespace

double ClusterAnswer::gap() const {
  EXPECTS(best && rows[*best].outcome);
  return *rows[*best].outcome->makespan / bound - 1;
}

ClusterAnswer cluster_search(const ClusterQuestion& question, const ClusterOptions& options) {
  return ClusterSearch(question, options).run();
}

void cluster_front(ClusterQuestion question, const ClusterOptions& options, Bytes budget,
                   const std::function<void(Bytes)>& limit, const std::function<void(const ClusterAnswer&)>& take) {
  std::map<ClusterPoint, ClusterOutcome> known;
  const OutcomeOf simulated = std::move(question.outcome);
  question.outcome = [&](const ClusterPoint& point, const ComposedPoint& as) {
    const auto found = known.find(point);
    if (found != known.end() && holds_within(found->second, budget)) return found->second;
    return known.insert_or_assign(point, simulated(point, as)).first->second;
  };
  question.asks_least = false;
  const ClusterSearch bounded(question, options);
  while (bounded.least_bound() <= budget) {
    limit(budget);
    question.budget = budget;
    const ClusterAnswer answer = ClusterSearch(bounded).run();
    if (!answer.best) return;
    take(answer);
    const Bytes peak = answer.rows[*answer.best].outcome->peak;
    EXPECTS(peak <= budget);  // the front would never end
    budget = peak - Bytes{1};
  }
}

ClusterAnswer cluster_bounds(const ClusterQuestion& question, const ClusterOptions& options) {
  return ClusterSearch(question, options).bounded();
}

void tighten(const ClusterQuestion& question, std::span<ClusterRow> rows) {
  ClusterCosts costs(question);
  for (ClusterRow& row : rows) {
    costs.raise_within_budget(row);
    while (costs.tighten(row)) {
    }
  }
}

}  // namespace plimsoll
