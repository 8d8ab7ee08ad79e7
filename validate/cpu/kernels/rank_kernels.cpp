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
#include "validate/ranks/rank_ops.h"
#include "validate/reference/elementwise.h"
#include "validate/reference/fused_attention.h"
#include "validate/reference/updates.h"

namespace plimsoll {
namespace {

class RankKernels {
 public:
  explicit RankKernels(RankOps ops) : ops_(std::move(ops)), meeting_(std::make_shared<RankMeeting>()), wide_(graph()) {
    const BlocksInGraph blocks(graph(), mesh());
    for (const Op& op : graph().ops) in_blocks_.push_back(on_blocks_of(op, blocks.of(op)));
  }

  RankNetworks run() {
    CpuNetwork common{ops_.network(), {}, {}};
    for (std::size_t o = 0; o < graph().ops.size(); ++o) {
      Op& op = common.network.graph.ops[o];
      const bool is_local = !exchanges(op) && op.phase != Phase::update;
      common.kernels.push_back(is_local ? local_kernel(in_blocks_[o] ? in_blocks_[o]->whole : op) : Kernel{});
      const Bytes scratch = common.kernels.back().scratch;
      state_workspace(graph(), op, in_blocks_[o] ? scratch_on_blocks(scratch, wide_, *in_blocks_[o]) : scratch);
    }
    common.give_up = [meeting = meeting_] { meeting->give_up(); };
    RankNetworks made{std::vector<CpuNetwork>(mesh().ranks(), common), {}};
    for (std::uint32_t o = 0; o < graph().ops.size(); ++o) {
      const Op& op = graph().ops[o];
      const auto values = exchanges(op) && !is_shift(op) ? value_exchanges(graph(), op, ops_.layouts(), mesh())
                                                         : std::vector<ValueExchange>{};
      for (std::uint32_t rank = 0; rank < mesh().ranks(); ++rank) {
        Kernel& kernel = made.ranks[rank].kernels[o];
        if (exchanges(op)) {
          kernel.run = is_shift(op) ? shift_kernel(OpId{o}, rank) : exchange_kernel(OpId{o}, values, rank);
        } else if (op.phase == Phase::update) {
          kernel.run = update_kernel(op, rank);
        } else {
          adapt(kernel, in_blocks_[o] ? in_blocks_[o]->whole : op, ops_.layouts()[op.outputs.front().index], rank);
          if (in_blocks_[o]) kernel = on_blocks(kernel, wide_, *in_blocks_[o], mesh(), rank);
        }
      }
    }
    made.layouts = ops_.layouts();
    return made;
  }

 private:
  /// Nothing for an op that has all operands as the network's op has its own.
  std::optional<OpOnBlocks> on_blocks_of(const Op& op, const OpBlocks& blocks) {
    if (!blocks.are_any()) return std::nullopt;
    std::variant<OpOnBlocks, std::string> made = op_on_blocks(wide_, op, blocks, ops_.layouts(), mesh());
    if (std::string* why = std::get_if<std::string>(&made)) throw CannotRun{std::move(*why)};
    return std::get<OpOnBlocks>(std::move(made));
  }

  /// Adds what a block has made, in place. Of a fused attention both are shares of the same softmax.
  Kernel merge_kernel(const Op& op) const {
    std::vector<std::int64_t> numbers;
    for (const TensorId t : op.outputs) numbers.push_back(graph()[t].bytes.count / 4);
    if (is_backward(op.phase)) {
      return {[numbers](const KernelArguments& a) {
                for (std::size_t k = 0; k < numbers.size(); ++k)
                  plain::accumulate(a.out(k), a.in(2 * k + 1), numbers[k]);
              },
              {}};
    }
    const Tensor &mixed = graph()[op.outputs[0]], &sums = graph()[op.outputs[1]];
    const FusedSizes sizes{.batch = mixed.shape[0],
                           .heads = sums.shape[1],
                           .size = mixed.shape[2] / sums.shape[1],
                           .queries = mixed.shape[1]};
    return {[sizes](const KernelArguments& a) { plain::merge_attention(sizes, a.out(0), a.out(1), a.in(1), a.in(3)); },
            {}};
  }

  Kernel local_kernel(const Op& op) const {
    if (op.kind == merge_kind) return merge_kernel(op);
    ops_.judge_statistics(op);
    std::optional<Kernel> kernel = make_kernel(wide_, op);
    if (!kernel) throw CannotRun{fmt::format("the CPU backend has no kernel of kind '{}' ('{}')", op.kind, op.name)};
    return *std::move(kernel);
  }

  /// What a kernel does otherwise because others have the rest: of a sum the first rank alone adds the bias, and a mean
  /// is that of all rows. `made`: how the op's output lies.
  void adapt(Kernel& kernel, const Op& op, const RankLayout& made, std::uint32_t rank) const {
    const std::optional<OpKind> kind = network_kind(op.kind);
    if (ops_.leaves_bias_out(op, made, rank)) {
      const auto numbers = static_cast<std::size_t>(graph()[op.inputs[2]].bytes.count / 4);
      kernel.run = [run = kernel.run, nothing = std::vector<float>(numbers)](const KernelArguments& given) mutable {
        KernelArguments arguments = given;
        arguments.inputs[2] = nothing.data();
        run(arguments);
      };
    }
    if (kind == OpKind::fused_attention || kind == OpKind::fused_attention_backward) at_own_positions(kernel, op, rank);
    if (kind == OpKind::cross_entropy) kernel.rows = ops_.rows_of(made, rank);
    if (kind != OpKind::cross_entropy_gradient) return;
    kernel.run = [run = kernel.run, share = ops_.share_of_mean(made), numbers = made.local_bytes(mesh()).count / 4,
                  rows = ops_.rows_of(made, rank),
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
    const std::vector<std::int32_t> queries = ops_.positions(op.inputs[is_forward ? 0 : 1], rank),
                                    keys = ops_.positions(op.inputs[is_forward ? 1 : 2], ops_.maker_of_block(op, rank));
    kernel.run = [=, s = fused_sizes(graph(), op)](const KernelArguments& a) {
      FusedSizes sizes = s;
      sizes.query_at = queries.data();
      sizes.key_at = keys.data();
      if (is_forward) return plain::fused_attention(sizes, a.in(0), a.in(1), a.out(), a.out(1));
      plain::fused_attention_backward(sizes, {a.in(0), a.in(1), a.in(2), a.in(3), a.in(4)}, a.out(), a.out(1));
    };
  }

  std::function<void(const KernelArguments&)> exchange_kernel(OpId id, const std::vector<ValueExchange>& values,
                                                              std::uint32_t rank) const {
    const Op& op = graph()[id];
    const std::vector<std::uint32_t> group = exchanging_group(op, mesh(), rank);
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
    const Op& op = graph()[id];
    const std::vector<std::uint32_t> group = exchanging_group(op, mesh(), rank);
    const auto place = static_cast<std::size_t>(std::ranges::find(group, rank) - group.begin());
    std::vector<std::size_t> bytes;
    for (const TensorId t : op.inputs) bytes.push_back(static_cast<std::size_t>(graph()[t].bytes.count));
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
    const std::optional<RankUpdate> own = ops_.update_of(op, rank);
    if (!own) return [](const KernelArguments&) {};
    return [update = plain_update(own->numbers, own->op), skipped = own->skipped](const KernelArguments& given) {
      KernelArguments arguments = given;
      for (std::size_t i = 0; i < skipped.size(); ++i) {
        arguments.inputs[i] = static_cast<std::byte*>(arguments.inputs[i]) + skipped[i];
      }
      update(arguments);
    };
  }

  const Graph& graph() const { return ops_.network().graph; }
  const Mesh& mesh() const { return ops_.mesh(); }

  RankOps ops_;
  std::shared_ptr<RankMeeting> meeting_;
  Graph wide_;                                        // with operands that are put together of blocks
  std::vector<std::optional<OpOnBlocks>> in_blocks_;  // by op
};

}  // namespace

std::variant<RankNetworks, ReplayFailure> rank_networks(const Network& whole, const Problem& problem) {
  std::variant<RankOps, ReplayFailure> ops = rank_ops(whole, problem);
  if (ReplayFailure* failure = std::get_if<ReplayFailure>(&ops)) return std::move(*failure);
  use_one_thread();
  try {
    return RankKernels(std::get<RankOps>(std::move(ops))).run();
  } catch (CannotRun& cannot) {
    return ReplayFailure{std::move(cannot.what)};
  }
}

}  // namespace plimsoll
