#pragma once
// The independent judge of schedules. It shares no code with strategies, lowering or engines: it knows only the graph,
// the schedule and the platform, and reports every rule that a schedule breaks. What the schedule states about costs is
// worked out a second time.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/core/graph.h"
#include "sim/core/platform.h"
#include "sim/core/schedule.h"
#include "sim/core/timeline.h"

namespace plimsoll {

enum class Rule : std::uint8_t {
  malformed,      ///< an index that names nothing, a wait on a later step, a buffer with two lives
  wrong_place,    ///< a buffer in a memory that the step's device does not compute in, or off the copy's route
  not_resident,   ///< used before it is allocated or after it is freed, by the schedule's order alone
  missing_input,  ///< an op does not read a value it needs
  wrong_value,    ///< it reads a value of another tensor, micro-batch, replica or version, or one never produced
  not_ordered,    ///< nothing makes the step wait for the maker of what it reads, or for the users of what it frees
  wrong_output,   ///< it fills a buffer that its op does not make
  lossy,          ///< an approximation that is not declared as one, or a packed buffer read without unpacking
  incomplete,     ///< an op that never runs for a micro-batch, a gradient without all contributions, or a parameter or
                  ///< state that is not there, updated, when the next iteration begins
  repeated,       ///< an update or a gradient contribution made twice, or an op repeated that must not be
  freed_twice,    ///< freed more than once, or freed though it was never allocated
  collective,     ///< a collective that does not compute what its kind says, or whose flows cannot carry it
  wrong_cost,     ///< a time, workspace or number of bytes that is not the model's, and is not declared as measured
};

struct Violation {
  Rule rule = Rule::malformed;
  std::optional<StepId> step;
  std::optional<BufferId> buffer;
  std::string what;  ///< one sentence that names step and buffer
};

/// Every broken rule, in the order of the steps; empty for a legal schedule. Stops after `limit` violations.
std::vector<Violation> check(const Schedule&, const Graph&, const Platform&, std::size_t limit = 100);

/// The peak of live bytes of every memory, counted a second time from the timeline: at one date and round finishes and
/// frees come first, then starts and allocations in the order of streams.
std::vector<Bytes> recount(const Schedule&, const Timeline&, const Platform&);

/// A memory whose peak is above its limit.
struct Overfull {
  MemoryId memory;
  Bytes peak, limit;
  bool computes = false;  ///< whether its device computes
};

/// The memories above their limit. The limit of a device that computes is the schedule's budget or, without one, its
/// capacity; that of any other memory is its capacity.
std::vector<Overfull> overfull(std::span<const Bytes> peaks, const Platform&, const Schedule&);

/// The name of a rule, as printed.
std::string name_of(Rule);

}  // namespace plimsoll
