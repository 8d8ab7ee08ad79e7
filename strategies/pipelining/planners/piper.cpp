#include "strategies/pipelining/planners/piper.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <unordered_map>
#include <vector>

#include "strategies/pipelining/planners/shortest.h"

namespace plimsoll {
namespace {

// What Piper's stages cost: the least time of a set of layers within the memory, by ways to run each of them.

/// A set of nodes that may be a stage.
using StageNodes = std::vector<std::uint32_t>;

struct PiperChoice {
  double seconds = std::numeric_limits<double>::infinity();  ///< compute, and bytes of options over the border
  double bytes = 0;
  std::vector<std::uint32_t> options;  ///< of each node of the set
};

class PiperCosts {
 public:
  explicit PiperCosts(const PiperProblem&);

  /// Degrees of tensor parallelism that some option has, ascending.
  const std::vector<std::uint32_t>& degrees() const { return degrees_; }

  /// The options of one degree with which `in_flight` micro-batches fit: the fastest of each node, then those that add
  /// the least time for the bytes they save, until all fit; at the end what was not needed is taken back. Not always
  /// the best: it is a knapsack.
  PiperChoice choice(const StageNodes&, std::uint32_t degree, std::uint32_t in_flight) const;

  /// Seconds that the border's edges take, both ways.
  double border(const StageNodes&) const;
  double parameters(const StageNodes&, std::uint32_t degree) const;

  /// Of a stage: what choice() and border() take, by replicas, and its share of the gradients' exchange.
  double of_stage(double seconds, double border, double parameters, std::uint32_t replicas) const;

 private:
  std::vector<char> members(const StageNodes&) const;

  const PiperProblem& problem_;
  std::vector<std::uint32_t> degrees_;
  std::vector<std::vector<std::uint32_t>> edges_;  ///< of each node
};

PiperCosts::PiperCosts(const PiperProblem& problem) : problem_(problem), edges_(problem.nodes.size()) {
  std::set<std::uint32_t> degrees;
  for (const std::vector<PiperProblem::Option>& options : problem.nodes) {
    for (const PiperProblem::Option& option : options) degrees.insert(option.devices);
  }
  degrees_.assign(degrees.begin(), degrees.end());
  for (std::uint32_t e = 0; e < problem.dag.edges.size(); ++e) {
    edges_[problem.dag.edges[e].first].push_back(e);
    edges_[problem.dag.edges[e].second].push_back(e);
  }
}

std::vector<char> PiperCosts::members(const StageNodes& nodes) const {
  std::vector<char> is_member(problem_.nodes.size(), 0);
  for (const std::uint32_t n : nodes) is_member[n] = 1;
  return is_member;
}

double PiperCosts::border(const StageNodes& nodes) const {
  const std::vector<char> inside = members(nodes);
  double bytes = 0;
  for (const std::uint32_t n : nodes) {
    for (const std::uint32_t e : edges_[n]) {
      const auto& [from, to] = problem_.dag.edges[e];
      if (inside[from] != inside[to]) bytes += problem_.edge_bytes[e];
    }
  }
  return 2 * bytes / problem_.bytes_per_second;
}

double PiperCosts::parameters(const StageNodes& nodes, std::uint32_t degree) const {
  double bytes = 0;
  for (const std::uint32_t n : nodes) {
    for (const PiperProblem::Option& option : problem_.nodes[n]) {
      if (option.devices != degree) continue;
      bytes += option.parameter_bytes;
      break;
    }
  }
  return bytes;
}

double PiperCosts::of_stage(double seconds, double border, double parameters, std::uint32_t replicas) const {
  const double exchange = 4.0 * (replicas - 1) * parameters / problem_.micro_batches / problem_.bytes_per_second;
  return (seconds + border + exchange) / replicas;
}

PiperChoice PiperCosts::choice(const StageNodes& nodes, std::uint32_t degree, std::uint32_t in_flight) const {
  if (problem_.fits && !problem_.fits(nodes.front(), nodes.back() + 1, in_flight)) return {};
  const std::vector<char> inside = members(nodes);
  struct Way {
    std::uint32_t option = 0;
    double seconds = 0, bytes = 0;
  };
  struct Node {
    std::vector<Way> ways;
    std::size_t taken = 0, smallest = 0;  // the fastest first
  };
  std::vector<Node> all(nodes.size());
  PiperChoice made{.seconds = 0, .options = std::vector<std::uint32_t>(nodes.size())};
  double least = 0;
  for (std::size_t k = 0; k < nodes.size(); ++k) {
    const std::vector<PiperProblem::Option>& options = problem_.nodes[nodes[k]];
    Node& node = all[k];
    for (std::uint32_t o = 0; o < options.size(); ++o) {
      if (options[o].devices != degree) continue;
      double sent = 0;
      for (const auto& [edge, bytes] : options[o].sent) {
        const auto& [from, to] = problem_.dag.edges[edge];
        if (inside[from] != inside[to]) sent += bytes;
      }
      node.ways.push_back({o, options[o].seconds + 2 * sent / problem_.bytes_per_second,
                           options[o].kept_bytes * in_flight + options[o].fixed_bytes});
    }
    if (node.ways.empty()) return {};
    std::ranges::stable_sort(node.ways, [](const Way& a, const Way& b) {
      return a.seconds < b.seconds || (a.seconds == b.seconds && a.bytes < b.bytes);
    });
    node.smallest = static_cast<std::size_t>(std::ranges::min_element(node.ways, {}, &Way::bytes) - node.ways.begin());
    made.seconds += node.ways[0].seconds;
    made.bytes += node.ways[0].bytes;
    least += node.ways[node.smallest].bytes;
  }
  if (problem_.memory_bytes && made.bytes > *problem_.memory_bytes) {
    if (least > *problem_.memory_bytes) return {};
    struct Switch {
      std::size_t node = 0, way = 0;
      double seconds = 0, saved = 0;
    };
    std::vector<Switch> switches;
    for (std::size_t k = 0; k < all.size(); ++k) {
      const std::vector<Way>& ways = all[k].ways;
      for (std::size_t w = 1; w < ways.size(); ++w) {
        if (ways[w].bytes < ways[0].bytes) {
          switches.push_back({k, w, ways[w].seconds - ways[0].seconds, ways[0].bytes - ways[w].bytes});
        }
      }
    }
    std::ranges::stable_sort(switches, {}, [](const Switch& s) { return s.seconds / s.saved; });
    const auto take = [&](std::size_t k, std::size_t way) {
      const Way &before = all[k].ways[all[k].taken], &after = all[k].ways[way];
      made.seconds += after.seconds - before.seconds;
      made.bytes += after.bytes - before.bytes;
      all[k].taken = way;
    };
    for (const Switch& s : switches) {
      if (made.bytes <= *problem_.memory_bytes) break;
      if (all[s.node].ways[s.way].bytes < all[s.node].ways[all[s.node].taken].bytes) take(s.node, s.way);
    }
    if (made.bytes > *problem_.memory_bytes) return {};
    std::ranges::stable_sort(switches, std::greater<>{}, &Switch::seconds);
    for (const Switch& s : switches) {
      if (all[s.node].taken == s.way && made.bytes + s.saved <= *problem_.memory_bytes) take(s.node, 0);
    }
    made.seconds = made.bytes = 0;  // summed anew, in one order
    for (const Node& node : all) {
      made.seconds += node.ways[node.taken].seconds;
      made.bytes += node.ways[node.taken].bytes;
    }
  }
  for (std::size_t k = 0; k < all.size(); ++k) made.options[k] = all[k].ways[all[k].taken].option;
  return made;
}

constexpr double no_stage = std::numeric_limits<double>::infinity();
constexpr std::size_t most_sets = 2'000, most_pairs = 400'000;

/// A set of layers that may be a stage: what is left of a set at the end of the graph when another one is taken away.
struct StageFront {
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
        StageFront& front = fronts_[s].emplace_back();
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
    return shortest_plan(*std::move(best), 0, [this](double seconds) { return plan_within(seconds); });
  }

 private:
  /// Of a front's compute, with micro-batches in flight; looked up, else worked out.
  double seconds_of(const StageFront& front, StageFront::Degree& degree, std::uint32_t in_flight) const {
    const auto [found, is_new] = degree.seconds.try_emplace(in_flight);
    if (is_new) found->second = costs_.choice(front.nodes, degree.devices, in_flight).seconds;
    return found->second;
  }

  /// The most micro-batches in flight, up to `most`, with which a front's compute takes no more than `limit`; 0: none.
  std::uint32_t in_flight_within(const StageFront& front, StageFront::Degree& degree, double limit,
                                 std::uint32_t most) const {
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

  std::vector<Replicas> replicas_within(const StageFront& front, StageFront::Degree& degree, double time) const {
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
      for (StageFront& front : fronts_[s]) {
        for (StageFront::Degree& degree : front.degrees) {
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
    for (StageFront& front : fronts_[s]) {
      for (StageFront::Degree& degree : front.degrees) {
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
  std::vector<std::vector<StageFront>> fronts_;
  std::vector<std::uint32_t> fewest_;  ///< devices, by set and replicas of it
};

/// What every stage does of a micro-batch, and keeps, by the number of devices that share tensors and the way.
struct StageLoad {
  double seconds = 0, sent_bytes = 0, parameter_bytes = 0, kept_bytes = 0, fixed_bytes = 0;
};

enum class PathPlace : char { first, counted, last };

std::vector<PathPlace> places_of(const EqualStagesProblem& problem) {
  const Dag& dag = problem.model.dag;
  const std::vector<std::vector<std::uint64_t>> before = ancestors_of(dag);
  std::vector<PathPlace> places(dag.nodes, PathPlace::last);
  for (std::uint32_t n = 0; n < dag.nodes; ++n) {
    if (!problem.counted[n]) continue;
    places[n] = PathPlace::counted;
    for (std::uint32_t b = 0; b < dag.nodes; ++b) {
      if (!problem.counted[b] && (before[n][b / 64] >> b % 64 & 1U) != 0) places[b] = PathPlace::first;
    }
  }
  return places;
}

class EqualSearch {
 public:
  explicit EqualSearch(const EqualStagesProblem& problem)
      : problem_(problem), model_(problem.model), places_(places_of(problem)), order_(order_of(model_.dag)) {
    for (std::uint32_t n = 0; n < model_.dag.nodes; ++n) {
      for (std::uint32_t o = 0; o < model_.nodes[n].size(); ++o) {
        kinds_.emplace(model_.nodes[n][o].devices, problem.ways[n][o]);
      }
    }
  }

  std::optional<PiperPlan> plan() {
    const auto counted = static_cast<std::uint32_t>(std::ranges::count(places_, PathPlace::counted));
    for (const bool apart : {false, true}) {
      const std::uint32_t first = apart && std::ranges::count(places_, PathPlace::first) > 0 ? 1 : 0;
      const std::uint32_t last = apart && std::ranges::count(places_, PathPlace::last) > 0 ? 1 : 0;
      if (apart && first + last == 0) break;
      for (std::uint32_t shared = 1; shared <= counted && first + shared + last <= model_.devices; ++shared) {
        lay_out(first, shared, last, counted);
        for (const auto& [devices, way] : kinds_) try_out(devices, way);
      }
    }
    return std::move(best_);
  }

 private:
  void lay_out(std::uint32_t first, std::uint32_t shared, std::uint32_t last, std::uint32_t counted) {
    count_ = first + shared + last;
    stage_of_.assign(model_.dag.nodes, 0);
    const std::uint32_t least = counted / shared, smaller = shared - counted % shared;
    std::uint32_t seen = 0;
    for (const std::uint32_t n : order_) {
      if (places_[n] == PathPlace::last) stage_of_[n] = count_ - 1;
      if (places_[n] != PathPlace::counted) continue;
      const std::uint32_t in_smaller = smaller * least;
      stage_of_[n] = first + (seen < in_smaller ? seen / least : smaller + (seen - in_smaller) / (least + 1));
      ++seen;
    }
  }

  std::optional<std::uint32_t> option_of(std::uint32_t node, std::uint32_t devices, std::uint32_t way) const {
    for (std::uint32_t o = 0; o < model_.nodes[node].size(); ++o) {
      if (model_.nodes[node][o].devices == devices && problem_.ways[node][o] == way) return o;
    }
    return std::nullopt;
  }

  /// By stage; nothing where a layer has no such option.
  std::optional<std::vector<StageLoad>> loads_of(std::uint32_t devices, std::uint32_t way) const {
    std::vector<StageLoad> loads(count_);
    const auto is_cut = [&](std::uint32_t edge) {
      const auto& [from, to] = model_.dag.edges[edge];
      return stage_of_[from] != stage_of_[to];
    };
    for (std::uint32_t n = 0; n < model_.dag.nodes; ++n) {
      const std::optional<std::uint32_t> o = option_of(n, devices, way);
      if (!o) return std::nullopt;
      const PiperProblem::Option& option = model_.nodes[n][*o];
      StageLoad& load = loads[stage_of_[n]];
      load.seconds += option.seconds;
      load.parameter_bytes += option.parameter_bytes;
      load.kept_bytes += option.kept_bytes;
      load.fixed_bytes += option.fixed_bytes;
      for (const auto& [edge, bytes] : option.sent) {
        if (is_cut(edge)) load.sent_bytes += bytes;
      }
    }
    for (std::uint32_t e = 0; e < model_.dag.edges.size(); ++e) {
      if (!is_cut(e)) continue;
      loads[stage_of_[model_.dag.edges[e].first]].sent_bytes += model_.edge_bytes[e];
      loads[stage_of_[model_.dag.edges[e].second]].sent_bytes += model_.edge_bytes[e];
    }
    return loads;
  }

  double bytes_of(const StageLoad& load, std::uint32_t stage) const {
    return load.kept_bytes * (count_ - stage) + load.fixed_bytes;
  }

  void try_out(std::uint32_t devices, std::uint32_t way) {
    const std::optional<std::vector<StageLoad>> loads = loads_of(devices, way);
    if (!loads) return;
    for (std::uint32_t s = 0; s < count_; ++s) {
      if (model_.memory_bytes && bytes_of((*loads)[s], s) > *model_.memory_bytes) return;
    }
    for (std::uint32_t d = 1; std::uint64_t{d} * devices * count_ <= model_.devices; ++d) {
      if (model_.micro_batches % d != 0 || (d > 1 && !model_.replicas)) continue;
      const auto seconds_of = [&](const StageLoad& load) {
        const double moved = 2 * load.sent_bytes + 4.0 * (d - 1) * load.parameter_bytes / model_.micro_batches;
        return (load.seconds + moved / model_.bytes_per_second) / d;
      };
      double longest = 0;
      for (const StageLoad& load : *loads) longest = std::max(longest, seconds_of(load));
      if (best_ && longest >= best_->seconds) continue;
      best_ = PiperPlan{.seconds = longest, .stages = {}};
      for (std::uint32_t s = 0; s < count_; ++s) {
        best_->stages.push_back({.replicas = d,
                                 .devices = devices,
                                 .in_flight = count_ - s,
                                 .seconds = seconds_of((*loads)[s]),
                                 .bytes = bytes_of((*loads)[s], s)});
      }
      for (const std::uint32_t n : order_) {
        best_->stages[stage_of_[n]].nodes.push_back(n);
        best_->stages[stage_of_[n]].options.push_back(*option_of(n, devices, way));
      }
    }
  }

  const EqualStagesProblem& problem_;
  const PiperProblem& model_;
  std::vector<PathPlace> places_;
  std::vector<std::uint32_t> order_, stage_of_;
  std::set<std::pair<std::uint32_t, std::uint32_t>> kinds_;  ///< devices that share tensors, and way
  std::uint32_t count_ = 0;                                  ///< stages of what is laid out
  std::optional<PiperPlan> best_;
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

std::optional<std::uint32_t> between_counted(const EqualStagesProblem& problem) {
  const std::vector<PathPlace> places = places_of(problem);
  const std::vector<std::vector<std::uint64_t>> before = ancestors_of(problem.model.dag);
  for (std::uint32_t n = 0; n < places.size(); ++n) {
    if (places[n] != PathPlace::first) continue;
    for (std::uint32_t b = 0; b < places.size(); ++b) {
      if (problem.counted[b] && (before[n][b / 64] >> b % 64 & 1U) != 0) return n;
    }
  }
  return std::nullopt;
}

PiperOutcome plan_equal_stages(const EqualStagesProblem& problem) {
  std::optional<PiperPlan> plan = EqualSearch(problem).plan();
  if (!plan)
    return {.plan = {}, .reason = "no stages of equal numbers of layers keep within the memory and the devices"};
  return {.plan = std::move(plan), .reason = {}};
}

}  // namespace plimsoll
