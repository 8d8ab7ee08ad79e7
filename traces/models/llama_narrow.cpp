// Frozen weights of 4 bits a number, and products in 8 bits of numbers in 16 or 32, which alone are kept.
// Sources: Dettmers, Pagnoni, Holtzman, Zettlemoyer, "QLoRA", 2023, sections 2 and 3, as bitsandbytes has it
// (functional.py: quantize_4bit, dequantize_4bit; autograd/_functions.py: MatMul4Bit); torchao (pytorch/ao),
// torchao/float8/float8_linear.py, matmul_with_hp_or_float8_args, with dynamic scales of whole tensors: the forward
// saves its operands as they are. Each product there and back scales and copies its two operands anew. Products of
// groups of rows likewise, with scales of rows and of columns: torchao/prototype/moe_training/fp8_grouped_mm.py. A
// frozen weight has no gradient, as in Transformer Engine's Linear; torchao's makes one, which nobody reads.

#include <string>
#include <utility>

#include "traces/models/llama_blocks.h"

namespace plimsoll {
namespace {

constexpr std::string_view in_float8 = "fp8";
constexpr std::int64_t in_block = 64, blocks_in_group = 256;

constexpr std::int64_t parts_of(std::int64_t all, std::int64_t each) {
  return (all + each - 1) / each;
}

std::int64_t numbers_in(const std::vector<std::int64_t>& shape) {
  std::int64_t numbers = 1;
  for (const std::int64_t extent : shape) numbers *= extent;
  return numbers;
}

}  // namespace

// Two numbers a byte; the largest of each block in a byte, and of each group of blocks in fp32: 4.127 bits a number.
TensorId LlamaBlocks::layer_weight(const std::string& name, Shape shape) {
  if (!is_packed()) return weight(name, std::move(shape));
  const std::int64_t numbers = numbers_in(shape), blocks = parts_of(numbers, in_block);
  const Bytes packed{parts_of(numbers, 2) + blocks + 4 * parts_of(blocks, blocks_in_group)};
  return packed_parameter(name, std::move(shape), packed, "nf4");
}

// Beside its result the kernel has the largest of each block in fp32.
LlamaBlocks::Kind LlamaBlocks::unpacking(TensorId weight, const std::string& loop) const {
  const std::int64_t blocks = parts_of(numbers_in((*this)[weight].shape), in_block);
  return {.kind = "dequantize", .loop = loop, .workspace = Bytes{4 * blocks}};
}

TensorId LlamaBlocks::read_weight(TensorId weight, const std::string& axes) {
  if (is_mixed()) return narrowed(weight, (*this)[weight].name, axes);
  if (!is_packed()) return operand(weight, (*this)[weight].name, axes);
  const std::string name = (*this)[weight].name + ".unpacked";
  const TensorId unpacked = value(name, (*this)[weight].shape);
  forward(name, unpacking(weight, axes + " -> " + axes), {weight}, {unpacked});
  return unpacked;
}

TensorId LlamaBlocks::read_weight_back(TensorId weight, const std::string& axes) {
  if (is_mixed()) return copy_of((*this)[weight].name, weight).out;
  if (!is_packed()) return operand_back(weight, (*this)[weight].name + ".to_fp8", "", axes);
  const std::string name = (*this)[weight].name + ".unpacked";
  const TensorId unpacked = tensor(name + " again", TensorKind::gradient, (*this)[weight].shape, element_);
  backward(name, "", unpacking(weight, axes + " -> " + axes), {weight}, {unpacked});
  return unpacked;
}

TensorId LlamaBlocks::narrowed(TensorId x, std::string name, const std::string& axes) {
  Made copy = converted(x, narrow(), name + ".to", axes);
  return copies_.insert_or_assign(std::move(name), std::move(copy)).first->second.out;
}

LlamaBlocks::Made LlamaBlocks::copy_of(const std::string& name, TensorId x) const {
  const auto found = copies_.find(name);
  return found == copies_.end() ? Made{x, [](TensorId d) { return d; }} : found->second;
}

// One kernel reads all numbers for the largest of them, another reads them and writes the copy, as torch.compile makes
// of the scaling. Columns of each expert's rows have scales of their own, which kernels find in a transposed copy.
LlamaBlocks::Kind LlamaBlocks::scaling(TensorId x, const std::string& loop, ScaledBy by) const {
  double numbers = 1;
  for (const std::int64_t extent : (*this)[x].shape) numbers *= static_cast<double>(extent);
  const double element = static_cast<double>(element_);
  const bool is_turned = by == ScaledBy::groups_of_rows;
  return {.kind = "to",
          .loop = loop,
          .moved = numbers * (2 * element + 1 + (is_turned ? 2 * element : 0)),
          .launches = is_turned ? 3.0 : 2.0};
}

TensorId LlamaBlocks::operand(TensorId x, const std::string& name, const std::string& axes) {
  if (is_mixed()) return narrowed(x, name, axes);
  if (!is_float8()) return x;
  const TensorId copy = tensor(name + ".fp8", TensorKind::activation, (*this)[x].shape, 1, std::string(in_float8));
  forward(name + ".to_fp8", scaling(x, axes + " -> " + axes), {x}, {copy});
  return copy;
}

TensorId LlamaBlocks::operand_back(TensorId x, const std::string& of, const std::string& part, const std::string& axes,
                                   ScaledBy by) {
  if (!is_float8()) return x;
  const TensorId copy = tensor((*this)[x].name + " in fp8 for " + of + part, TensorKind::gradient, (*this)[x].shape, 1,
                               std::string(in_float8));
  backward(of, part, scaling(x, axes + " -> " + axes, by), {x}, {copy});
  return copy;
}

}  // namespace plimsoll
