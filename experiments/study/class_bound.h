#pragma once
// How far a plan can be from the best of its strategy's class, by cuts at an instant (sim/bound/README.md).

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "sim/bound/iteration_bound.h"
#include "sim/core/timeline.h"
#include "strategies/api/pass.h"

namespace plimsoll {

/// Bounds of what passes can make on one device: they may repeat ops, and do what a pass of theirs is for. What packs
/// is held to the forms that its schedule has.
class ClassBounds {
 public:
  /// Both must outlive it.
  ClassBounds(const Problem&, std::span<const Pass>);

  /// Relative, of a schedule within a budget; nothing for several devices.
  std::optional<double> gap(const Schedule&, const Timeline&, std::optional<Bytes> budget);

 private:
  IterationBounds& of(const std::vector<Codec>&);
  Seconds least_issue(const Schedule&, std::optional<Bytes> budget);

  const Problem& problem_;
  std::optional<BoundRules> rules_;
  std::vector<Codec> codecs_;
  std::unique_ptr<IterationBounds> bounds_;
  std::optional<Problem> issued_;  ///< each op takes what its host takes to issue it
  std::unique_ptr<IterationBounds> of_issue_;
  Seconds evaluation_;  ///< of an iteration, before all else
};

/// What surely stays on the devices in all schedules that the passes make: pipelines may update before others are done.
Stays stays_with(std::span<const Pass>);

bool packs(std::span<const Pass>);

/// Whether the first pass of a pipeline, by its text, leaves another problem, to which the gaps are then.
bool changes_its_problem(std::string_view pipeline);

}  // namespace plimsoll
