#include "tests/hybrid/rank_numbers.h"

#include <algorithm>
#include <optional>
#include <random>
#include <stdexcept>

#include "sim/core/collective_op.h"
#include "sim/mesh/ring_blocks.h"
#include "sim/ops/op_loop.h"

namespace plimsoll {
namespace {

constexpr std::uint64_t prime = 1'000'003;

std::size_t size_of(const std::vector<std::int64_t>& shape) {
  std::size_t size = 1;
  for (const std::int64_t extent : shape) size *= static_cast<std::size_t>(extent);
  return size;
}

/// Visits the numbers of an operand: place in its shape, and place among the dimensions that others share, where those
/// of its own and rows of several count as one.
template <class Visit>
void visit(const std::vector<std::int64_t>& shape, const std::vector<std::uint8_t>& operand,
           const std::vector<LoopDim>& dims, const std::vector<bool>& is_shared, Visit visit_one) {
  std::vector<std::int64_t> at(shape.size(), 0);
  for (std::size_t place = 0; place < size_of(shape); ++place) {
    std::size_t shared = 0;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      if (!is_shared[operand[d]]) continue;
      const std::int64_t size = dims[operand[d]].size;
      shared = shared * static_cast<std::size_t>(size) + static_cast<std::size_t>(at[d] / (shape[d] / size));
    }
    visit_one(place, shared);
    for (std::size_t d = shape.size(); d-- > 0;) {
      if (++at[d] < shape[d]) break;
      at[d] = 0;
    }
  }
}

/// An operand's numbers by the dimensions that others share.
struct Shared {
  std::vector<std::uint8_t> dims;
  std::vector<std::uint64_t> numbers;

  Shared(const std::vector<std::uint8_t>& operand, const std::vector<LoopDim>& all,
         const std::vector<bool>& is_shared) {
    std::size_t size = 1;
    for (const std::uint8_t d : operand) {
      if (!is_shared[d]) continue;
      dims.push_back(d);
      size *= static_cast<std::size_t>(all[d].size);
    }
    numbers.assign(size, 0);
  }

  std::uint64_t& at(const std::vector<std::int64_t>& place, const std::vector<LoopDim>& all) {
    std::size_t index = 0;
    for (const std::uint8_t d : dims) {
      index = index * static_cast<std::size_t>(all[d].size) + static_cast<std::size_t>(place[d]);
    }
    return numbers[index];
  }
};

bool advance(std::vector<std::int64_t>& at, const std::vector<LoopDim>& dims) {
  for (std::size_t d = at.size(); d-- > 0;) {
    if (++at[d] < dims[d].size) return true;
    at[d] = 0;
  }
  return false;
}

/// What an op makes of one of its outputs.
void add(const Op& op, const OpLoop& loop, std::size_t output, std::map<TensorId, NumberArray>& values) {
  std::vector<std::uint32_t> operands(loop.dims.size(), 0);  // by dimension: that have it
  std::vector<std::size_t> counted;                          // inputs
  for (std::size_t k = 0; k < op.inputs.size(); ++k) {
    const bool counts = std::ranges::none_of(loop.whole[output], [&](std::uint8_t d) {
      return std::ranges::find(loop.inputs[k], d) != loop.inputs[k].end();
    });
    if (!counts) continue;
    counted.push_back(k);
    for (const std::uint8_t d : loop.inputs[k]) ++operands[d];
  }
  for (const std::uint8_t d : loop.outputs[output]) ++operands[d];
  std::vector<bool> is_shared;
  std::vector<LoopDim> dims = loop.dims;
  for (std::size_t d = 0; d < dims.size(); ++d) {
    is_shared.push_back(operands[d] > 1);
    if (operands[d] <= 1) dims[d].size = 1;
  }
  std::vector<Shared> factors;
  for (const std::size_t k : counted) {
    const NumberArray& read = values.at(op.inputs[k]);
    Shared& factor = factors.emplace_back(loop.inputs[k], dims, is_shared);
    visit(read.shape, loop.inputs[k], dims, is_shared, [&](std::size_t place, std::size_t shared) {
      factor.numbers[shared] = (factor.numbers[shared] + read.numbers[place]) % prime;
    });
  }
  Shared sums(loop.outputs[output], dims, is_shared);
  std::vector<std::int64_t> at(dims.size(), 0);
  do {
    std::uint64_t product = 1;
    for (Shared& factor : factors) product = product * factor.at(at, dims) % prime;
    std::uint64_t& sum = sums.at(at, dims);
    sum = (sum + product) % prime;
  } while (advance(at, dims));
  NumberArray& made = values.at(op.outputs[output]);
  visit(made.shape, loop.outputs[output], dims, is_shared, [&](std::size_t place, std::size_t shared) {
    made.numbers[place] = (made.numbers[place] + sums.numbers[shared]) % prime;
  });
}

NumberArray sum(const std::vector<NumberArray>& parts) {
  NumberArray all = parts.front();
  for (std::size_t p = 1; p < parts.size(); ++p) {
    for (std::size_t n = 0; n < all.numbers.size(); ++n)
      all.numbers[n] = (all.numbers[n] + parts[p].numbers[n]) % prime;
  }
  return all;
}

void run(const Graph& graph, OpId id, std::map<TensorId, NumberArray>& values) {
  const Op& op = graph[id];
  for (std::size_t k = 0; op.kind == merge_kind && k < op.outputs.size(); ++k) {
    values[op.outputs[k]] = sum({values.at(op.inputs[2 * k]), values.at(op.inputs[2 * k + 1])});
  }
  if (op.kind == merge_kind) return;
  const auto found = loop_of(graph, id);
  const OpLoop* loop = std::get_if<OpLoop>(&found);
  if (loop == nullptr) throw std::logic_error(std::get<std::string>(found));
  for (const TensorId t : op.outputs) {
    NumberArray& made = values[t];
    if (made.shape.empty() || graph[t].kind != TensorKind::parameter_gradient) {
      made = {graph[t].shape, std::vector<std::uint64_t>(size_of(graph[t].shape), 0)};
    }
  }
  for (std::size_t k = 0; k < op.outputs.size(); ++k) add(op, *loop, k, values);
}

/// Part `index` of `count` along a dimension.
NumberArray cut(const NumberArray& whole, std::size_t dim, std::uint32_t count, std::uint32_t index) {
  NumberArray part{whole.shape, {}};
  part.shape[dim] /= count;
  std::size_t inner = 1;
  for (std::size_t d = dim + 1; d < whole.shape.size(); ++d) inner *= static_cast<std::size_t>(whole.shape[d]);
  const std::size_t row = static_cast<std::size_t>(whole.shape[dim]) * inner, piece = row / count;
  for (std::size_t begin = 0; begin < whole.numbers.size(); begin += row) {
    const auto first = whole.numbers.begin() + static_cast<std::ptrdiff_t>(begin + index * piece);
    part.numbers.insert(part.numbers.end(), first, first + static_cast<std::ptrdiff_t>(piece));
  }
  return part;
}

NumberArray joined(const std::vector<NumberArray>& parts, std::size_t dim) {
  NumberArray whole{parts.front().shape, {}};
  whole.shape[dim] *= static_cast<std::int64_t>(parts.size());
  std::size_t piece = 1;
  for (std::size_t d = dim; d < parts.front().shape.size(); ++d) {
    piece *= static_cast<std::size_t>(parts.front().shape[d]);
  }
  for (std::size_t begin = 0; begin < parts.front().numbers.size(); begin += piece) {
    for (const NumberArray& part : parts) {
      const auto first = part.numbers.begin() + static_cast<std::ptrdiff_t>(begin);
      whole.numbers.insert(whole.numbers.end(), first, first + static_cast<std::ptrdiff_t>(piece));
    }
  }
  return whole;
}

std::optional<std::size_t> dim_that(const std::vector<std::int64_t>& from, const std::vector<std::int64_t>& to,
                                    bool grows) {
  for (std::size_t d = 0; d < from.size(); ++d) {
    if (grows ? to[d] > from[d] : to[d] < from[d]) return d;
  }
  return std::nullopt;
}

std::uint32_t index_on(const Mesh& mesh, std::size_t axis, std::uint32_t rank) {
  return rank / mesh.stride(axis) % mesh.axes[axis].ranks;
}

/// The ranks that differ from this one along these axes only, in their order.
std::vector<std::uint32_t> group_of(const Mesh& mesh, const std::vector<std::size_t>& axes, std::uint32_t rank) {
  std::vector<std::uint32_t> group;
  for (std::uint32_t other = 0; other < mesh.ranks(); ++other) {
    bool is_of_it = true;
    for (std::size_t a = 0; a < mesh.axes.size(); ++a) {
      const bool may_differ = std::ranges::find(axes, a) != axes.end();
      is_of_it = is_of_it && (may_differ || index_on(mesh, a, other) == index_on(mesh, a, rank));
    }
    if (is_of_it) group.push_back(other);
  }
  return group;
}

/// Of one value of a collective op, or a `share`, whose axes its name tells.
void exchange(const Graph& graph, const Op& op, TensorId from, TensorId to, const std::vector<std::size_t>& axes,
              const Mesh& mesh, std::vector<std::map<TensorId, NumberArray>>& values) {
  const std::optional<OpCollective> what = collective_of(op);
  std::vector<NumberArray> after(mesh.ranks());
  for (std::uint32_t rank = 0; rank < mesh.ranks(); ++rank) {
    const std::vector<std::uint32_t> ranks = group_of(mesh, axes, rank);
    const auto count = static_cast<std::uint32_t>(ranks.size()),
               index = static_cast<std::uint32_t>(std::ranges::find(ranks, rank) - ranks.begin());
    std::vector<NumberArray> group;
    for (const std::uint32_t other : ranks) group.push_back(values[other].at(from));
    const auto grown = dim_that(graph[from].shape, graph[to].shape, true),
               shrunk = dim_that(graph[from].shape, graph[to].shape, false);
    if (!what) {
      after[rank] = cut(group[index], *shrunk, count, index);
      continue;
    }
    switch (what->kind) {
      case CollectiveKind::all_reduce:
        after[rank] = sum(group);
        break;
      case CollectiveKind::reduce_scatter:
        after[rank] = cut(sum(group), *shrunk, count, index);
        break;
      case CollectiveKind::all_gather:
        after[rank] = joined(group, *grown);
        break;
      case CollectiveKind::all_to_all:
        after[rank] = cut(joined(group, *grown), *shrunk, count, index);
        break;
      case CollectiveKind::broadcast:
        after[rank] = group.front();
        break;
      case CollectiveKind::shift:
        after[rank] = group[(index + count - 1) % count];
        break;
    }
  }
  for (std::uint32_t rank = 0; rank < mesh.ranks(); ++rank) values[rank][to] = after[rank];
}

}  // namespace

std::map<TensorId, NumberArray> computed(const Graph& graph, const std::map<TensorId, NumberArray>& given) {
  std::map<TensorId, NumberArray> values = given;
  for (std::size_t o = 0; o < graph.ops.size(); ++o) run(graph, id_at<OpId>(o), values);
  return values;
}

NumberArray share_of(const NumberArray& whole, const std::vector<std::int64_t>& shape, const Mesh& mesh,
                     std::uint32_t rank) {
  NumberArray part = whole;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    std::int64_t factor = whole.shape[d] / shape[d];
    for (std::size_t a = 0; a < mesh.axes.size() && factor > 1; ++a) {
      const std::uint32_t ranks = mesh.axes[a].ranks;
      if (factor % ranks != 0) continue;
      part = cut(part, d, ranks, index_on(mesh, a, rank));
      factor /= ranks;
    }
  }
  return part;
}

std::vector<std::map<TensorId, NumberArray>> computed_on_ranks(const Graph& graph, const Mesh& mesh,
                                                               const std::map<TensorId, NumberArray>& given) {
  std::vector<std::map<TensorId, NumberArray>> values(mesh.ranks());
  for (std::uint32_t rank = 0; rank < mesh.ranks(); ++rank) {
    for (const auto& [t, whole] : given) values[rank][t] = share_of(whole, graph[t].shape, mesh, rank);
  }
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    const std::optional<OpCollective> what = collective_of(op);
    if (!what && op.kind != "share") {
      for (auto& own : values) run(graph, id_at<OpId>(o), own);
      continue;
    }
    if (what && op.outputs.empty() && op.mutates.empty()) continue;  // part of another op's work
    std::string_view names =
        what ? what->axis : std::string_view(op.name).substr(std::string_view("share over ").size());
    names = names.substr(0, names.find(' '));
    for (std::size_t k = 0; k < op.inputs.size(); ++k) {
      const TensorId from = op.inputs[k], to = op.outputs.empty() ? from : op.outputs[k];
      exchange(graph, op, from, to, mesh.axes_named(names), mesh, values);
    }
  }
  return values;
}

NumberArray random_numbers(std::vector<std::int64_t> shape, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  NumberArray made{std::move(shape), {}};
  for (std::size_t n = size_of(made.shape); n > 0; --n) made.numbers.push_back(engine() % prime);
  return made;
}

}  // namespace plimsoll
