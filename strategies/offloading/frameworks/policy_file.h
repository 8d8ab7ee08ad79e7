#pragma once
// Files of policies by ops: a name and what becomes of what the op makes, as text or JSON.

#include <string>
#include <variant>
#include <vector>

#include "strategies/offloading/frameworks/op_policy.h"

namespace plimsoll {

/// Lines `NAME` or `NAME CHOICE`, `#` begins a comment; or, in JSON, an object of names with choices as values.
/// CHOICE: save, recompute or offload, or as torch.utils.checkpoint's CheckpointPolicy writes it: MUST_SAVE,
/// PREFER_SAVE, MUST_RECOMPUTE, PREFER_RECOMPUTE, MUST_CPU_OFFLOAD, PREFER_CPU_OFFLOAD. A line without a choice says
/// recompute; what the file does not name is saved. Throws InputError, located, for names that no op of the forward
/// has, names that come twice, and ops that cannot run again.
OpPolicy read_policy_file(const std::string& file, const Graph&);

/// How the file of a policy is written.
enum class PolicyFormat : std::uint8_t {
  recompute_ops,  ///< names of what runs again, a line each
  torchtitan,     ///< JSON: every op of the forward by name, with a CheckpointPolicy
  deepcompile,    ///< JSON: a list of names of what is moved
};

std::string policy_text(const Graph&, const OpPolicy&, PolicyFormat);

}  // namespace plimsoll
