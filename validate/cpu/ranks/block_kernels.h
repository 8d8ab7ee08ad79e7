#pragma once
// Kernels of ops that read or make blocks: the network's own kernel on what is put together of them, or is a part.

#include <cstddef>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "validate/cpu/kernels/kernel.h"
#include "validate/networks/op_blocks.h"
#include "validate/networks/rank_layouts.h"

namespace plimsoll {

/// An operand that the network's kernel has otherwise than the op of a rank: put together of blocks, or a part.
struct OperandInBlocks {
  std::size_t dim = 0, axis = 0;
  std::size_t first = 0, count = 1;  ///< of the op's own operands
  std::size_t operand = 0;           ///< of the network's op
  bool is_output = false;
};

struct OpOnBlocks {
  Op whole;  ///< what the network's kernel is of
  std::vector<OperandInBlocks> operands;
  std::optional<OpPart> part;
};

/// Operands that the kernel has otherwise become new tensors of the graph. Or in one sentence why there is no such op.
std::variant<OpOnBlocks, std::string> op_on_blocks(Graph&, const Op&, const OpBlocks&, const std::vector<RankLayout>&,
                                                   const Mesh&);

/// Of a rank, by the network's kernel, behind whose scratch lies what it has otherwise.
Kernel on_blocks(const Kernel&, const Graph&, const OpOnBlocks&, const Mesh&, std::uint32_t rank);

/// What that takes.
Bytes scratch_on_blocks(Bytes of_kernel, const Graph&, const OpOnBlocks&);

}  // namespace plimsoll
