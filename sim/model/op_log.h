#pragma once
// What a program did to its tensors, in order: operators called, references taken and given back. What an online
// method such as dynamic tensor rematerialization sees, one event at a time.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/graph.h"
#include "sim/core/ids.h"
#include "sim/core/units.h"

namespace plimsoll {

struct LoggedTensor {
  std::string name;
  Bytes bytes;                       ///< of its storage; 0 for an alias
  std::optional<TensorId> alias_of;  ///< the argument of its call whose storage it shares
};

/// How long the storages that a call makes are kept out of reach of eviction.
enum class Keep : std::uint8_t {
  evictable,       ///< may be evicted and computed again
  until_released,  ///< cannot be computed again: stays until its last reference is given back, then dies for good
  forever,         ///< a constant: pinned from the start, even when nobody refers to it any more
};

struct LoggedCall {
  std::string name;
  std::int64_t nanoseconds = 0;
  Bytes workspace;  ///< needed beside the results while it runs
  std::vector<TensorId> arguments, results;
  Keep keep = Keep::evictable;
  Phase phase = Phase::forward;
};

struct OpLog {
  enum class EventKind : std::uint8_t { call, reference, release };
  struct Event {
    EventKind kind = EventKind::call;
    std::uint32_t index = 0;  ///< of the call, or of the tensor that gains or loses a reference
  };

  std::string name;
  std::vector<LoggedTensor> tensors;
  std::vector<LoggedCall> calls;
  std::vector<Event> events;    ///< each result begins with one reference
  std::vector<TensorId> kept;   ///< must be resident at the end, in this order
  bool marks_backward = false;  ///< it says where backward begins

  const LoggedTensor& operator[](TensorId id) const { return tensors[id.index]; }
  const LoggedCall& operator[](OpId id) const { return calls[id.index]; }
};

}  // namespace plimsoll
