#pragma once
// Whether a record or a manifest of a sweep has what reports and later sweeps take from it, in their types: such files
// are edited, merged and torn.

#include <optional>
#include <string>

#include "experiments/study/run.h"
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

}  // namespace plimsoll
