#include "strategies/pipelining/planners/sapp_one_body.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "strategies/pipelining/planners/sapp_costs.h"

namespace plimsoll {
namespace {

constexpr double rounding = 1 + 1e-9, too_much = std::numeric_limits<double>::infinity();

/// So many layers, each run in some way: what one micro-batch of them keeps, and their backwards. Of a number of layers
/// the points of which none is better in both, by rising bytes.
struct Mix {
  double kept = 0, backward = 0;
  std::uint32_t way = 0, before = 0;  ///< the last layer's, and the point of one layer less
};

std::vector<std::vector<Mix>> mixes_of(const SappProblem::Body& body, std::uint32_t most) {
  std::vector<std::vector<Mix>> mixes{{Mix{}}};
  for (std::uint32_t n = 1; n <= most; ++n) {
    std::vector<Mix> all;
    for (std::uint32_t k = 0; k < mixes.back().size(); ++k) {
      for (std::uint32_t w = 0; w < body.ways.size(); ++w) {
        const Mix& before = mixes.back()[k];
        all.push_back({before.kept + body.ways[w].kept_bytes, before.backward + body.ways[w].backward_seconds, w, k});
      }
    }
    std::ranges::stable_sort(all, [](const Mix& a, const Mix& b) {
      return a.kept < b.kept || (a.kept == b.kept && a.backward < b.backward);
    });
    std::vector<Mix>& front = mixes.emplace_back();
    for (const Mix& mix : all) {
      if (front.empty() || mix.backward * rounding < front.back().backward) front.push_back(mix);
    }
  }
  return mixes;
}

/// Bounds on what chunks take: their forwards together with their backwards, or, where the pipeline is short, the
/// backwards of the last chunk and those of the others.
struct Bounds {
  double longest = 0, last = 0;
};

class OneBody {
 public:
  explicit OneBody(const SappProblem& problem)
      : p_(problem), body_(problem.bodies.front()), mixes_(mixes_of(body_, body_.count)) {}

  std::optional<SappPlan> plan() const {
    const double all = 1e3 * (total_seconds() + 1);
    std::optional<SappPlan> best = within({all, all});
    if (best) best = sapp_is_short(p_) ? short_plan(*std::move(best)) : long_plan(*std::move(best));
    if (best) best->proved = true, best->bound = best->seconds;
    return best;
  }

 private:
  /// The fewest bytes of a device with so many layers, and how many each of its chunks then has, and in which mix.
  struct Filled {
    double bytes = too_much;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> chunks;  // layers, mix
  };

  double total_seconds() const {
    double slowest = 0;
    for (const SappProblem::Way& way : body_.ways) slowest = std::max(slowest, way.backward_seconds);
    return body_.count * (body_.forward_seconds + slowest) + p_.head.forward_seconds + p_.head.backward_seconds +
           p_.tail.forward_seconds + p_.tail.backward_seconds;
  }

  static constexpr double precision = 1e-12;

  SappPlan long_plan(SappPlan best) const {
    for (double below = 0; best.seconds - below > precision * best.seconds;) {
      const double middle = (below + best.seconds) / 2;
      std::optional<SappPlan> shorter = within({middle, 0});
      if (shorter && shorter->seconds < best.seconds) {
        best = *std::move(shorter);
      } else {
        below = middle;
      }
    }
    return ending_soonest(best, {best.seconds, 0});
  }

  /// As short, but soonest at the end of an iteration: as little recomputed as the memory allows, and layers move from
  /// device to device, one at a time, as long as that helps.
  SappPlan ending_soonest(const SappPlan& plan, const Bounds& bounds) const {
    std::vector<std::vector<Filled>> devices;
    std::vector<std::uint32_t> taken(p_.devices, 0);
    for (std::uint32_t s = 0; s < p_.devices; ++s) {
      for (Filled& each : devices.emplace_back(device_within(s, bounds))) {
        if (each.bytes <= p_.memory_bytes) each = relaxed(std::move(each), s);
      }
      for (const auto& of_way : plan.layers.front()) {
        for (std::uint32_t v = 0; v < p_.chunks; ++v) taken[s] += of_way[v][s];
      }
    }
    SappPlan best = plan;
    double end = sapp_end(p_, best);
    const auto take_if_sooner = [&](const std::vector<std::uint32_t>& shares) {
      for (std::uint32_t s = 0; s < p_.devices; ++s) {
        if (shares[s] > body_.count || devices[s][shares[s]].bytes > p_.memory_bytes) return false;
      }
      SappPlan made = counted(devices, shares);
      const double sooner = sapp_end(p_, made);
      if (!(sooner * rounding < end) || made.seconds > plan.seconds * rounding) return false;
      end = sooner;
      best = std::move(made);
      taken = shares;
      return true;
    };
    take_if_sooner(std::vector(taken));
    for (bool any = true; any;) {
      any = false;
      const std::vector<std::uint32_t> before = taken;
      for (std::uint32_t from = 0; from < p_.devices; ++from) {
        for (std::uint32_t to = 0; to < p_.devices; ++to) {
          if (from == to || before[from] == 0) continue;
          std::vector<std::uint32_t> moved = before;
          --moved[from], ++moved[to];
          any |= take_if_sooner(moved);
        }
      }
    }
    return best;
  }

  /// The sum is least with the first bound at one of the times that chunks can take.
  SappPlan short_plan(SappPlan best) const {
    Bounds bounds{best.seconds, best.seconds};
    std::set<double> times;
    for (const std::vector<Mix>& front : mixes_) {
      for (const Mix& mix : front) {
        times.insert(mix.backward);
        times.insert(mix.backward + p_.head.backward_seconds);
      }
    }
    for (const double longest : times) {
      if (2 * longest > best.seconds) break;
      const auto sooner = [&](double sum) {
        std::optional<SappPlan> plan = within({longest, sum - longest});
        const bool is_sooner = plan && plan->seconds < best.seconds;
        if (is_sooner) best = *std::move(plan);
        if (is_sooner) bounds = {longest, best.seconds - longest};
        return is_sooner;
      };
      if (!sooner(best.seconds * (1 - 1e-9))) continue;
      for (double below = 2 * longest; best.seconds - below > precision * best.seconds;) {
        const double middle = (below + best.seconds) / 2;
        if (!sooner(middle)) below = middle;
      }
    }
    return ending_soonest(best, bounds);
  }

  double work_of(const Filled& filled) const {
    double work = 0;
    for (const auto& [n, mix] : filled.chunks) work += mixes_[n][mix].backward;
    return work;
  }

  /// The same layers with less recomputed, as far as the memory allows: what saves most time for its bytes first.
  Filled relaxed(Filled filled, std::uint32_t s) const {
    while (true) {
      std::optional<std::pair<std::uint32_t, std::uint32_t>> best;  // chunk, mix
      double most = 0, bytes = 0;
      for (std::uint32_t v = 0; v < p_.chunks; ++v) {
        const auto [n, now] = filled.chunks[v];
        for (std::uint32_t mix = now + 1; mix < mixes_[n].size(); ++mix) {
          const double more = sapp_in_flight(p_, v, s) * (mixes_[n][mix].kept - mixes_[n][now].kept);
          if (filled.bytes + more > p_.memory_bytes) break;
          const double saved = (mixes_[n][now].backward - mixes_[n][mix].backward) / more;
          if (!best || saved > most) best = {v, mix}, most = saved, bytes = more;
        }
      }
      if (!best) return filled;
      filled.chunks[best->first].second = best->second;
      filled.bytes += bytes;
    }
  }

  std::uint32_t least_layers(std::uint32_t v, std::uint32_t s) const {
    const bool is_end = (v == 0 && s == 0) || (v + 1 == p_.chunks && s + 1 == p_.devices);
    return is_end ? 0 : 1;
  }

  /// Adds a chunk whose n layers have backwards of `limit(n)` at most, to what chunks before it have.
  template <class Limit>
  std::vector<Filled> with_chunk(const std::vector<Filled>& before, std::uint32_t v, std::uint32_t s,
                                 Limit&& limit) const {
    std::vector<Filled> made(body_.count + 1);
    for (std::uint32_t n = least_layers(v, s); n <= body_.count; ++n) {
      const double most = limit(n) * rounding;
      // Those with fewer bytes take longer.
      const std::vector<Mix>& front = mixes_[n];
      const auto mix = std::ranges::partition_point(front, [&](const Mix& each) { return each.backward > most; });
      if (mix == front.end()) break;
      const double bytes = n * body_.fixed_bytes + sapp_in_flight(p_, v, s) * mix->kept;
      if (bytes > p_.memory_bytes) break;
      for (std::uint32_t c = 0; c + n <= body_.count; ++c) {
        if (before[c].bytes + bytes >= made[c + n].bytes) continue;
        made[c + n] = before[c];
        made[c + n].bytes += bytes;
        made[c + n].chunks.emplace_back(n, static_cast<std::uint32_t>(mix - front.begin()));
      }
    }
    return made;
  }

  /// By number of layers.
  template <class Limit>
  std::vector<Filled> filled(std::uint32_t s, Limit&& limit) const {
    std::vector<Filled> made(body_.count + 1);
    made[0].bytes = sapp_end_bytes(p_, s);
    for (std::uint32_t v = 0; v < p_.chunks; ++v) {
      made = with_chunk(made, v, s, [&](std::uint32_t n) { return limit(v, n); });
    }
    return made;
  }

  static void keep_fewer(std::vector<Filled>& best, std::vector<Filled> others) {
    for (std::size_t n = 0; n < best.size(); ++n) {
      if (others[n].bytes < best[n].bytes) best[n] = std::move(others[n]);
    }
  }

  std::vector<Filled> device_within(std::uint32_t s, const Bounds& bounds) const {
    if (sapp_is_short(p_)) {
      return filled(s, [&](std::uint32_t v, std::uint32_t n) {
        if (v + 1 < p_.chunks) return bounds.longest - (v == 0 && s == 0 ? p_.head.backward_seconds : 0);
        const double share = sapp_share_of_forward(p_, s), forward = n * body_.forward_seconds;
        const bool is_last = s + 1 == p_.devices;
        return bounds.last - share * (forward + (is_last ? p_.tail.forward_seconds : 0)) -
               (is_last ? p_.tail.backward_seconds : 0);
      });
    }
    // The chunk with most forwards and that with most backwards may be two.
    const double left = bounds.longest - sapp_end_seconds(p_, s);
    std::vector<Filled> best(body_.count + 1);
    for (std::uint32_t most = 0; most <= body_.count && most * body_.forward_seconds <= left * rounding; ++most) {
      keep_fewer(best, filled(s, [&](std::uint32_t, std::uint32_t n) {
                   return n > most && body_.forward_seconds > 0 ? -1.0 : left - most * body_.forward_seconds;
                 }));
      if (body_.forward_seconds == 0) break;
    }
    return best;
  }

  std::optional<SappPlan> within(const Bounds& bounds) const {
    std::vector<std::vector<Filled>> devices;
    std::vector<std::uint32_t> taken;
    std::uint32_t all = 0, fewest = 0;
    for (std::uint32_t s = 0; s < p_.devices; ++s) {
      devices.push_back(device_within(s, bounds));
      std::uint32_t most = body_.count + 1;
      while (most > 0 && devices.back()[most - 1].bytes > p_.memory_bytes) --most;
      if (most == 0) return std::nullopt;
      taken.push_back(most - 1);
      all += most - 1;
      for (std::uint32_t v = 0; v < p_.chunks; ++v) fewest += least_layers(v, s);
    }
    if (all < body_.count || fewest > body_.count) return std::nullopt;
    for (; all > body_.count; --all) {  // fewer layers are never more than fits
      const auto can_less = [&](std::uint32_t s) {
        return taken[s] > 0 && devices[s][taken[s] - 1].bytes <= p_.memory_bytes;
      };
      std::optional<std::uint32_t> fullest;
      for (std::uint32_t s = 0; s < p_.devices; ++s) {
        if (can_less(s) && (!fullest || taken[s] >= taken[*fullest])) fullest = s;
      }
      --taken[*fullest];
    }
    return counted(devices, taken);
  }

  SappPlan counted(const std::vector<std::vector<Filled>>& devices, const std::vector<std::uint32_t>& taken) const {
    SappPlan plan;
    auto& ways = plan.layers.emplace_back(body_.ways.size());
    for (auto& chunks : ways) chunks.assign(p_.chunks, std::vector<std::uint32_t>(p_.devices));
    for (std::uint32_t s = 0; s < p_.devices; ++s) {
      for (std::uint32_t v = 0; v < p_.chunks; ++v) {
        auto [n, mix] = devices[s][taken[s]].chunks[v];
        for (; n > 0; --n) {
          ++ways[mixes_[n][mix].way][v][s];
          mix = mixes_[n][mix].before;
        }
      }
    }
    return sapp_counted(p_, std::move(plan));
  }

  const SappProblem& p_;
  const SappProblem::Body& body_;
  std::vector<std::vector<Mix>> mixes_;  ///< by number of layers
};

}  // namespace

SappOutcome plan_sapp_of_one_body(const SappProblem& problem) {
  SappOutcome outcome{.plan = OneBody(problem).plan(), .reason = {}};
  if (!outcome.plan) outcome.reason = "no stages keep within the memory";
  return outcome;
}

}  // namespace plimsoll
