#include "strategies/pipelining/planners/sapp.h"

#include <algorithm>
#include <cmath>

namespace plimsoll {

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

namespace {

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
    plan.bytes.resize(p_.devices);
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
    for (std::uint32_t s = 0; s < p_.devices; ++s) plan.bytes[s] = bytes_of(plan, s);
    plan.seconds = seconds_of(plan);
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

  double end_seconds(std::uint32_t s) const {
    return (s == 0 ? p_.head.forward_seconds + p_.head.backward_seconds : 0) +
           (s + 1 == p_.devices ? p_.tail.forward_seconds + p_.tail.backward_seconds : 0);
  }

  double end_bytes(std::uint32_t s) const {
    return (s == 0 ? p_.head.fixed_bytes : 0) + (s + 1 == p_.devices ? p_.tail.fixed_bytes : 0);
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
      program_.row(std::move(kept), -unbounded, (p_.memory_bytes - end_bytes(s)) / byte_);
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

  /// Where as many micro-batches as devices pass several chunks, the last chunk's time and the others' are added.
  bool is_short() const { return p_.chunks > 1 && p_.micro_batches == p_.devices; }

  double share_of_forward(std::uint32_t s) const {
    const std::uint32_t p = p_.devices;
    const auto distance = static_cast<double>(p - 1 > 2 * s ? p - 1 - 2 * s : 2 * s + 1 - p);
    if (p_.micro_batches < 2 * p && 2 * s < p) return 0;
    return distance / p_.micro_batches;
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
    if (!is_short()) {
      for (std::uint32_t s = 0; s < p_.devices; ++s) {
        for (std::uint32_t f = 0; f < p_.chunks; ++f) {
          for (std::uint32_t b = 0; b < p_.chunks; ++b) {
            LinearProgram::Terms terms{{longest, 1}};
            add_forward(terms, f, s, 1);
            add_backward(terms, b, s);
            program_.row(merged(std::move(terms)), end_seconds(s) / second_, unbounded);
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
          add_forward(terms, v, s, share_of_forward(s));
          if (s + 1 == p_.devices) ends += p_.tail.backward_seconds + share_of_forward(s) * p_.tail.forward_seconds;
        }
        program_.row(merged(std::move(terms)), ends / second_, unbounded);
      }
    }
  }

  struct PartTimes {
    double forward = 0, backward = 0;
  };

  PartTimes times_of(const SappPlan& plan, std::uint32_t v, std::uint32_t s) const {
    PartTimes times;
    each_way([&](auto b, auto w, const SappProblem::Body& body, const SappProblem::Way& way) {
      times.forward += plan.layers[b][w][v][s] * body.forward_seconds;
      times.backward += plan.layers[b][w][v][s] * way.backward_seconds;
    });
    return times;
  }

  double bytes_of(const SappPlan& plan, std::uint32_t s) const {
    double bytes = end_bytes(s);
    each_way([&](auto b, auto w, const SappProblem::Body& body, const SappProblem::Way& way) {
      for (std::uint32_t v = 0; v < p_.chunks; ++v) {
        bytes += plan.layers[b][w][v][s] * (body.fixed_bytes + way.kept_bytes * sapp_in_flight(p_, v, s));
      }
    });
    return bytes;
  }

  /// What the program minimises, of whole layers.
  double seconds_of(const SappPlan& plan) const {
    double longest = 0, last = 0;
    for (std::uint32_t s = 0; s < p_.devices; ++s) {
      double forward = 0, backward = 0;
      for (std::uint32_t v = 0; v < p_.chunks; ++v) {
        const PartTimes times = times_of(plan, v, s);
        forward = std::max(forward, times.forward);
        backward = std::max(backward, times.backward);
        if (!is_short()) continue;
        const double end = v == 0 && s == 0 ? p_.head.backward_seconds : 0;
        if (v + 1 < p_.chunks) {
          longest = std::max(longest, times.backward + end);
        } else {
          const PartTimes tail{s + 1 == p_.devices ? p_.tail.forward_seconds : 0,
                               s + 1 == p_.devices ? p_.tail.backward_seconds : 0};
          last = std::max(last, times.backward + tail.backward + share_of_forward(s) * (times.forward + tail.forward));
        }
      }
      if (!is_short()) longest = std::max(longest, forward + backward + end_seconds(s));
    }
    return is_short() ? longest + std::max(longest, last) : longest;
  }

  const SappProblem& p_;
  LinearProgram program_;
  std::vector<std::size_t> first_;  ///< variable of each body
  double second_ = 0, byte_ = 0;    ///< the program's units
};

}  // namespace

SappOutcome plan_sapp(const SappProblem& problem) {
  return SappProgram(problem).solved();
}

}  // namespace plimsoll
