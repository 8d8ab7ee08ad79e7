#pragma once
// What operators of PyTorch's dispatcher compute and move, by name and shapes: the rules of the exporter
// (traces/python/plimsoll/trace/work.py), for files that state ops without running them.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/units.h"

namespace plimsoll {

using AtenShape = std::vector<std::int64_t>;

/// Product of the extents; 1 of a number.
std::int64_t element_count(const AtenShape&);

/// Bytes of one element by PyTorch's word, short (`bf16`, `i64`), long (`bfloat16`) or C++'s (`c10::BFloat16`); unset
/// where there is no such type.
std::optional<std::int64_t> element_bytes(std::string_view dtype);
/// The long word for any of them: `bfloat16`.
std::string_view long_dtype(std::string_view dtype);

/// Whether every result is its first argument in another shape: nothing is launched.
bool is_aten_view(std::string_view op);

/// Whether the result takes only the shape of what is read, or nothing at all.
bool reads_no_numbers(std::string_view op);

/// Whether only the rows that are returned are read of the first argument.
bool is_aten_lookup(std::string_view op);

/// Bytes that an op moves: of each operand what it reads, of a table (`is_aten_lookup`) as much as it writes.
std::int64_t aten_traffic(std::string_view op, std::span<const std::int64_t> read, std::int64_t written);

/// An op with what its work depends on. Arguments that are no tensors have no shape.
struct AtenCall {
  std::string_view op;  ///< `addmm`, without namespace and overload
  std::span<const AtenShape> arguments;
  AtenShape result;         ///< the first one
  bool transposed = false;  ///< of a convolution
  int gradients = 2;        ///< of a convolution's backward: how many of input's and weight's are made
};

/// 2 per multiply-add of products, convolutions and attention; 0 of all else; unset where the op is known to be heavy
/// and has no rule here.
std::optional<Flops> aten_flops(const AtenCall&);

}  // namespace plimsoll
