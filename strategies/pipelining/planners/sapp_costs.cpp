#include "strategies/pipelining/planners/sapp_costs.h"

#include <algorithm>

#include "sim/core/expects.h"
#include "strategies/pipelining/orders/order_times.h"

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

}  // namespace plimsoll
