#pragma once
// One training step within an execution trace: which nodes are its, in which ranges they stand, what they launched.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/units.h"
#include "traces/imports/import_numbers.h"
#include "traces/imports/pytorch/execution_trace.h"

namespace plimsoll {

inline constexpr std::uint32_t no_node = 0xFFFFFFFF;

/// The node of autograd that adds to a parameter's gradient.
inline constexpr std::string_view accumulate_range = "torch::autograd::AccumulateGrad";

/// `add` of `aten::add`; empty for what is no operator.
std::string_view operator_word(const ExecutionNode&);

struct ExecutionRanges {
  bool in_backward = false, in_update = false;
  std::uint32_t accumulates = no_node;  ///< the node that adds to a gradient
};

struct LaunchedKernels {
  std::uint32_t count = 0;
  Seconds time{};
  std::int64_t stream = 0;
};

/// Nodes of the trace by number; those of the step are `begin` to before `end`, of all threads.
struct ExecutionStep {
  std::uint32_t begin = 0, end = 0;
  std::int64_t number = -1;              ///< of the profiler's step; -1: the whole file
  std::string device;                    ///< the accelerator of which there are tensors, `cpu` where there is none
  std::vector<std::uint32_t> parents;    ///< by node
  std::vector<ExecutionRanges> ranges;   ///< by node
  std::vector<LaunchedKernels> kernels;  ///< by node: of the innermost operator around them
  std::vector<std::uint32_t> order;      ///< as operators end: those below come first
  std::map<std::int64_t, LaunchedKernels> streams;
  bool is_linked = false;      ///< whether the file has kernels
  std::size_t unlaunched = 0;  ///< kernels of no operator
  std::size_t exchanges = 0;   ///< records of communication
};

/// Throws InputError, also where the file is of several ranks.
ExecutionStep execution_step(const ExecutionTrace&, const std::string& file, ImportNumbers&);

}  // namespace plimsoll
