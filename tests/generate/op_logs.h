#pragma once
// Operator logs for tests and benchmarks: the uniform linear network of DTR's paper, random programs, and training
// iterations with the shapes of known networks.

#include <cstdint>

#include "sim/model/op_log.h"

namespace plimsoll {

/// n forwards and n backwards of 1 ns and 1 byte each: backward i reads forward i - 1 and the gradient before it, after
/// forward i was released. Nothing is pinned, nothing is kept; the gradient of the last layer needs no argument.
OpLog linear_op_log(std::size_t layers);

/// Whether a call that makes views may read more than one value, which makes neighbours of storages that exist.
enum class Views : std::uint8_t { of_one, of_several };

/// Constants, calls with several results, views, overwriting as new versions, references and releases, all at random.
/// Sizes and times reach `largest`; some are 0.
OpLog random_op_log(std::uint64_t seed, std::size_t calls, std::uint32_t largest, Views views = Views::of_several);

/// A training iteration of about `calls` calls: dense blocks, each layer reading all before it in its block.
OpLog dense_op_log(std::size_t calls);

/// The same of a recurrent network: cells of ten small calls in a row that share their weights.
OpLog recurrent_op_log(std::size_t calls);

/// The two with a view in every layer that has the shape of another value and so reads both (`view_as`): it joins
/// storages that exist.
OpLog joined_dense_op_log(std::size_t calls);
OpLog joined_recurrent_op_log(std::size_t calls);

}  // namespace plimsoll
