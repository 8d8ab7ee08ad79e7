#include "strategies/pipelining/planners/piper.h"

#include <algorithm>
#include <limits>
#include <map>

#include "strategies/pipelining/planners/piper_costs.h"

namespace plimsoll {
namespace {

constexpr double no_stage = std::numeric_limits<double>::infinity();
constexpr std::size_t most_sets = 2'000, most_pairs = 400'000;

/// A set of layers that may be a stage: what is left of a set at the end of the graph when another one is taken away.
struct Front {
  std::uint32_t rest = 0;  ///< the set behind it
  StageNodes nodes;
  double border = 0;

  struct Degree {
    std::uint32_t devices = 1;
    double parameters = 0;
    std::map<std::uint32_t, double> seconds;  ///< by micro-batches in flight, where known; they do not fall
  };
  std::vector<Degree> degrees;
};

/// How many replicas let a stage be fast enough, and up to how many replicas in it and behind it.
struct Replicas {
  std::uint32_t replicas = 1;
  std::uint64_t most_behind = 0;  ///< itself included
  std::uint32_t in_flight = 0;    ///< that then fit
};

class PiperSearch {
 public:
  PiperSearch(const PiperProblem& problem, const Dag& dag)
      : problem_(problem), costs_(problem), most_(problem.devices) {
    for (std::uint32_t d = 1; d <= problem.micro_batches && d <= most_; ++d) {
      if (problem.micro_batches % d == 0 && (d == 1 || problem.replicas)) divisors_.push_back(d);
    }
    Dag backwards{.nodes = dag.nodes, .edges = {}};
    for (const auto& [from, to] : dag.edges) backwards.edges.emplace_back(to, from);
    sets_ = downsets_of(backwards, most_sets);
    if (!sets_) return;
    fronts_.resize(sets_->count());
    std::size_t pairs = 0;
    for (std::uint32_t s = 1; s < sets_->count(); ++s) {
      for (std::uint32_t rest = 0; rest < s; ++rest) {
        if (!sets_->within(rest, s)) continue;
        if (++pairs > most_pairs) {
          sets_.reset();
          return;
        }
        Front& front = fronts_[s].emplace_back();
        front.rest = rest;
        for (std::uint32_t n = 0; n < dag.nodes; ++n) {
          if (sets_->has(s, n) && !sets_->has(rest, n)) front.nodes.push_back(n);
        }
        front.border = costs_.border(front.nodes);
        for (const std::uint32_t degree : costs_.degrees()) {
          const double alone = costs_.choice(front.nodes, degree, 1).seconds;
          if (degree > most_ || alone == no_stage) continue;
          front.degrees.push_back({degree, costs_.parameters(front.nodes, degree), {{1, alone}}});
        }
      }
    }
  }

  bool fits() const { return sets_.has_value(); }

  std::optional<PiperPlan> plan() {
    std::optional<PiperPlan> best = plan_within(no_stage);
    if (!best) return best;
    constexpr double precision = 1e-12;
    for (double below = 0; best->seconds - below > precision * best->seconds;) {
      const double middle = (below + best->seconds) / 2;
      if (std::optional<PiperPlan> better = plan_within(middle)) {
        best = std::move(better);
      } else {
        below = middle;
      }
    }
    return best;
  }

 private:
  /// Of a front's compute, with micro-batches in flight; looked up, else worked out.
  double seconds_of(const Front& front, Front::Degree& degree, std::uint32_t in_flight) const {
    const auto [found, is_new] = degree.seconds.try_emplace(in_flight);
    if (is_new) found->second = costs_.choice(front.nodes, degree.devices, in_flight).seconds;
    return found->second;
  }

  /// The most micro-batches in flight, up to `most`, with which a front's compute takes no more than `limit`; 0: none.
  std::uint32_t in_flight_within(const Front& front, Front::Degree& degree, double limit, std::uint32_t most) const {
    std::uint32_t fine = 0, over = most + 1;
    for (const auto& [count, seconds] : degree.seconds) {
      if (seconds <= limit) {
        fine = std::max(fine, count);
      } else {
        over = std::min(over, count);
        break;
      }
    }
    while (fine >= 1 && fine + 1 < over) {
      const std::uint32_t middle = fine + (over - fine) / 2;
      (seconds_of(front, degree, middle) <= limit ? fine : over) = middle;
    }
    return std::min(fine, most);
  }

  std::vector<Replicas> replicas_within(const Front& front, Front::Degree& degree, double time) const {
    std::vector<Replicas> found;
    std::uint64_t covered = 0;
    for (const std::uint32_t d : divisors_) {
      if ((covered >= most_ && !problem_.all_devices) || std::uint64_t{d} * degree.devices > most_) break;
      const double others = costs_.of_stage(0, front.border, degree.parameters, d) * d;
      const double limit = time == no_stage ? std::numeric_limits<double>::max() : time * d - others;
      const std::uint32_t in_flight = in_flight_within(front, degree, limit, (most_ + d - 1) / d);
      const std::uint64_t behind = std::uint64_t{in_flight} * d;
      if (in_flight == 0 || (behind <= covered && !problem_.all_devices)) continue;
      found.push_back({d, behind, in_flight});
      covered = std::max(covered, behind);
    }
    return found;
  }

  std::uint32_t& fewest(std::uint32_t set, std::uint64_t replicas) {
    return fewest_[std::size_t{set} * (most_ + 1) + replicas];
  }

  /// Stages that take no more than `time` each, on the fewest devices, or nothing.
  std::optional<PiperPlan> plan_within(double time) {
    constexpr std::uint32_t too_many = ~0U / 2;
    fewest_.assign(sets_->count() * (most_ + 1), too_many);
    std::fill_n(fewest_.begin(), problem_.all_devices ? 1 : most_ + 1, 0U);
    for (std::uint32_t s = 1; s < sets_->count(); ++s) {
      for (Front& front : fronts_[s]) {
        for (Front::Degree& degree : front.degrees) {
          std::uint64_t covered = 0;
          // Of replicas that are enough, fewest are best: they leave more to what is behind.
          for (const Replicas& r : replicas_within(front, degree, time)) {
            const std::uint32_t devices = r.replicas * degree.devices;
            const std::uint64_t least = problem_.all_devices ? r.replicas : covered + 1;
            for (std::uint64_t b = std::max<std::uint64_t>(r.replicas, least);
                 b <= std::min<std::uint64_t>(r.most_behind, most_); ++b) {
              fewest(s, b) = std::min(fewest(s, b), fewest(front.rest, b - r.replicas) + devices);
            }
            covered = r.most_behind;
          }
        }
      }
      if (problem_.all_devices) continue;
      for (std::uint64_t b = 1; b <= most_; ++b) fewest(s, b) = std::min(fewest(s, b), fewest(s, b - 1));
    }
    if (fewest(static_cast<std::uint32_t>(sets_->count() - 1), most_) > most_) return std::nullopt;
    return unfolded(time);
  }

  PiperPlan unfolded(double time) {
    PiperPlan plan;
    auto s = static_cast<std::uint32_t>(sets_->count() - 1);
    std::uint64_t behind = most_;
    while (s != 0) {
      while (behind > 0 && fewest(s, behind - 1) == fewest(s, behind)) --behind;
      PiperStage& stage = plan.stages.emplace_back();
      s = take_front(s, behind, time, stage);
      behind -= stage.replicas;
      plan.seconds = std::max(plan.seconds, stage.seconds);
    }
    return plan;
  }

  /// The front with which fewest(s, behind) came about; returns what is behind it.
  std::uint32_t take_front(std::uint32_t s, std::uint64_t behind, double time, PiperStage& stage) {
    for (Front& front : fronts_[s]) {
      for (Front::Degree& degree : front.degrees) {
        for (const Replicas& r : replicas_within(front, degree, time)) {
          if (r.replicas > behind || r.most_behind < behind ||
              fewest(front.rest, behind - r.replicas) + r.replicas * degree.devices != fewest(s, behind)) {
            continue;
          }
          stage.nodes = front.nodes;
          stage.replicas = r.replicas;
          stage.devices = degree.devices;
          stage.in_flight = static_cast<std::uint32_t>((behind + r.replicas - 1) / r.replicas);
          PiperChoice choice = costs_.choice(front.nodes, degree.devices, stage.in_flight);
          // More in flight may, by chance, be found a better choice.
          PiperChoice more = costs_.choice(front.nodes, degree.devices, r.in_flight);
          if (more.seconds < choice.seconds) choice = std::move(more);
          stage.options = std::move(choice.options);
          stage.bytes = choice.bytes;
          stage.seconds = costs_.of_stage(choice.seconds, front.border, degree.parameters, r.replicas);
          return front.rest;
        }
      }
    }
    return 0;  // unreached: some front made it
  }

  const PiperProblem& problem_;
  PiperCosts costs_;
  std::uint32_t most_;  ///< devices
  std::vector<std::uint32_t> divisors_;
  std::optional<Downsets> sets_;  ///< of the reversed graph: what may come last
  std::vector<std::vector<Front>> fronts_;
  std::vector<std::uint32_t> fewest_;  ///< devices, by set and replicas of it
};

}  // namespace

PiperOutcome plan_piper(const PiperProblem& problem) {
  PiperSearch search(problem, problem.dag);
  std::optional<PiperPlan> plan;
  if (search.fits()) {
    plan = search.plan();
  } else {
    Dag row{.nodes = problem.dag.nodes, .edges = {}};
    const std::vector<std::uint32_t> order = order_of(problem.dag);
    for (std::size_t k = 1; k < order.size(); ++k) row.edges.emplace_back(order[k - 1], order[k]);
    PiperSearch in_row(problem, row);
    if (!in_row.fits()) return {.plan = {}, .reason = "more than " + std::to_string(most_sets) + " layers"};
    plan = in_row.plan();
    if (plan) plan->in_one_row = true;
  }
  if (!plan) return {.plan = {}, .reason = "no stages keep within the memory"};
  return {.plan = std::move(plan), .reason = {}};
}

}  // namespace plimsoll
