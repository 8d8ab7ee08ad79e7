#pragma once
// A judge holds one family of rules. It hears what happens on the walk over the steps in issue order, keeps for itself
// what its rules need, and reports. Which judges there are, and which hears what: check.cpp.

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "sim/judge/walk.h"

namespace plimsoll {

class Judge {
 public:
  explicit Judge(Walk& walk)
      : walk_(walk),
        schedule_(walk.schedule),
        graph_(walk.graph),
        platform_(walk.platform),
        holdings_(walk.holdings),
        findings_(walk.findings) {}
  virtual ~Judge() = default;
  Judge(const Judge&) = delete;
  Judge& operator=(const Judge&) = delete;

  /// Before anything is in any buffer.
  virtual void prepare() {}
  /// A buffer is there from the start.
  virtual void is_resident(BufferId) {}
  /// All of them are.
  virtual void begin() {}

  // A step, in this order. What it allocates is live from `allocates` on, what it frees until after `frees`.
  virtual void uses(StepId, BufferId, std::string_view /*verb*/) {}
  virtual void overwrites(StepId, BufferId) {}
  virtual void allocates(StepId, BufferId) {}
  /// What it states of itself, before it changes anything.
  virtual void states(StepId) {}
  // What it does, one of these; a step that only frees does nothing.
  virtual void runs_op(StepId) {}
  virtual void copies(StepId) {}
  virtual void converts(StepId) {}
  virtual void exchanges(StepId) {}
  virtual void frees(StepId, BufferId) {}

  /// All steps are over.
  virtual void end() {}

 protected:
  void report(Rule rule, std::optional<StepId> step, std::optional<BufferId> buffer, std::string what) {
    findings_.report(rule, step, buffer, std::move(what));
  }
  void report(Rule rule, StepId step, BufferId buffer, const std::string& what) {
    findings_.report(rule, step, buffer, what);
  }
  void report(Rule rule, StepId step, const std::string& what) { findings_.report(rule, step, what); }
  std::string text(StepId s) const { return findings_.text(s); }
  std::string text(BufferId b) const { return findings_.text(b); }

  Walk& walk_;
  const Schedule& schedule_;
  const Graph& graph_;
  const Platform& platform_;
  Holdings& holdings_;
  Findings& findings_;
};

}  // namespace plimsoll
