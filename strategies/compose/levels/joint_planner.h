#pragma once
// cut=joint: where the chain is cut, what each stage keeps in flight and what it recomputes, chosen together for the
// memory strategies that follow, which are asked about every range of stages that may matter.

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "strategies/compose/levels/partition_plans.h"
#include "strategies/pipelining/cuts/cuts.h"

namespace plimsoll {

/// Whether the pass has the option cut=joint.
bool is_cut_jointly(const Pass&);

class JointPlanner {
 public:
  /// Throws InputError where the strategy refuses the balanced cut.
  JointPlanner(const Problem&, const Pass& partitioning, PlansByPartition&);

  /// The fastest, by simulation, of all other cuts, of those that plan_joint finds, and of what comes of moving the
  /// borders of the best of them by one stage at a time.
  PartsOutcome within(const std::optional<Bytes>& budget);

  /// Of the rules' cuts, ascending.
  std::vector<Bytes> peaks_of_levels();

 private:
  /// A cut, and what its stages keep in flight; none: as the strategy does.
  struct Choice {
    StageCut cut;
    std::vector<std::uint32_t> in_flight;
    friend auto operator<=>(const Choice&, const Choice&) = default;
  };
  /// By tapes for the very budget, or by all levels of memory, which may fit where those do not.
  enum class Care { quick, thorough };
  /// The fastest that fits or, as long as none does, what needs the least.
  struct Tried {
    Choice choice;
    PartsOutcome outcome = Infeasible{};

    bool fits() const { return std::holds_alternative<PlannedParts>(outcome); }
    bool keep_better(const Choice&, PartsOutcome);
  };

  std::optional<PlannedParts> star_parts(const std::optional<Bytes>& budget);
  std::vector<Choice> other_cuts(const std::optional<Bytes>& budget) const;
  std::vector<Choice> joint_cuts(const std::optional<Bytes>& budget);
  std::vector<Choice> neighbours(const Choice&) const;
  bool is_possible(const Choice&) const;
  std::optional<double> seconds(std::uint32_t first, std::uint32_t last, const Waiting&,
                                const std::optional<Bytes>& budget);
  PartitionPlans& plans_of(const Choice&);
  bool try_out(Tried&, const Choice&, const std::optional<Bytes>& budget);
  void shrink(Tried&, const std::optional<Bytes>& budget);
  std::vector<Choice> few_choices() const;
  std::optional<Choice> least_choice();
  bool improve(Tried&, const Choice&, const std::optional<Bytes>& budget, Care);

  const Problem& problem_;
  const Pass& pass_;
  PlansByPartition& plans_;
  bool in_flight_is_free_ = false;
  std::shared_ptr<const Partition> balanced_;
  std::vector<Waiting> waiting_;  // by stage, in the strategy's own order
  std::map<Choice, std::shared_ptr<const Partition>> partitions_;
  struct Range {
    std::uint32_t first, last;
    Waiting waiting;
    std::optional<Bytes> budget;
    friend auto operator<=>(const Range&, const Range&) = default;
  };
  std::map<Range, std::optional<double>> seconds_;  // of a micro-batch
  std::map<Range, std::optional<Bytes>> needs_;     // at least, without a budget
};

}  // namespace plimsoll
