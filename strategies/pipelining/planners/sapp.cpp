#include "strategies/pipelining/planners/sapp.h"

#include <algorithm>
#include <cmath>

#include "strategies/pipelining/planners/sapp_costs.h"
#include "strategies/pipelining/planners/sapp_one_body.h"

namespace plimsoll {

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

SappOutcome plan_sapp(const SappProblem& problem) {
  return problem.bodies.size() == 1 ? plan_sapp_of_one_body(problem) : SappProgram(problem).solved();
}

}  // namespace plimsoll
