#pragma once
// An op with bf16 values as one of fp32 that computes on copies in the scratch, for kernels that take fp32 alone.

#include <optional>
#include <vector>

#include "validate/networks/kernel_arguments.h"
#include "validate/networks/narrow_values.h"

namespace plimsoll {

/// What a kernel in fp32 takes in place of an operand.
struct WideCopy {
  std::size_t index = 0;
  std::int64_t numbers = 0;
  Bytes offset;                           ///< in the scratch
  bool rounds = false;                    ///< an fp32 parameter, through bf16
  std::optional<In8Bits> in_8_bits = {};  ///< through numbers of 8 bits and back

  float* address(const KernelArguments&) const;
};

struct WideOp {
  Graph graph;  ///< with the op's tensors alone, in fp32
  Op op;
  std::vector<WideCopy> inputs, outputs;
  Bytes copies;  ///< of the scratch, before the kernel's own

  /// The op's kind must be known in bf16.
  WideOp(const Graph& from, const Op& narrow);

  /// With the copies in place of operands.
  static KernelArguments arguments(const KernelArguments&, const std::vector<WideCopy>& inputs,
                                   const std::vector<WideCopy>& outputs, Bytes copies);

 private:
  void take(const Graph& from, std::size_t index, TensorId&, std::vector<WideCopy>&, bool rounds);
};

}  // namespace plimsoll
