#pragma once
// A network's tensors and ops, written into its graph one by one.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "validate/networks/op_rules.h"

namespace plimsoll {

using Attributes = std::vector<std::pair<std::string, std::string>>;

TensorId add_tensor(Graph&, std::string name, TensorKind, Shape, std::string dtype = "fp32");

/// An op without times.
struct WrittenOp {
  OpKind kind = OpKind::linear;
  std::string name;
  Phase phase = Phase::forward;
  std::uint32_t stage = 0;
  std::vector<TensorId> inputs, outputs = {};
  Attributes attributes = {};
};
Op& add_op(Graph&, WrittenOp);

}  // namespace plimsoll
