#pragma once
// What the judges have found so far, and how they name steps and buffers.

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/judge/check.h"

namespace plimsoll {

class Findings {
 public:
  Findings(const Schedule& schedule, const Graph& graph, std::size_t limit)
      : schedule_(schedule), graph_(graph), limit_(limit) {}

  /// Not kept where there are as many as the limit.
  void report(Rule rule, std::optional<StepId> step, std::optional<BufferId> buffer, std::string what);
  /// "step 3 ('conv', micro-batch 0) WHAT buffer 7 ('x', micro-batch 0)"
  void report(Rule rule, StepId step, BufferId buffer, const std::string& what);
  void report(Rule rule, StepId step, const std::string& what);

  std::string text(StepId s) const;
  std::string text(BufferId b) const;

  bool none() const { return found_.empty(); }
  bool are_enough() const { return found_.size() >= limit_; }
  std::vector<Violation> take() { return std::move(found_); }

 private:
  const Schedule& schedule_;
  const Graph& graph_;
  std::size_t limit_;
  std::vector<Violation> found_;
};

}  // namespace plimsoll
