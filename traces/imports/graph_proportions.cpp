#include "traces/imports/graph_proportions.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace plimsoll {
namespace {

constexpr std::uint32_t no_maker = 0xFFFFFFFF;

Seconds sending_time(Bytes bytes) {
  return sending_latency + bytes / sending_bandwidth;
}

/// What one op reads of others, in numbers alone: fast to go through many times.
class Flat {
 public:
  explicit Flat(const Graph& graph) : maker_(graph.tensors.size(), no_maker), first_{0} {
    for (std::uint32_t o = 0; o < graph.ops.size(); ++o) {
      const Op& op = graph.ops[o];
      if (op.phase != Phase::update && !op.is_view) {
        for (const TensorId t : op.inputs) {
          if (maker_[t.index] != no_maker) read_.push_back(t.index);
        }
        for (const TensorId t : op.outputs) {
          if (graph[t].kind != TensorKind::parameter_gradient) maker_[t.index] = o;
        }
      }
      first_.push_back(static_cast<std::uint32_t>(read_.size()));
    }
  }

  /// `time` by op, `sent` by tensor.
  GraphProportions proportions(std::span<const double> time, std::span<const double> sent) const {
    std::vector<double> finish(time.size(), 0);
    double work = 0, sending = 0, longest = 0;
    for (std::size_t o = 0; o < time.size(); ++o) {
      double start = 0;
      for (std::uint32_t e = first_[o]; e < first_[o + 1]; ++e) {
        sending += sent[read_[e]];
        start = std::max(start, finish[maker_[read_[e]]] + sent[read_[e]]);
      }
      work += time[o];
      finish[o] = start + time[o];
      longest = std::max(longest, finish[o]);
    }
    return {.work = {work}, .sending = {sending}, .critical_path = {longest}, .edges = read_.size()};
  }

 private:
  std::vector<std::uint32_t> maker_;         // by tensor: op
  std::vector<std::uint32_t> first_, read_;  // by op: tensors that other ops make
};

/// Of ops that count: updates come after the iteration, views take no time.
std::vector<double> times_of(const Graph& graph) {
  std::vector<double> times;
  times.reserve(graph.ops.size());
  for (const Op& op : graph.ops) {
    const bool counts = op.phase != Phase::update && !op.is_view;
    times.push_back(counts ? op.duration.value_or(Seconds{}).value : 0);
  }
  return times;
}

/// A graph under two factors: of the times of its spine and of the bytes of its weights.
class Scaling {
 public:
  Scaling(const ProportionedGraph& original, double communication)
      : original_(original), communication_(communication), flat_(original.graph), times_(times_of(original.graph)) {}

  struct Scaled {
    std::vector<double> times;  ///< by op
    std::vector<Bytes> bytes;   ///< by tensor
    double parallelism = 0;
  };

  Scaled scaled(double spine, double weights) const {
    Scaled made{times_, {}, 0};
    std::vector<double> sent;
    for (std::uint32_t t = 0; t < original_.graph.tensors.size(); ++t) {
      const Bytes bytes = original_.graph.tensors[t].bytes;
      made.bytes.push_back(original_.is_weight[t] ? Bytes{std::llround(weights * static_cast<double>(bytes.count))}
                                                  : bytes);
      sent.push_back(sending_time(made.bytes.back()).value);
    }
    for (std::size_t o = 0; o < times_.size(); ++o) {
      if (original_.is_spine[o]) made.times[o] *= spine;
    }
    const double factor = flat_.proportions(made.times, sent).communication() / communication_;
    for (double& time : made.times) time *= factor;
    made.parallelism = flat_.proportions(made.times, sent).parallelism();
    return made;
  }

 private:
  const ProportionedGraph& original_;
  double communication_;
  Flat flat_;
  std::vector<double> times_;
};

/// The factor from 1 to `most` at which a function that grows with it is as wanted.
template <class Function>
double factor_for(double wanted, double most, const Function& grows) {
  double low = 0, high = std::log(most);
  constexpr int halvings = 24;
  for (int k = 0; k < halvings; ++k) {
    const double middle = (low + high) / 2;
    (grows(std::exp(middle)) < wanted ? low : high) = middle;
  }
  return std::exp(high);
}

}  // namespace

GraphProportions proportions_of(const Graph& graph) {
  std::vector<double> sent;
  for (const Tensor& tensor : graph.tensors) sent.push_back(sending_time(tensor.bytes).value);
  return Flat(graph).proportions(times_of(graph), sent);
}

Graph scaled_to(ProportionedGraph original, double parallelism, double communication) {
  const Scaling scaling(original, communication);
  constexpr double most_spine = 1e4, most_weights = 16;  // larger ones would fill any memory
  double spine = 1, weights = 1;
  if (scaling.scaled(1, 1).parallelism > parallelism) {
    spine = factor_for(-parallelism, most_spine, [&](double f) { return -scaling.scaled(f, 1).parallelism; });
  } else {
    weights = factor_for(parallelism, most_weights, [&](double f) { return scaling.scaled(1, f).parallelism; });
  }
  const Scaling::Scaled made = scaling.scaled(spine, weights);
  for (std::size_t o = 0; o < made.times.size(); ++o) original.graph.ops[o].duration = Seconds{made.times[o]};
  for (std::size_t t = 0; t < made.bytes.size(); ++t) original.graph.tensors[t].bytes = made.bytes[t];
  return std::move(original.graph);
}

}  // namespace plimsoll
