#pragma once
// A chain trace as it is written, before its defaults are resolved.

#include <optional>
#include <vector>

#include "sim/core/allocations.h"
#include "sim/core/chain.h"
#include "sim/io/json/json_cursor.h"

namespace plimsoll {

/// A stage with what its defaults depend on.
struct StageDraft {
  Stage stage;
  std::optional<Seconds> forward_nograd;
  std::optional<Bytes> input_gradient, forward_nograd_workspace, backward_accumulate_workspace, parameter_bytes;
  std::optional<bool> keeps_input, keeps_output;
  std::optional<std::vector<std::uint32_t>> kept_tensors, gradient_tensors;
  std::size_t position = 0;
};

struct ChainDraft {
  Chain chain;
  std::vector<StageDraft> stages;
  std::optional<ChainAllocations> allocations;
  std::optional<Seconds> plain_iteration;
  bool has_boundaries = false;
};

/// Complains about what the parts of a chain say against each other. What stages say of single tensors then stands for
/// what is said of whole boundaries.
void check_chain(JsonDocument&, ChainDraft&);

}  // namespace plimsoll
