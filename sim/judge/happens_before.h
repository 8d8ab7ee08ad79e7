#pragma once
// Which steps of a schedule must have finished before which others start, whatever the durations: by the order on
// streams and by waits. Vector clocks, made anew only where a step waits and kept only as long as a later step waits
// for it. They have an entry for every computing stream that another one waits for, and for every stream of copies that
// copies wait for, if those are few. Of the others it is enough to know who has waited when: a copy has finished where
// such a wait has. So devices that all send to each other take an entry each, not one a pair.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "sim/core/schedule.h"

namespace plimsoll {

/// Clock entries that may be kept at one time: 1 GiB.
inline constexpr std::size_t most_clock_entries = std::size_t{1} << 28U;

/// Entries of streams of copies, as a multiple of those of computing streams, up to which they have them.
inline constexpr std::size_t most_copy_entries = 4;

/// Walks the steps in issue order.
class HappensBefore {
 public:
  /// Every wait must name an earlier step.
  explicit HappensBefore(const Schedule&, std::size_t most_entries = most_clock_entries,
                         std::size_t copy_entries = most_copy_entries);

  /// On to the next step: at first the first one. False where that takes more clock entries than there may be.
  bool next();

  /// Whether the step has finished when the current one starts. A step does not precede itself.
  bool finished(StepId) const;

 private:
  using Clock = std::uint32_t;  ///< index into `clocks_`
  static constexpr std::uint32_t no_column = UINT32_MAX;

  /// The waits of one stream for one stream of copies, those that waited for more than the one before.
  struct Gate {
    struct Wait {
      std::uint32_t step, reached;  ///< positions on the streams
    };
    StreamId by;
    std::vector<Wait> waits;
  };

  /// A stream's first so many steps.
  struct Reached {
    StreamId on;
    std::uint32_t steps;
  };

  void find_waited_for(std::size_t copy_entries);
  bool is_known(Reached, std::vector<Reached>& asked) const;
  bool is_known(StepId) const;
  void pass_gate(StreamId of, std::uint32_t reached);
  bool merge_waits(const Step&);
  std::optional<Clock> new_clock();
  void release(Clock);

  const Schedule& schedule_;
  std::size_t most_entries_;
  std::vector<std::uint32_t> column_;     ///< by stream: its entry in a clock
  std::vector<std::vector<Gate>> gates_;  ///< by stream that has no entry
  std::size_t columns_ = 0;
  std::vector<std::uint32_t> position_;             ///< by step: its number on its stream, from 1
  std::vector<std::uint32_t> waiters_;              ///< by step: how many later steps on other streams wait for it
  std::vector<Clock> clock_of_step_;                ///< by step, while others will wait for it
  std::vector<Clock> clock_of_stream_;              ///< by stream: what has finished when its next step starts
  std::vector<std::vector<std::uint32_t>> clocks_;  ///< by column: how many of the stream's steps have finished
  std::vector<std::uint32_t> holders_;              ///< by clock: steps and streams that hold it
  std::vector<Clock> unused_;
  StepId current_{UINT32_MAX};  ///< before the first step; the next one is 0
};

}  // namespace plimsoll
