#pragma once
// The flows of one collective: whether enough bytes move for what it computes, and whether what every rank gives can
// have reached every rank that needs it. Bounds that hold for every algorithm; where the flows are a ring, its rounds.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/core/schedule.h"

namespace plimsoll {

/// Pairs of flows of which one may send on what the other brings; collectives with more of them are refused.
inline constexpr std::size_t most_flows_heard = 10'000'000;

class Exchange {
 public:
  struct Flow {
    StepId step;
    std::uint32_t from = 0, to = 0;  ///< ranks
    Seconds latency;                 ///< of its route
  };

  /// All buffers exist; every rank has an input and an output.
  Exchange(const Schedule&, const Collective&);

  /// Whose buffer it is, and of which of the collective's values.
  struct Place {
    std::uint32_t rank = 0, value = 0;
  };
  /// Nothing for a buffer that is not the collective's.
  std::optional<Place> place_of(BufferId) const;

  /// Whether a rank's output depends on what another rank gives.
  bool needs(std::uint32_t to, std::uint32_t from) const;

  /// All steps first, in issue order; then the walk.
  void add(const Flow&);
  void end_of_flows();
  bool is_next(StepId s) const { return judged_ < flows_.size() && flows_[judged_].step == s; }
  bool ends_with(StepId s) const { return !flows_.empty() && flows_.back().step == s; }
  const std::vector<Flow>& flows() const { return flows_; }

  using Finished = std::function<bool(StepId)>;
  /// What is wrong with the next flow, if anything. `finished`: which steps have ended when it starts.
  std::optional<std::string> next(const Finished& finished);
  /// Whether the flow that `next` has just judged stands for several rounds, so that it carries what all ranks give.
  bool carries_all() const { return carries_all_; }
  /// What is wrong with all of them together, if anything.
  std::optional<std::string> whole() const;

 private:
  void find_ring();
  std::optional<std::string> next_in_ring(const Finished& finished);
  std::optional<std::string> hear(const Finished& finished);
  double bytes_of(const Flow&) const;
  double pair_bytes(std::uint32_t to, std::uint32_t from) const;
  bool is_direct() const;
  bool all_is_heard() const;
  std::optional<std::string> too_few_bytes() const;

  const Schedule& schedule_;
  CollectiveKind kind_;
  std::uint32_t ranks_;
  std::vector<std::pair<BufferId, Place>> places_;  // sorted by buffer
  std::vector<double> gives_, gets_;                // by rank: bytes of its inputs and of its outputs
  double bytes_ = 0;                                // of the whole
  std::vector<Flow> flows_;
  std::vector<std::vector<std::uint32_t>> in_, out_;  // by rank: flows into and out of it
  std::uint32_t rounds_ = 0;                          // of the ring, where it is one
  bool direct_ = false;                               // every rank sends to all that need what it has
  bool carries_all_ = false;
  std::uint32_t judged_ = 0;
  std::vector<std::vector<std::uint32_t>> heard_;  // by flow: flows into its rank whose data it can send on
  std::size_t all_heard_ = 0;                      // summed over flows
};

}  // namespace plimsoll
