#pragma once
// The strategy `cluster`: a question about a whole cluster becomes that of the fastest pass pipeline and micro-batch.

#include <functional>
#include <optional>
#include <vector>

#include "experiments/study/choice/several_devices.h"
#include "strategies/hybrid/cluster/search.h"

namespace plimsoll {

/// Whether the question's strategy is `cluster`, and nothing else.
bool asks_cluster(const Question&);

/// What the search asks about a question: the graphs of ranks, and the simulation of a point. Throws InputError where
/// the devices' memories are not alike. All that is referred to must outlive it.
class ClusterProblems {
 public:
  ClusterProblems(const Question&, const Trace&, const Platform&);

  ClusterQuestion question();
  const ClusterExtent& extent() const { return extent_; }
  std::optional<Bytes> budget() const { return budget_; }
  const Platform& platform() const { return platform_; }

  /// As a part of a larger cluster or with more than a smaller one, of whose numbers auto takes the divisors.
  void count_as(const ClusterExtent& other);
  /// Uses no more of them.
  void leave_idle(std::uint32_t devices_used) { extent_.devices = devices_used; }

  /// Asks the same within another memory of each device.
  void limit_to(Bytes budget) { budget_ = budget; }

  /// The question of one point.
  Question of(const ClusterPoint&, const ComposedPoint&) const;

 private:
  /// Of the trace, or of the same model with few layers.
  enum class Layers : std::uint8_t { all, few };

  const Problem& base(std::uint32_t samples, Layers);
  /// One micro-batch of each rank.
  std::variant<Problem, std::string> rank_problem(std::uint32_t samples, const ComposedPoint&, Layers);
  std::variant<RankCosts, std::string> costs_of_rank(std::uint32_t samples, const ComposedPoint&);
  std::optional<Problem> stage_problem(std::uint32_t samples, std::uint32_t micro_batches, const ComposedPoint&);
  Problem planned_by_stages(std::uint32_t samples, std::uint32_t micro_batches, const ComposedPoint&, Layers);
  std::variant<WholeBound, std::string> whole_bound(std::uint32_t samples, const ComposedPoint&, bool splits);
  bool repeats_layers(const RankCosts& whole);
  Problem whole_problem(const ClusterPoint&, const ComposedPoint&);
  ClusterOutcome outcome(const ClusterPoint&, const ComposedPoint&);
  std::optional<Seconds> alone(const ClusterPoint&, const ComposedPoint&);
  std::string reference(std::uint32_t samples, Layers) const;
  const Platform& costed() const { return of_first_kind_ ? *of_first_kind_ : platform_; }

  const Question& question_;
  const Trace& trace_;
  const Platform& platform_;
  std::optional<Platform> of_first_kind_;  ///< where devices differ: as if all were as fast as the first
  ClusterExtent extent_;
  std::optional<Bytes> budget_;
  Layers layers_ = Layers::all;                                // of which the costs of ranks are known from
  std::map<std::pair<std::uint32_t, Layers>, Problem> bases_;  // by samples of a micro-batch: without transforms
};

/// What would be chosen if one thing were otherwise. Each is a search of its own with the question's limit of points,
/// which begins with the point that was found.
///  - 1 GB more on each device, where memory is limited; twice the bandwidth of each kind of links; a device more or
///    fewer, where auto takes numbers of devices as before.
///  - Of the same space what is left without schedules that split backwards, tensor parallelism, pipelines, or savers:
///    as far as the answer uses these.
std::vector<ChangedChoice> cluster_prices(const Question&, const Trace&, const Platform&, ClusterProblems&,
                                          const ClusterAnswer& found);

/// Lines that make a framework of cluster_frameworks() run the point, each with its end: arguments, or a file.
/// `sequence` as of composed().
std::string framework_configuration(std::string_view framework, const ClusterExtent&, const ClusterPoint&,
                                    bool sequence);

/// What the fullest device of the plan that needs the least has at its peak.
struct LeastOfCluster {
  const ClusterRow& row;
  Bytes parameters, gradients, states;
  Bytes activations;  ///< and exchange buffers
  Bytes workspaces;
};

/// Where nothing fits, and a simulation says how much does. The problems are then limited to that.
std::optional<LeastOfCluster> least_of_cluster(ClusterProblems&, const ClusterAnswer& found);

/// The answer of the best point that was found, after a search of so many seconds.
AnsweredQuestion answered_by_best(const Question&, const ClusterProblems&, const ClusterAnswer& found,
                                  double searched_s);

/// Is told how far the search of `cluster` is, and says whether it goes on (search.h); dies when the search ends.
using ClusterWatch = std::function<bool(const ClusterProgress&)>;

/// Throws InputError where the search would, before it simulates anything.
void judge_cluster(const Question&, const Trace&, const Platform&);

/// The answer to a question that asks `cluster`: that of the best point, whose trace, micro-batches and strategy the
/// answered question has. Its candidates are the best that were simulated.
AnsweredQuestion answered_by_cluster(const Question&, const Trace&, const Platform&, ClusterWatch = {});

/// The fastest points of the space by memory of a device, whatever its capacity: the answer within any memory, then
/// within a byte less than each has needed, until nothing fits. The same as searches one by one, each with the limit of
/// points. Of equally fast ones the last needs the least; the allocator may run out of memory for some.
std::vector<AnsweredQuestion> front_of_cluster(const Question&, const Trace&, const Platform&);

}  // namespace plimsoll
