#pragma once
// Single ops by which a machine is measured.

#include <cstdint>

#include "sim/core/graph.h"
#include "validate/networks/probe_values.h"

namespace plimsoll {

struct ProbeOp {
  Graph graph;
  Op op;
  Signs signs = Signs::both;  ///< of its numbers: Adam's second moments are never negative
};

ProbeOp product_probe(std::int64_t n);  ///< `linear` of n x n matrices
/// The same of bf16 values and an fp32 weight, as networks with such values have it.
ProbeOp narrow_product_probe(std::int64_t n);
ProbeOp fp8_product_probe(std::int64_t n);  ///< the same, multiplied in fp8
ProbeOp adam_probe(std::int64_t n);         ///< an update of n parameters
ProbeOp sum_probe(std::int64_t n);          ///< of two tensors of n numbers
ProbeOp tiny_probe();                       ///< next to no work

}  // namespace plimsoll
