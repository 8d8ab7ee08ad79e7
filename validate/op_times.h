#pragma once
// How long ops really took: samples from replays, their medians as a trace's times, and schedules timed by them.

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "sim/core/graph.h"
#include "sim/core/schedule.h"
#include "sim/core/timeline.h"
#include "sim/model/problem.h"

namespace plimsoll {

/// Whether a forward step keeps what is only saved.
Saving saving_of(const Graph&, const Schedule&, const Step&);

/// Whether an input of the network appears in the step, which takes its time.
bool loads(const Graph&, const Schedule&, const Step&);

/// The middle one, or the lower of the two middle ones; a broken promise where there is none.
double median(std::vector<double>);

class OpTimes {
 public:
  /// Takes the compute steps of a run without copies: from one step's end to the next one's, so that what lies between
  /// two kernels counts too.
  void add(const Graph&, const Schedule&, const Timeline&);

  /// The median; for a forward never seen in this way, that of the other way, and what loading takes more or less.
  /// Unset for an op never seen.
  std::optional<Seconds> of(OpId, Saving, bool loads = false) const;
  /// Of its first run, in which it loads what it reads of the network's inputs.
  std::optional<Seconds> of_first(OpId, Saving) const;
  /// How much longer it takes where it loads; unset where it was never seen in both ways.
  std::optional<Seconds> load_of(OpId) const;

  /// Half the samples lie this close to the median, relative to it; the median over all ops.
  double spread() const;
  std::size_t samples() const;

 private:
  struct Run {
    OpId op;
    Saving saving{};
    bool loads = false;
    friend constexpr auto operator<=>(const Run&, const Run&) = default;
  };
  std::optional<Seconds> measured(const Run&) const;

  std::map<Run, std::vector<double>> seconds_;
};

/// The schedule as a replay runs it: with the measured time of every op that a device computes, and without what codecs
/// take to choose how they pack (`Codec::overhead`), which no replay does.
Schedule retimed(Schedule, const Graph&, const OpTimes&);

/// The model with measured times: of a problem on the model's graph or chain. The backwards of a problem whose
/// backwards are split say what share of the chain's backwards is for the weights; else the shares stay.
Chain with_times(Chain, const Problem&, const OpTimes&);
Graph with_times(Graph, const OpTimes&);

/// A schedule for measuring only: all forwards without keeping anything, those that load an input once more at once,
/// then plain training. Every op runs in both ways, on the results of the one before.
Schedule calibration_schedule(const Problem&);

}  // namespace plimsoll
