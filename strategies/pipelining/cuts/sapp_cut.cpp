#include "strategies/pipelining/cuts/sapp_cut.h"

#include <algorithm>
#include <limits>

#include "sim/model/shared_parameters.h"
#include "strategies/models/chain_pass.h"
#include "strategies/pipelining/cuts/stage_parts.h"
#include "strategies/pipelining/planners/sapp.h"

namespace plimsoll {
namespace {

constexpr double no_memory_limit = 1e30;

/// What one micro-batch of a stage takes.
struct SappLayer {
  double forward = 0, backward = 0, fixed = 0, kept = 0;
  friend bool operator==(const SappLayer&, const SappLayer&) = default;
};

SappLayer layer_of(const Problem& problem, std::size_t stage) {
  const RangePart range(problem, stage, stage + 1, DeviceId{0}, false);
  const PartTask task{problem, range.partition, range.id};
  SappLayer layer;
  for (const OpId op : task.part().ops) {
    const double seconds = duration_on(problem, op, DeviceId{0}, Saving::keep).value;
    (problem.graph[op].phase == Phase::forward ? layer.forward : layer.backward) += seconds;
  }
  const Chain& chain = *problem.chain;
  Bytes fixed = trained_bytes(chain, chain.stages[stage]);  // gradients
  for (const std::uint32_t p : chain.stages[stage].parameters) fixed += chain.parameters[p].bytes;
  layer.fixed = static_cast<double>(fixed.count);
  layer.kept = static_cast<double>(chain.stages[stage].saved.count);
  return layer;
}

class SappCut {
 public:
  SappCut(const Problem& problem, std::uint32_t ranks, std::span<const Waiting> waiting, bool weights_apart)
      : problem_(problem), waiting_(waiting), weights_apart_(weights_apart) {
    const std::size_t stages = problem.chain->stages.size();
    sapp_.devices = ranks;
    sapp_.chunks = static_cast<std::uint32_t>(waiting.size() / ranks);
    sapp_.micro_batches = problem.micro_batches;
    sapp_.limits.nodes = 20'000;
    sapp_.limits.seconds = 30;
    std::vector<SappLayer> layers;
    for (std::size_t i = 0; i < stages; ++i) layers.push_back(layer_of(problem, i));
    body_until_.assign(2, 0);
    for (std::size_t i = 1; i + 1 < stages; ++i) {
      body_until_.push_back(body_until_.back() + layers[i].forward + layers[i].backward);
    }
    const auto end_of = [&](const SappLayer& layer, std::uint32_t chunk, std::uint32_t device) {
      return SappProblem::End{layer.forward, layer.backward,
                              layer.fixed + sapp_in_flight(sapp_, chunk, device) * layer.kept};
    };
    sapp_.head = end_of(layers.front(), 0, 0);
    sapp_.tail = end_of(layers.back(), sapp_.chunks - 1, ranks - 1);
    for (std::size_t i = 1; i + 1 < stages; ++i) {
      if (i > 1 && layers[i] == layers[i - 1]) {
        ++sapp_.bodies.back().count;
      } else {
        sapp_.bodies.push_back({1, layers[i].forward, layers[i].fixed, {{layers[i].backward, layers[i].kept}}});
      }
    }
  }

  std::variant<StageCut, std::string> within(const std::optional<Bytes>& budget) {
    if (sapp_.chunks == 1) {
      std::vector<std::size_t> first = budget ? one_part_a_device(budget) : std::vector<std::size_t>{};
      if (first.empty()) first = one_part_a_device(std::nullopt);
      return without_copies(std::move(first));
    }
    if (sapp_.bodies.empty()) return without_copies({0, 1});
    if (const std::optional<StageCut> cut = close_to_the_least(budget)) return *cut;
    sapp_.memory_bytes = budget ? static_cast<double>(budget->count) : no_memory_limit;
    // What single stages keep is not all that a device needs: what is missing is taken off, and the program asked
    // again.
    constexpr int tries = 6;
    for (int k = 0; budget && k < tries; ++k) {
      const SappOutcome outcome = plan_sapp(sapp_);
      if (!outcome.plan) break;
      StageCut cut = cut_of(*outcome.plan);
      const double over = fullest(cut) - static_cast<double>(budget->count);
      if (over <= 0) return cut;
      sapp_.memory_bytes -= over;
    }
    sapp_.memory_bytes = no_memory_limit;
    const SappOutcome outcome = plan_sapp(sapp_);
    if (!outcome.plan) return "cut=sapp: " + outcome.reason;
    return cut_of(*outcome.plan);
  }

 private:
  /// Where the stages are so many and unlike that the program would take long: parts of which the longest is as short
  /// as can be. No device's longest forwards and longest backwards are less together, so that this bounds the program
  /// from below; nothing where the cut is not within 1 % of it, or does not fit.
  std::optional<StageCut> close_to_the_least(const std::optional<Bytes>& budget) const {
    constexpr std::size_t many = 20;
    constexpr double close = 1.01;
    if (sapp_.bodies.size() <= many || sapp_is_short(sapp_)) return std::nullopt;
    const std::size_t n = problem_.chain->stages.size();
    const auto seconds = [&](std::size_t g, std::size_t first, std::size_t last) {
      const double body = body_until_[std::min(last, n - 1)] - body_until_[std::max<std::size_t>(first, 1)];
      return body + sapp_end_seconds(sapp_, static_cast<std::uint32_t>(g % sapp_.devices));
    };
    std::vector<std::size_t> first = shortest_parts(seconds, [](auto...) { return true; });
    double bound = 0;
    for (std::size_t g = 0; g < first.size(); ++g) {
      bound = std::max(bound, seconds(g, first[g], g + 1 < first.size() ? first[g + 1] : n));
    }
    const StageCut cut = without_copies(std::move(first));
    if (longest_of(cut) > close * bound) return std::nullopt;
    if (budget && fullest(cut) > static_cast<double>(budget->count)) return std::nullopt;
    return cut;
  }

  /// As SAPP counts it.
  double longest_of(const StageCut& cut) const {
    SappPlan plan;
    for (std::size_t b = 0; b < sapp_.bodies.size(); ++b) {
      plan.layers.push_back({std::vector(sapp_.chunks, std::vector<std::uint32_t>(sapp_.devices, 0))});
    }
    std::size_t stage = 1;
    for (std::size_t b = 0; b < sapp_.bodies.size(); ++b) {
      for (std::uint32_t k = 0; k < sapp_.bodies[b].count; ++k, ++stage) {
        const auto behind = std::ranges::upper_bound(cut.first, stage);
        const auto g = static_cast<std::uint32_t>(behind - cut.first.begin() - 1);
        ++plan.layers[b][0][g / sapp_.devices][g % sapp_.devices];
      }
    }
    return sapp_counted(sapp_, std::move(plan)).seconds;
  }

  std::vector<std::size_t> one_part_a_device(const std::optional<Bytes>& budget) const {
    std::vector<double> until{0};
    for (std::size_t i = 0; i < problem_.chain->stages.size(); ++i) {
      const SappLayer layer = layer_of(problem_, i);
      until.push_back(until.back() + layer.forward + layer.backward);
    }
    return shortest_parts([&](std::size_t, std::size_t i, std::size_t j) { return until[j] - until[i]; },
                          [&](std::size_t g, std::size_t i, std::size_t j) {
                            return !budget || bytes_of(g, i, j) <= static_cast<double>(budget->count);
                          });
  }

  /// The longest part is as short as can be: by the parts from some one on, the least for each stage that it may begin
  /// with. Nothing where no cut fits. `seconds` and `fits` are of a part, its first stage and the one behind it.
  template <class PartSeconds, class Fits>
  std::vector<std::size_t> shortest_parts(PartSeconds&& seconds, Fits&& fits) const {
    const std::size_t n = problem_.chain->stages.size(), parts = waiting_.size();
    constexpr double impossible = std::numeric_limits<double>::infinity();
    std::vector<std::vector<double>> least(parts + 1, std::vector<double>(n + 1, impossible));  // by part, first stage
    std::vector<std::vector<std::size_t>> end(parts, std::vector<std::size_t>(n, 0));
    least[parts][n] = 0;
    for (std::size_t g = parts; g-- > 0;) {
      for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = i + 1; j <= n; ++j) {
          const double longest = std::max(seconds(g, i, j), least[g + 1][j]);
          if (longest >= least[g][i] || !fits(g, i, j)) continue;
          least[g][i] = longest;
          end[g][i] = j;
        }
      }
    }
    std::vector<std::size_t> first;
    if (least[0][0] == impossible) return first;
    for (std::size_t g = 0, i = 0; g < parts; i = end[g++][i]) first.push_back(i);
    return first;
  }

  /// Of part g in plain training, if it has stages [first, last).
  double bytes_of(std::size_t g, std::size_t first, std::size_t last) const {
    if (!is_trained(problem_, first, last)) return 0;
    const RangePart range(problem_, first, last, DeviceId{0}, weights_apart_);
    const PartTask task{problem_, range.partition, range.id, waiting_[g].in_flight, waiting_[g].weights};
    return static_cast<double>(plain_training_peak(task).count);
  }

  StageCut cut_of(const SappPlan& plan) const {
    std::vector<std::size_t> first;
    std::size_t next = 0;
    for (std::uint32_t v = 0; v < sapp_.chunks; ++v) {
      for (std::uint32_t s = 0; s < sapp_.devices; ++s) {
        first.push_back(next);
        if (next == 0) ++next;  // the head
        for (std::uint32_t b = 0; b < sapp_.bodies.size(); ++b) next += plan.layers[b][0][v][s];
      }
    }
    return without_copies(std::move(first));
  }

  /// Of the devices, in plain training: each part for itself.
  double fullest(const StageCut& cut) const {
    std::vector<double> bytes(sapp_.devices, 0);
    for (std::size_t g = 0; g < cut.first.size(); ++g) {
      const std::size_t last = g + 1 < cut.first.size() ? cut.first[g + 1] : problem_.chain->stages.size();
      bytes[g % bytes.size()] += bytes_of(g, cut.first[g], last);
    }
    return std::ranges::max(bytes);
  }

  const Problem& problem_;
  std::span<const Waiting> waiting_;
  bool weights_apart_;
  SappProblem sapp_;
  std::vector<double> body_until_;  ///< of the stages between head and tail, those before each
};

}  // namespace

std::variant<StageCut, std::string> cut_by_sapp(const Problem& problem, std::uint32_t ranks,
                                                std::span<const Waiting> waiting, bool weights_apart,
                                                const std::optional<Bytes>& budget) {
  return SappCut(problem, ranks, waiting, weights_apart).within(budget);
}

}  // namespace plimsoll
