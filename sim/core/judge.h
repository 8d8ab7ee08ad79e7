#pragma once
// What check() is made of: a walk over the steps in issue order that keeps what every buffer holds. One file a subject:
// judge_form.cpp, judge_step.cpp, judge_compute.cpp, judge_copy.cpp, judge_collective.cpp, judge_end.cpp.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/core/check.h"
#include "sim/core/happens_before.h"

namespace plimsoll {

enum class Life : std::uint8_t { unborn, live, dead };

/// What one buffer holds while the schedule is walked.
struct Held {
  Life life = Life::unborn;
  std::vector<TensorId> tensors;                                            // valid now, of the buffer's storage
  std::set<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>> parts;  // (op, micro-batch, replica) summed here
  std::uint32_t version = 0;                                                // how often it was updated
  std::vector<StepId> makers;                                               // who filled it last
  std::vector<StepId> readers;                                              // since
  CollectiveId from = no_collective;                                        // whose result it is
};

class Judge {
 public:
  Judge(const Schedule&, const Graph&, const Platform&, std::size_t limit);

  std::vector<Violation> run();

 private:
  std::string text(StepId s) const;
  std::string text(BufferId b) const;
  void report(Rule rule, std::optional<StepId> step, std::optional<BufferId> buffer, std::string what);
  void report(Rule rule, StepId step, BufferId buffer, const std::string& what);

  // --- form
  bool has_implementation(const Step& step) const;
  bool well_formed();
  void start_resident(BufferId b);

  // --- one step
  void judge(StepId s);
  bool ordered(StepId earlier, StepId later) const;
  bool same_collective(StepId a, StepId b) const;
  void judge_use(StepId s, BufferId b, const std::string& verb);
  void judge_after_readers(StepId s, BufferId b);
  void judge_free(StepId s, BufferId b);
  /// Marks a buffer as filled by a step.
  Held& fill(StepId s, BufferId b, std::vector<TensorId> tensors);
  /// Where its stream computes; nothing for a host stream of a device that no host is connected to.
  std::optional<MemoryId> own_memory(const Step& step) const;
  bool belongs(const Buffer& buffer, const Step& step) const;

  // --- compute
  void judge_compute(StepId s);
  /// The network's input appears where its first reader allocates it.
  void load_input(StepId s, const Op& op);
  void judge_input(StepId s, TensorId t, const std::vector<BufferId>& given, std::size_t readable);
  bool step_is_update(StepId s) const;
  void judge_outputs(StepId s, const Op& op);
  void fill_output(StepId s, const Op& op, BufferId b);
  /// Whether a parameter gradient has every contribution; reports at the step that reads it, or at the end.
  bool complete(BufferId b) const;
  void judge_contributions(StepId s, BufferId b);

  // --- copies and conversions
  /// Copies and conversions: one buffer read, one filled, both of the same value.
  bool judge_pair(StepId s);
  void judge_copy(StepId s);
  void judge_conversion(StepId s);

  // --- collectives
  void judge_collective(StepId s);

  // --- the whole
  void judge_completeness();
  /// What was there at the start must be there at the end, updated: the next iteration begins with it.
  void judge_next_iteration();

  const Schedule& schedule_;
  const Graph& graph_;
  const Platform& platform_;
  std::size_t limit_;
  std::vector<Violation> found_;
  std::optional<HappensBefore> before_;
  std::vector<Held> held_;                                                                // by buffer
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, std::uint32_t> ran_;  // (op, micro-batch, replica)
  std::map<TensorId, std::vector<OpId>> makers_;                                          // of parameter gradients
  std::set<std::pair<TensorId, std::uint32_t>> used_;                                     // by an update (.., replica)
  std::vector<std::optional<StepId>> last_of_collective_;
  std::vector<std::vector<StepId>> steps_of_collective_;
  std::vector<std::optional<MemoryId>> hosts_;  // by device
};

}  // namespace plimsoll
