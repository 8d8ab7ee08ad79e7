#include "strategies/pipelining/planners/sapp.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "sim/core/expects.h"
#include "sim/core/tolerance.h"
#include "strategies/pipelining/orders/order_times.h"
#include "strategies/pipelining/planners/shortest.h"

namespace plimsoll {
namespace {

double bytes_of(const SappProblem& p, const SappPlan& plan, std::uint32_t s) {
  double bytes = sapp_end_bytes(p, s);
  for (std::size_t b = 0; b < p.bodies.size(); ++b) {
    for (std::size_t w = 0; w < p.bodies[b].ways.size(); ++w) {
      for (std::uint32_t v = 0; v < p.chunks; ++v) {
        const double kept = p.bodies[b].ways[w].kept_bytes * sapp_in_flight(p, v, s);
        bytes += plan.layers[b][w][v][s] * (p.bodies[b].fixed_bytes + kept);
      }
    }
  }
  return bytes;
}

struct ChunkTimes {
  double forward = 0, backward = 0;
};

ChunkTimes times_of(const SappProblem& p, const SappPlan& plan, std::uint32_t v, std::uint32_t s) {
  ChunkTimes times;
  for (std::size_t b = 0; b < p.bodies.size(); ++b) {
    for (std::size_t w = 0; w < p.bodies[b].ways.size(); ++w) {
      times.forward += plan.layers[b][w][v][s] * p.bodies[b].forward_seconds;
      times.backward += plan.layers[b][w][v][s] * p.bodies[b].ways[w].backward_seconds;
    }
  }
  return times;
}

double seconds_of(const SappProblem& p, const SappPlan& plan) {
  const bool is_short = sapp_is_short(p);
  double longest = 0, last = 0;
  for (std::uint32_t s = 0; s < p.devices; ++s) {
    double forward = 0, backward = 0;
    for (std::uint32_t v = 0; v < p.chunks; ++v) {
      const ChunkTimes times = times_of(p, plan, v, s);
      forward = std::max(forward, times.forward);
      backward = std::max(backward, times.backward);
      if (!is_short) continue;
      const double end = v == 0 && s == 0 ? p.head.backward_seconds : 0;
      if (v + 1 < p.chunks) {
        longest = std::max(longest, times.backward + end);
      } else {
        const ChunkTimes tail{s + 1 == p.devices ? p.tail.forward_seconds : 0,
                              s + 1 == p.devices ? p.tail.backward_seconds : 0};
        const double share = sapp_share_of_forward(p, s);
        last = std::max(last, times.backward + tail.backward + share * (times.forward + tail.forward));
      }
    }
    if (!is_short) longest = std::max(longest, forward + backward + sapp_end_seconds(p, s));
  }
  return is_short ? longest + std::max(longest, last) : longest;
}

// SAPP's distribution of layers where all are of one kind: then devices share nothing but the number of layers, and how
// many one can take within a bound on its time and its memory is found by itself. Optimal, without an integer program.

constexpr double rounding = 1 + model_tolerance, too_much = std::numeric_limits<double>::infinity();

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

  SappPlan long_plan(SappPlan best) const {
    best = shortest_plan(std::move(best), 0, [this](double seconds) { return within({seconds, 0}); });
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
      const auto sooner = [&](double sum) { return within({longest, sum - longest}); };
      std::optional<SappPlan> made = sooner(best.seconds * (1 - model_tolerance));
      if (!made || !(made->seconds < best.seconds)) continue;
      best = shortest_plan(*std::move(made), 2 * longest, sooner);
      bounds = {longest, best.seconds - longest};
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

SappOutcome plan_sapp_of_one_body(const SappProblem& problem) {
  SappOutcome outcome{.plan = OneBody(problem).plan(), .reason = {}};
  if (!outcome.plan) outcome.reason = "no stages keep within the memory";
  return outcome;
}

/// A power of ten of which the value is some `times`: whole numbers of ms or MB stay whole, and neither tiny nor huge.
double unit_of(double value, double times) {
  return value > 0 ? std::pow(10.0, std::floor(std::log10(value))) / times : 1;
}

class SappProgram {
 public:
  explicit SappProgram(const SappProblem& problem) : p_(problem) {
    for (const SappProblem::Body& body : p_.bodies) {
      for (const SappProblem::Way& way : body.ways) {
        second_ = std::max({second_, body.forward_seconds, way.backward_seconds});
      }
    }
    second_ = unit_of(second_, 1e3);
    byte_ = unit_of(p_.memory_bytes, 1e4);
    for (std::size_t b = 0; b < p_.bodies.size(); ++b) {
      for (std::size_t k = 0; k < p_.bodies[b].ways.size() * p_.chunks * p_.devices; ++k) {
        program_.variable({.cost = 0, .lower = 0, .upper = 1.0 * p_.bodies[b].count, .whole = true});
      }
      first_.push_back(b == 0 ? 0 : first_.back() + p_.bodies[b - 1].ways.size() * p_.chunks * p_.devices);
    }
    count_layers();
    keep_order();
    keep_within_memory();
    bound_times();
  }

  SappOutcome solved() {
    const MilpResult result = solve_milp(program_, {}, p_.limits);
    if (result.values.empty()) {
      if (result.end == MilpResult::End::infeasible) return {.plan = {}, .reason = "no stages keep within the memory"};
      return {.plan = {}, .reason = why_stopped(result.end, p_.limits)};
    }
    SappOutcome outcome;
    SappPlan& plan = outcome.plan.emplace();
    plan.proved = result.end == MilpResult::End::optimal;
    plan.bound = plan.proved ? result.objective * second_ : std::max(0.0, result.bound * second_);
    if (!plan.proved) plan.note = why_stopped(result.end, p_.limits);
    for (std::uint32_t b = 0; b < p_.bodies.size(); ++b) {
      auto& ways = plan.layers.emplace_back(p_.bodies[b].ways.size());
      for (std::uint32_t w = 0; w < ways.size(); ++w) {
        ways[w].assign(p_.chunks, std::vector<std::uint32_t>(p_.devices));
        for (std::uint32_t v = 0; v < p_.chunks; ++v) {
          for (std::uint32_t s = 0; s < p_.devices; ++s) {
            ways[w][v][s] = static_cast<std::uint32_t>(std::lround(result.values[layers(b, w, v, s)]));
          }
        }
      }
    }
    plan = sapp_counted(p_, std::move(plan));
    return outcome;
  }

 private:
  std::size_t layers(std::uint32_t body, std::uint32_t way, std::uint32_t chunk, std::uint32_t device) const {
    return first_[body] + (std::size_t{way} * p_.chunks + chunk) * p_.devices + device;
  }

  template <class Each>
  void each_way(Each&& each) const {
    for (std::uint32_t b = 0; b < p_.bodies.size(); ++b) {
      for (std::uint32_t w = 0; w < p_.bodies[b].ways.size(); ++w) each(b, w, p_.bodies[b], p_.bodies[b].ways[w]);
    }
  }

  /// All layers are somewhere; each part but the very first and the very last has one.
  void count_layers() {
    for (std::uint32_t b = 0; b < p_.bodies.size(); ++b) {
      LinearProgram::Terms all;
      for (std::uint32_t w = 0; w < p_.bodies[b].ways.size(); ++w) {
        for (std::uint32_t v = 0; v < p_.chunks; ++v) {
          for (std::uint32_t s = 0; s < p_.devices; ++s) all.emplace_back(layers(b, w, v, s), 1);
        }
      }
      program_.row(std::move(all), p_.bodies[b].count, p_.bodies[b].count);
    }
    for (std::uint32_t v = 0; v < p_.chunks; ++v) {
      for (std::uint32_t s = 0; s < p_.devices; ++s) {
        if ((v == 0 && s == 0) || (v + 1 == p_.chunks && s + 1 == p_.devices)) continue;
        LinearProgram::Terms part;
        each_way([&](auto b, auto w, const auto&, const auto&) { part.emplace_back(layers(b, w, v, s), 1); });
        program_.row(std::move(part), 1, unbounded);
      }
    }
  }

  /// Of two bodies the first ends where the second begins: `begun` of a part says that the second has begun there.
  void keep_order() {
    for (std::uint32_t b = 0; b + 1 < p_.bodies.size(); ++b) {
      std::optional<std::size_t> before;
      for (std::uint32_t v = 0; v < p_.chunks; ++v) {
        for (std::uint32_t s = 0; s < p_.devices; ++s) {
          const std::size_t begun = program_.variable({.cost = 0, .lower = 0, .upper = 1, .whole = true});
          LinearProgram::Terms second{{begun, -1.0 * p_.bodies[b + 1].count}};
          for (std::uint32_t w = 0; w < p_.bodies[b + 1].ways.size(); ++w)
            second.emplace_back(layers(b + 1, w, v, s), 1);
          program_.row(std::move(second), -unbounded, 0);
          if (before) {
            program_.row({{begun, 1}, {*before, -1}}, 0, unbounded);
            LinearProgram::Terms first{{*before, 1.0 * p_.bodies[b].count}};
            for (std::uint32_t w = 0; w < p_.bodies[b].ways.size(); ++w) first.emplace_back(layers(b, w, v, s), 1);
            program_.row(std::move(first), -unbounded, p_.bodies[b].count);
          }
          before = begun;
        }
      }
    }
  }

  void keep_within_memory() {
    for (std::uint32_t s = 0; s < p_.devices; ++s) {
      LinearProgram::Terms kept;
      each_way([&](auto b, auto w, const SappProblem::Body& body, const SappProblem::Way& way) {
        for (std::uint32_t v = 0; v < p_.chunks; ++v) {
          const double bytes = body.fixed_bytes + way.kept_bytes * sapp_in_flight(p_, v, s);
          kept.emplace_back(layers(b, w, v, s), bytes / byte_);
        }
      });
      program_.row(std::move(kept), -unbounded, (p_.memory_bytes - sapp_end_bytes(p_, s)) / byte_);
    }
  }

  void add_forward(LinearProgram::Terms& terms, std::uint32_t v, std::uint32_t s, double factor) const {
    each_way([&](auto b, auto w, const SappProblem::Body& body, const auto&) {
      terms.emplace_back(layers(b, w, v, s), -factor * body.forward_seconds / second_);
    });
  }

  void add_backward(LinearProgram::Terms& terms, std::uint32_t v, std::uint32_t s) const {
    each_way([&](auto b, auto w, const auto&, const SappProblem::Way& way) {
      terms.emplace_back(layers(b, w, v, s), -way.backward_seconds / second_);
    });
  }

  static LinearProgram::Terms merged(LinearProgram::Terms terms) {
    std::ranges::sort(terms);
    LinearProgram::Terms sums;
    for (const auto& [variable, factor] : terms) {
      if (!sums.empty() && sums.back().first == variable) {
        sums.back().second += factor;
      } else {
        sums.emplace_back(variable, factor);
      }
    }
    return sums;
  }

  void bound_times() {
    const std::size_t longest = program_.variable({.cost = 1, .lower = 0, .upper = unbounded});
    if (!sapp_is_short(p_)) {
      for (std::uint32_t s = 0; s < p_.devices; ++s) {
        for (std::uint32_t f = 0; f < p_.chunks; ++f) {
          for (std::uint32_t b = 0; b < p_.chunks; ++b) {
            LinearProgram::Terms terms{{longest, 1}};
            add_forward(terms, f, s, 1);
            add_backward(terms, b, s);
            program_.row(merged(std::move(terms)), sapp_end_seconds(p_, s) / second_, unbounded);
          }
        }
      }
      return;
    }
    const std::size_t last = program_.variable({.cost = 1, .lower = 0, .upper = unbounded});
    program_.row({{last, 1}, {longest, -1}}, 0, unbounded);
    for (std::uint32_t s = 0; s < p_.devices; ++s) {
      for (std::uint32_t v = 0; v < p_.chunks; ++v) {
        const bool is_last = v + 1 == p_.chunks;
        LinearProgram::Terms terms{{is_last ? last : longest, 1}};
        add_backward(terms, v, s);
        double ends = v == 0 && s == 0 ? p_.head.backward_seconds : 0;
        if (is_last) {
          add_forward(terms, v, s, sapp_share_of_forward(p_, s));
          if (s + 1 == p_.devices)
            ends += p_.tail.backward_seconds + sapp_share_of_forward(p_, s) * p_.tail.forward_seconds;
        }
        program_.row(merged(std::move(terms)), ends / second_, unbounded);
      }
    }
  }

  const SappProblem& p_;
  LinearProgram program_;
  std::vector<std::size_t> first_;  ///< variable of each body
  double second_ = 0, byte_ = 0;    ///< the program's units
};

}  // namespace

std::uint32_t sapp_in_flight(const SappProblem& problem, std::uint32_t chunk, std::uint32_t device) {
  const auto p = static_cast<std::int64_t>(problem.devices), s = static_cast<std::int64_t>(device);
  std::int64_t count = p;
  if (problem.chunks == 1) {
    count = p - s;
  } else if (chunk == 0) {
    count = p + std::max<std::int64_t>(0, p - 2 * s - 1);
  } else if (chunk + 1 == problem.chunks) {
    count = p + std::min<std::int64_t>(0, p - 2 * s - 1);
  }
  return static_cast<std::uint32_t>(std::min<std::int64_t>(count, problem.micro_batches));
}

double sapp_end_seconds(const SappProblem& p, std::uint32_t device) {
  return (device == 0 ? p.head.forward_seconds + p.head.backward_seconds : 0) +
         (device + 1 == p.devices ? p.tail.forward_seconds + p.tail.backward_seconds : 0);
}

double sapp_end_bytes(const SappProblem& p, std::uint32_t device) {
  return (device == 0 ? p.head.fixed_bytes : 0) + (device + 1 == p.devices ? p.tail.fixed_bytes : 0);
}

bool sapp_is_short(const SappProblem& p) {
  return p.chunks > 1 && p.micro_batches == p.devices;
}

double sapp_share_of_forward(const SappProblem& problem, std::uint32_t device) {
  const std::uint32_t p = problem.devices, s = device;
  const auto distance = static_cast<double>(p - 1 > 2 * s ? p - 1 - 2 * s : 2 * s + 1 - p);
  if (problem.micro_batches < 2 * p && 2 * s < p) return 0;
  return distance / problem.micro_batches;
}

double sapp_end(const SappProblem& p, const SappPlan& plan) {
  PartCosts costs;
  for (std::uint32_t v = 0; v < p.chunks; ++v) {
    for (std::uint32_t s = 0; s < p.devices; ++s) {
      ChunkTimes times = times_of(p, plan, v, s);
      if (v == 0 && s == 0) times.forward += p.head.forward_seconds, times.backward += p.head.backward_seconds;
      if (v + 1 == p.chunks && s + 1 == p.devices) {
        times.forward += p.tail.forward_seconds;
        times.backward += p.tail.backward_seconds;
      }
      costs.f.push_back(times.forward);
      costs.b.push_back(times.backward);
    }
  }
  costs.w.assign(costs.parts(), 0);
  costs.sent.assign(costs.parts(), 0);
  costs.returned = costs.sent;
  const PipelineOrder order = p.chunks == 1 ? one_forward_one_backward_order(p.micro_batches, p.devices)
                                            : interleaved_order(p.devices, p.chunks, p.micro_batches, WarmUp::megatron);
  const OrderTimes times = time_order(costs, p.micro_batches, order);
  EXPECTS(times.stuck.empty());
  return times.makespan();
}

SappPlan sapp_counted(const SappProblem& problem, SappPlan plan) {
  plan.bytes.clear();
  for (std::uint32_t s = 0; s < problem.devices; ++s) plan.bytes.push_back(bytes_of(problem, plan, s));
  plan.seconds = seconds_of(problem, plan);
  return plan;
}

SappOutcome plan_sapp(const SappProblem& problem) {
  return problem.bodies.size() == 1 ? plan_sapp_of_one_body(problem) : SappProgram(problem).solved();
}

}  // namespace plimsoll
