#include "validate/networks/op_blocks.h"

#include <algorithm>

#include "sim/core/collective_op.h"
#include "sim/core/op_attribute.h"
#include "sim/mesh/asynchronous_products.h"
#include "sim/mesh/ring_blocks.h"
#include "validate/networks/kernel_arguments.h"

namespace plimsoll {

std::uint32_t OpPart::whose(const Mesh& mesh, std::uint32_t place) const {
  const std::uint32_t ranks = mesh.axes[axis].ranks;
  return is_of_input ? (place + ranks - 1 - number) % ranks : (place + ranks - number) % ranks;
}

bool OpBlocks::are_any() const {
  return part || std::ranges::any_of(inputs, [](const InputBlocks& each) { return each.blocks.size() > 1; });
}

BlocksInGraph::BlocksInGraph(const Graph& rank, const Mesh& mesh) : mesh_(mesh) {
  for (const Op& op : rank.ops) {
    const std::optional<OpCollective> exchange = collective_of(op);
    if (!exchange || exchange->kind != CollectiveKind::shift) continue;
    for (std::size_t k = 0; k < op.inputs.size(); ++k) {
      next_[op.inputs[k]] = Next{op.outputs[k], *mesh.axis(exchange->axis)};
    }
  }
}

OpBlocks BlocksInGraph::of(const Op& op) const {
  OpBlocks made{attribute_of(op, sliced_of_key).value_or(attribute_of(op, block_of_key).value_or(op.name)), {}, {}};
  if (const auto operand = attribute_of(op, sliced_operand_key)) {
    const auto number = static_cast<std::uint32_t>(whole_attribute(op, sliced_part_key));
    made.part = OpPart{*mesh_.axis(*attribute_of(op, sliced_axis_key)), number, *operand == "input"};
  }
  // Behind what the op reads comes what earlier parts have made.
  const std::size_t count = op.inputs.size() - (made.part ? op.mutates.size() : 0);
  for (std::size_t k = 0; k < count; ++k) {
    InputBlocks& input = made.inputs.emplace_back(InputBlocks{{op.inputs[k]}});
    while (k + 1 < count) {
      const auto next = next_.find(op.inputs[k]);
      if (next == next_.end() || next->second.block != op.inputs[k + 1]) break;
      input.blocks.push_back(op.inputs[++k]);
      input.axis = next->second.axis;
    }
  }
  return made;
}

}  // namespace plimsoll
