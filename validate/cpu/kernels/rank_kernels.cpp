#include "validate/cpu/kernels/rank_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "sim/core/collective_op.h"
#include "sim/core/names.h"
#include "sim/core/op_attribute.h"
#include "sim/core/op_kind.h"
#include "sim/mesh/ring_blocks.h"
#include "validate/cpu/ranks/block_kernels.h"
#include "validate/cpu/ranks/rank_exchange.h"
#include "validate/cpu/ranks/rank_meeting.h"
#include "validate/reference/elementwise.h"
#include "validate/reference/fused_attention.h"
#include "validate/reference/updates.h"

namespace plimsoll {
namespace {

struct CannotRun {
  std::string what;
};

bool is_shift(const Op& op) {
  return collective_of(op) && collective_of(op)->kind == CollectiveKind::shift;
}

bool exchanges(const Op& op) {
  return collective_of(op) || op_kind(op) == OpKind::share;
}

/// Whether along some axis on which the tensor is a partial sum another rank comes before this one.
bool adds_to_a_sum(const RankLayout& of, const Mesh& mesh, std::uint32_t rank) {
  for (std::size_t a = 0; a < of.layout.size(); ++a) {
    if (of.layout[a].kind == AxisLayout::Kind::partial && place_along(mesh, a, rank) > 0) return true;
  }
  return false;
}

class RankKernels {
 public:
  RankKernels(const Network& whole, const Problem& problem, std::vector<RankLayout> layouts)
      : mesh_(*problem.mesh),
        layouts_(std::move(layouts)),
        network_{problem.graph, whole.stage_names, whole.boundaries, nullptr},
        meeting_(std::make_shared<RankMeeting>()),
        wide_(problem.graph) {
    for (Op& op : network_.graph.ops) take_own_heads(op);
    const BlocksInGraph blocks(problem.graph, mesh_);
    for (const Op& op : network_.graph.ops) in_blocks_.push_back(on_blocks_of(op, blocks.of(op)));
  }

  RankNetworks run() {
    CpuNetwork common{network_, {}, {}};
    for (std::size_t o = 0; o < network_.graph.ops.size(); ++o) {
      Op& op = common.network.graph.ops[o];
      const bool is_local = !exchanges(op) && op.phase != Phase::update;
      common.kernels.push_back(is_local ? local_kernel(in_blocks_[o] ? in_blocks_[o]->whole : op) : Kernel{});
      const Bytes scratch = common.kernels.back().scratch;
      state_workspace(network_.graph, op, in_blocks_[o] ? scratch_on_blocks(scratch, wide_, *in_blocks_[o]) : scratch);
    }
    common.give_up = [meeting = meeting_] { meeting->give_up(); };
    RankNetworks made{std::vector<CpuNetwork>(mesh_.ranks(), common), {}};
    for (std::uint32_t o = 0; o < network_.graph.ops.size(); ++o) {
      const Op& op = network_.graph.ops[o];
      const auto values = exchanges(op) && !is_shift(op) ? value_exchanges(network_.graph, op, layouts_, mesh_)
                                                         : std::vector<ValueExchange>{};
      for (std::uint32_t rank = 0; rank < mesh_.ranks(); ++rank) {
        Kernel& kernel = made.ranks[rank].kernels[o];
        if (exchanges(op)) {
          kernel.run = is_shift(op) ? shift_kernel(OpId{o}, rank) : exchange_kernel(OpId{o}, values, rank);
        } else if (op.phase == Phase::update) {
          kernel.run = update_kernel(op, rank);
        } else {
          adapt(kernel, in_blocks_[o] ? in_blocks_[o]->whole : op, layouts_[op.outputs.front().index], rank);
          if (in_blocks_[o]) kernel = on_blocks(kernel, wide_, *in_blocks_[o], mesh_, rank);
        }
      }
    }
    made.layouts = std::move(layouts_);
    return made;
  }

 private:
  /// Nothing for an op that has all operands as the network's op has its own.
  std::optional<OpOnBlocks> on_blocks_of(const Op& op, const OpBlocks& blocks) {
    if (!blocks.are_any()) return std::nullopt;
    std::variant<OpOnBlocks, std::string> made = op_on_blocks(wide_, op, blocks, layouts_, mesh_);
    if (std::string* why = std::get_if<std::string>(&made)) throw CannotRun{std::move(*why)};
    return std::get<OpOnBlocks>(std::move(made));
  }

  /// Heads of an attention are those that the rank has.
  void take_own_heads(Op& op) const {
    for (auto& [name, value] : op.attributes) {
      if (name != "heads") continue;
      for (const auto* list : {&op.inputs, &op.outputs}) {
        for (const TensorId t : *list) {
          const std::vector<std::int64_t>& shape = network_.graph[t].shape;
          if (shape.size() == 4) value = std::to_string(shape[1]);  // scores or weights: (batch, heads, sequence, ...)
        }
      }
    }
  }

  /// Adds what a block has made, in place. Of a fused attention both are shares of the same softmax.
  Kernel merge_kernel(const Op& op) const {
    std::vector<std::int64_t> numbers;
    for (const TensorId t : op.outputs) numbers.push_back(network_.graph[t].bytes.count / 4);
    if (is_backward(op.phase)) {
      return {[numbers](const KernelArguments& a) {
                for (std::size_t k = 0; k < numbers.size(); ++k)
                  plain::accumulate(a.out(k), a.in(2 * k + 1), numbers[k]);
              },
              {}};
    }
    const Tensor &mixed = network_.graph[op.outputs[0]], &sums = network_.graph[op.outputs[1]];
    const FusedSizes sizes{.batch = mixed.shape[0],
                           .heads = sums.shape[1],
                           .size = mixed.shape[2] / sums.shape[1],
                           .queries = mixed.shape[1]};
    return {[sizes](const KernelArguments& a) { plain::merge_attention(sizes, a.out(0), a.out(1), a.in(1), a.in(3)); },
            {}};
  }

  Kernel local_kernel(const Op& op) const {
    if (op.kind == merge_kind) return merge_kernel(op);
    const bool moves_statistics = attribute_of(op, statistics_attribute).has_value();
    for (const TensorId t : op.outputs) {
      if (!moves_statistics) break;
      const Layout& layout = layouts_[t.index].layout;
      if (std::ranges::any_of(layout, [](const auto& a) { return a.kind != AxisLayout::Kind::whole; }))
        throw CannotRun{
            fmt::format("'{}' is cut, and its running statistics are not, which the replay does not support", op.name)};
    }
    std::optional<Kernel> kernel = make_kernel(wide_, op);
    if (!kernel) throw CannotRun{fmt::format("the CPU backend has no kernel of kind '{}' ('{}')", op.kind, op.name)};
    return *std::move(kernel);
  }

  /// What a kernel does otherwise because others have the rest: of a sum the first rank alone adds the bias, and a mean
  /// is that of all rows. `made`: how the op's output lies.
  void adapt(Kernel& kernel, const Op& op, const RankLayout& made, std::uint32_t rank) const {
    const std::optional<OpKind> kind = network_kind(op.kind);
    if (kind == OpKind::linear && op.inputs.size() > 2 && adds_to_a_sum(made, mesh_, rank)) {
      const auto numbers = static_cast<std::size_t>(network_.graph[op.inputs[2]].bytes.count / 4);
      kernel.run = [run = kernel.run, nothing = std::vector<float>(numbers)](const KernelArguments& given) mutable {
        KernelArguments arguments = given;
        arguments.inputs[2] = nothing.data();
        run(arguments);
      };
    }
    if (kind == OpKind::fused_attention || kind == OpKind::fused_attention_backward) at_own_positions(kernel, op, rank);
    if (kind == OpKind::cross_entropy) kernel.rows = rows_of(made, rank);
    if (kind != OpKind::cross_entropy_gradient) return;
    const Bytes local = made.local_bytes(mesh_), whole = made.whole_bytes();
    const auto share = static_cast<float>(static_cast<double>(local.count) / static_cast<double>(whole.count));
    kernel.run = [run = kernel.run, share, numbers = local.count / 4, rows = rows_of(made, rank),
                  classes = static_cast<std::int32_t>(made.shape.back())](const KernelArguments& given) {
      KernelArguments arguments = given;
      const std::vector<std::int32_t> labels = labels_of(rows, given.labels, classes);
      arguments.labels = labels.data();
      run(arguments);
      for (std::int64_t i = 0; i < numbers; ++i) arguments.out()[i] *= share;
    };
  }

  /// Queries and keys see each other by their places in the whole sequence.
  void at_own_positions(Kernel& kernel, const Op& op, std::uint32_t rank) const {
    const bool is_forward = op.phase == Phase::forward;
    const auto positions = [&](TensorId t, std::uint32_t of) {
      const std::vector<std::int64_t> indices = indices_of(layouts_[t.index], mesh_, of, 1);
      return std::vector<std::int32_t>(indices.begin(), indices.end());
    };
    const std::vector<std::int32_t> queries = positions(op.inputs[is_forward ? 0 : 1], rank),
                                    keys = positions(op.inputs[is_forward ? 1 : 2], maker_of_block(op, rank));
    kernel.run = [=, s = fused_sizes(network_.graph, op)](const KernelArguments& a) {
      FusedSizes sizes = s;
      sizes.query_at = queries.data();
      sizes.key_at = keys.data();
      if (is_forward) return plain::fused_attention(sizes, a.in(0), a.in(1), a.out(), a.out(1));
      plain::fused_attention_backward(sizes, {a.in(0), a.in(1), a.in(2), a.in(3), a.in(4)}, a.out(), a.out(1));
    };
  }

  /// Whose keys and values a rank computes with: those of a block come from so many places before it.
  std::uint32_t maker_of_block(const Op& op, std::uint32_t rank) const {
    const auto ring = attribute_of(op, ring_key);
    if (!ring) return rank;
    const std::size_t axis = *mesh_.axis(*ring);
    const std::uint32_t ranks = mesh_.axes[axis].ranks, place = place_along(mesh_, axis, rank);
    const auto block = static_cast<std::uint32_t>(whole_attribute(op, block_key));
    return rank + (place + ranks - block) % ranks * mesh_.stride(axis) - place * mesh_.stride(axis);
  }

  /// Of a tensor of (rows, classes): which of all rows the rank has.
  std::vector<std::int32_t> rows_of(RankLayout rows, std::uint32_t rank) const {
    rows.shape.pop_back();
    rows.each_number = Bytes{sizeof(std::int32_t)};
    std::vector<std::int32_t> made;
    for (const RankPiece& piece : pieces_of(rows, mesh_, rank)) {
      for (std::int64_t at = 0; at < piece.bytes; at += rows.each_number.count) {
        made.push_back(static_cast<std::int32_t>((piece.whole + at) / rows.each_number.count));
      }
    }
    return made;
  }

  /// Of these rows; `of_all`: of the whole batch, null: a row's number modulo the classes.
  static std::vector<std::int32_t> labels_of(const std::vector<std::int32_t>& rows, const std::int32_t* of_all,
                                             std::int32_t classes) {
    std::vector<std::int32_t> labels;
    for (const std::int32_t row : rows) labels.push_back(of_all == nullptr ? row % classes : of_all[row]);
    return labels;
  }

  std::function<void(const KernelArguments&)> exchange_kernel(OpId id, const std::vector<ValueExchange>& values,
                                                              std::uint32_t rank) const {
    const Op& op = network_.graph[id];
    std::vector<std::uint32_t> group{rank};
    if (collective_of(op)) group = group_of(mesh_, mesh_.axes_named(collective_of(op)->axis), rank);
    const auto place = static_cast<std::size_t>(std::ranges::find(group, rank) - group.begin());
    const auto work = [values, group](RankMeeting::Brought brought) {
      for (std::size_t k = 0; k < values.size(); ++k) {
        std::vector<const std::byte*> from;
        std::vector<std::byte*> to;
        for (const KernelArguments* each : brought) {
          from.push_back(static_cast<const std::byte*>(each->inputs[k]));
          to.push_back(static_cast<std::byte*>(each->outputs.empty() ? each->inputs[k] : each->outputs[k]));
        }
        exchange(values[k], group, from, to);
      }
    };
    return [=, meeting = meeting_, occurrence = std::uint32_t{0}](const KernelArguments& arguments) mutable {
      meeting->meet({id, occurrence++, group.front()}, place, group.size(), arguments, work);
    };
  }

  /// What a rank hands on goes to the next one.
  std::function<void(const KernelArguments&)> shift_kernel(OpId id, std::uint32_t rank) const {
    const Op& op = network_.graph[id];
    const std::vector<std::uint32_t> group = group_of(mesh_, mesh_.axes_named(collective_of(op)->axis), rank);
    const auto place = static_cast<std::size_t>(std::ranges::find(group, rank) - group.begin());
    std::vector<std::size_t> bytes;
    for (const TensorId t : op.inputs) bytes.push_back(static_cast<std::size_t>(network_.graph[t].bytes.count));
    const auto work = [bytes](RankMeeting::Brought brought) {
      for (std::size_t g = 0; g < brought.size(); ++g) {
        const KernelArguments& next = *brought[(g + 1) % brought.size()];
        for (std::size_t k = 0; k < bytes.size(); ++k) std::memcpy(next.outputs[k], brought[g]->inputs[k], bytes[k]);
      }
    };
    return [=, meeting = meeting_, occurrence = std::uint32_t{0}](const KernelArguments& arguments) mutable {
      meeting->meet({id, occurrence++, group.front()}, place, group.size(), arguments, work);
    };
  }

  /// Of what the rank has of a parameter, or of the range of it that it keeps up to date.
  std::function<void(const KernelArguments&)> update_kernel(const Op& op, std::uint32_t rank) const {
    const std::string_view optimizer = attribute_of(op, "optimizer").value_or(std::string_view());
    if (!from_name<Optimizer>(optimizer)) {
      throw CannotRun{
          fmt::format("'{}' is an update by '{}', which the replay does not make on ranks", op.name, optimizer)};
    }
    const RankLayout& parameter = layouts_[op.inputs.front().index];
    RankPiece part{0, 0, parameter.local_bytes(mesh_).count};
    for (const TensorId t : op.inputs) {
      if (!layouts_[t.index].range) continue;
      const std::vector<RankPiece> range = range_of(Bytes{part.bytes}, *layouts_[t.index].range, mesh_, rank);
      if (range.empty()) return [](const KernelArguments&) {};  // there are more ranks than numbers
      part = range.front();
      break;
    }
    Graph numbers;
    Op own = op;
    std::vector<std::int64_t> skipped;  // by input: of a whole one, what comes before the part
    for (TensorId& t : own.inputs) {
      skipped.push_back(layouts_[t.index].range ? 0 : part.own);
      Tensor tensor = network_.graph[t];
      tensor.bytes = Bytes{part.bytes};
      t = id_at<TensorId>(numbers.tensors.size());
      numbers.tensors.push_back(std::move(tensor));
    }
    return [update = plain_update(numbers, own), skipped](const KernelArguments& given) {
      KernelArguments arguments = given;
      for (std::size_t i = 0; i < skipped.size(); ++i) {
        arguments.inputs[i] = static_cast<std::byte*>(arguments.inputs[i]) + skipped[i];
      }
      update(arguments);
    };
  }

  const Mesh& mesh_;
  std::vector<RankLayout> layouts_;
  Network network_;
  std::shared_ptr<RankMeeting> meeting_;
  Graph wide_;                                        // with operands that are put together of blocks
  std::vector<std::optional<OpOnBlocks>> in_blocks_;  // by op
};

}  // namespace

std::variant<RankNetworks, ReplayFailure> rank_networks(const Network& whole, const Problem& problem) {
  if (problem.chain) {
    return ReplayFailure{
        fmt::format("'{}' is planned by stages, within which ranks exchange: the replay runs ranks of a "
                    "graph of ops only",
                    problem.graph.name)};
  }
  for (const Op& op : whole.graph.ops) {
    if (!attribute_of(op, transposed_attribute)) continue;
    return ReplayFailure{fmt::format(
        "'{}' has the weight of another layer (tied=yes), which ranks of the replay do not share out", op.name)};
  }
  std::variant<std::vector<RankLayout>, std::string> layouts = rank_layouts(whole.graph, problem.graph, *problem.mesh);
  if (std::string* why = std::get_if<std::string>(&layouts)) return ReplayFailure{std::move(*why)};
  use_one_thread();
  try {
    return RankKernels(whole, problem, std::get<std::vector<RankLayout>>(std::move(layouts))).run();
  } catch (CannotRun& cannot) {
    return ReplayFailure{std::move(cannot.what)};
  }
}

}  // namespace plimsoll
