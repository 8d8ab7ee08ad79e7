// Products in 8 bits of numbers in 16 or 32, which alone are kept.
// Source: torchao (pytorch/ao), torchao/float8/float8_linear.py, matmul_with_hp_or_float8_args, with dynamic scales of
// whole tensors: the forward saves its operands as they are. Each product there and back scales and copies its two
// operands anew.

#include <string>

#include "traces/models/llama_blocks.h"

namespace plimsoll {
namespace {

constexpr std::string_view in_float8 = "fp8";

}  // namespace

// One kernel reads all numbers for the largest of them, another reads them and writes the copy, as torch.compile makes
// of the scaling.
LlamaBlocks::Kind LlamaBlocks::scaling(TensorId x, const std::string& loop) const {
  double numbers = 1;
  for (const std::int64_t extent : (*this)[x].shape) numbers *= static_cast<double>(extent);
  const double element = static_cast<double>(element_);
  return {.kind = "to", .loop = loop, .moved = numbers * (2 * element + 1), .launches = 2};
}

TensorId LlamaBlocks::operand(TensorId x, const std::string& name, const std::string& axes) {
  if (!is_float8()) return x;
  const TensorId copy = tensor(name + ".fp8", TensorKind::activation, (*this)[x].shape, 1, std::string(in_float8));
  forward(name + ".to_fp8", scaling(x, axes + " -> " + axes), {x}, {copy});
  return copy;
}

TensorId LlamaBlocks::operand_back(TensorId x, const std::string& of, const std::string& part,
                                   const std::string& axes) {
  if (!is_float8()) return x;
  const TensorId copy = tensor((*this)[x].name + " in fp8 for " + of + part, TensorKind::gradient, (*this)[x].shape, 1,
                               std::string(in_float8));
  backward(of, part, scaling(x, axes + " -> " + axes), {x}, {copy});
  return copy;
}

}  // namespace plimsoll
