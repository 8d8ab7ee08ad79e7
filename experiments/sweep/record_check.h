#pragma once
// Whether a record or a manifest of a sweep has what reports and later sweeps take from it, in their types: such files
// are edited, merged and torn. And what a sweep itself reads of a record that it passes on.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "experiments/study/run.h"
#include "sim/core/units.h"
#include "sim/io/json/json.h"

namespace plimsoll {

/// The first key of another type, as `key: what is expected, what was found`; unset: all that are there are fine.
std::optional<std::string> wrong_type_in_record(const Json& record);

/// The same, or the first key that is missing.
std::optional<std::string> wrong_in_record(const Json& record);

/// What became of its question, of a record with its types as they should be; older ones say less.
Outcome outcome_of(const Json& record);

/// What is known of a sweep's cases, as a manifest has it: the path of what is wrong (of its parent, where a key is
/// missing), and why; unset: all is there.
struct WrongInManifest {
  std::string path, what;
};
std::optional<WrongInManifest> wrong_in_manifest(const Json& manifest);

struct RecordHead {
  std::size_t point = 0;
  std::string_view key;  ///< of the record's text
  bool feasible = false;
  Seconds taken;  ///< solve_s and simulate_s, where they are numbers
};

/// Of a record as it is written (json_text), which is not read as JSON for that: it has a hundred other values.
RecordHead head_of_record(std::string_view record);

}  // namespace plimsoll
