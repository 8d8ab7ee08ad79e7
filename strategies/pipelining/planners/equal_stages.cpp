#include "strategies/pipelining/planners/equal_stages.h"

#include <algorithm>
#include <set>

namespace plimsoll {
namespace {

/// What every stage does of a micro-batch, and keeps, by the number of devices that share tensors and the way.
struct StageLoad {
  double seconds = 0, sent_bytes = 0, parameter_bytes = 0, kept_bytes = 0, fixed_bytes = 0;
};

enum class Place : char { first, counted, last };

std::vector<Place> places_of(const EqualStagesProblem& problem) {
  const Dag& dag = problem.model.dag;
  const std::vector<std::vector<std::uint64_t>> before = ancestors_of(dag);
  std::vector<Place> places(dag.nodes, Place::last);
  for (std::uint32_t n = 0; n < dag.nodes; ++n) {
    if (!problem.counted[n]) continue;
    places[n] = Place::counted;
    for (std::uint32_t b = 0; b < dag.nodes; ++b) {
      if (!problem.counted[b] && (before[n][b / 64] >> b % 64 & 1U) != 0) places[b] = Place::first;
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
    const auto counted = static_cast<std::uint32_t>(std::ranges::count(places_, Place::counted));
    for (const bool apart : {false, true}) {
      const std::uint32_t first = apart && std::ranges::count(places_, Place::first) > 0 ? 1 : 0;
      const std::uint32_t last = apart && std::ranges::count(places_, Place::last) > 0 ? 1 : 0;
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
      if (places_[n] == Place::last) stage_of_[n] = count_ - 1;
      if (places_[n] != Place::counted) continue;
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
  std::vector<Place> places_;
  std::vector<std::uint32_t> order_, stage_of_;
  std::set<std::pair<std::uint32_t, std::uint32_t>> kinds_;  ///< devices that share tensors, and way
  std::uint32_t count_ = 0;                                  ///< stages of what is laid out
  std::optional<PiperPlan> best_;
};

}  // namespace

std::optional<std::uint32_t> between_counted(const EqualStagesProblem& problem) {
  const std::vector<Place> places = places_of(problem);
  const std::vector<std::vector<std::uint64_t>> before = ancestors_of(problem.model.dag);
  for (std::uint32_t n = 0; n < places.size(); ++n) {
    if (places[n] != Place::first) continue;
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
