#include "validate/cuda/ranks/cuda_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "sim/core/op_kind.h"
#include "sim/mesh/ring_blocks.h"
#include "validate/cuda/cuda_replay.h"
#include "validate/cuda/launch.h"
#include "validate/cuda/ranks/nccl_exchange.h"
#include "validate/networks/op_blocks.h"
#include "validate/ranks/rank_ops.h"
#include "validate/ranks/ranks_together.h"
#include "validate/reference/updates.h"

namespace plimsoll {
namespace {

void release(void* address) {
  static_cast<void>(cudaFree(address));
}

/// On the GPU that is set.
std::shared_ptr<const std::int32_t> on_device(const std::vector<std::int32_t>& numbers) {
  void* made = nullptr;
  const std::size_t bytes = numbers.size() * sizeof(std::int32_t);
  CUDA_CHECK(cudaMalloc(&made, std::max<std::size_t>(bytes, 1)));
  const std::shared_ptr<void> owned(made, release);
  CUDA_CHECK(cudaMemcpy(made, numbers.data(), bytes, cudaMemcpyHostToDevice));
  return {owned, static_cast<const std::int32_t*>(made)};
}

KernelArguments skipping(KernelArguments arguments, const std::vector<std::int64_t>& skipped) {
  for (std::size_t i = 0; i < skipped.size(); ++i) {
    arguments.inputs[i] = static_cast<std::byte*>(arguments.inputs[i]) + skipped[i];
  }
  return arguments;
}

class CudaRankKernels {
 public:
  CudaRankKernels(const RankOps& ops, CudaMachine& machine, bool tf32)
      : ops_(ops), graph_(ops.network().graph), machine_(machine), tf32_(tf32) {}

  std::vector<CudaNetwork> run() {
    judge();
    std::vector<CudaNetwork> made(ops_.mesh().ranks());
    for (std::uint32_t rank = 0; rank < made.size(); ++rank) {
      made[rank].network = ops_.network();
      for (const Op& op : graph_.ops) {
        made[rank].kernels.push_back(exchanges(op) ? CudaKernel{} : kernel_of(op, rank));
        made[rank].host_kernels.push_back(host_kernel(op, rank));
      }
    }
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {  // the same of all, as they have one plan
      Bytes scratch;
      for (const CudaNetwork& rank : made) scratch = std::max(scratch, rank.kernels[o].scratch);
      for (CudaNetwork& rank : made) state_workspace(graph_, rank.network.graph.ops[o], scratch);
    }
    return made;
  }

 private:
  void judge() const {
    const BlocksInGraph blocks(graph_, ops_.mesh());
    for (const Op& op : graph_.ops) {
      if (exchanges(op)) continue;
      if (op.kind == merge_kind || blocks.of(op).are_any()) {
        throw CannotRun{fmt::format(
            "'{}' reads or makes blocks of other ranks, which the CUDA backend does not run; the CPU's does "
            "(--backend cpu)",
            op.name)};
      }
      ops_.judge_statistics(op);
    }
  }

  CudaKernel kernel_of(const Op& op, std::uint32_t rank) const {
    set_gpu(rank);
    if (op.phase == Phase::update) return update_kernel(op, rank);
    const std::optional<OpKind> kind = network_kind(op.kind);
    const RankLayout& made = ops_.layouts()[op.outputs.front().index];
    if (kind == OpKind::cross_entropy_gradient) return loss_gradient(made, rank);
    if (kind == OpKind::fused_attention || kind == OpKind::fused_attention_backward) judge_positions(op, rank);
    Op own = op;
    if (ops_.leaves_bias_out(op, made, rank)) own.inputs.resize(2);
    std::optional<CudaKernel> kernel = made_kernel(graph_, own, rank);
    if (kernel && kernel->run) return *std::move(kernel);
    throw CannotRun{fmt::format("the CUDA backend has no kernel of kind '{}' ('{}')", op.kind, op.name)};
  }

  std::optional<CudaKernel> made_kernel(const Graph& graph, const Op& op, std::uint32_t rank) const {
    const Gpu& gpu = machine_.gpu(rank);
    set_gpu(rank);
    return make_cuda_kernel(graph, op, {*gpu.blas, *gpu.dnn, tf32_});
  }

  /// Of the mean over all ranks' rows, which have their labels.
  CudaKernel loss_gradient(const RankLayout& made, std::uint32_t rank) const {
    const auto classes = static_cast<std::int32_t>(made.shape.back());
    const std::vector<std::int32_t> rows = ops_.rows_of(made, rank);
    return {[labels = on_device(labels_of(rows, nullptr, classes)), rows = static_cast<std::int64_t>(rows.size()),
             classes, share = ops_.share_of_mean(made)](const KernelArguments& a, const Queue& queue) {
              launch::share_of_loss_gradient(a.in(0), labels.get(), rows, classes, share, a.out(), queue.stream);
            },
            {}};
  }

  /// Kernels here mask pairs by their places in what they read.
  void judge_positions(const Op& op, std::uint32_t rank) const {
    const bool is_forward = op.phase == Phase::forward;
    for (const std::size_t input : {is_forward ? 0U : 1U, is_forward ? 1U : 2U}) {
      const std::vector<std::int32_t> positions = ops_.positions(op.inputs[input], rank);
      std::vector<std::int32_t> all(static_cast<std::size_t>(ops_.layouts()[op.inputs[input].index].shape[1]));
      std::iota(all.begin(), all.end(), 0);
      if (positions == all) continue;
      throw CannotRun{
          fmt::format("'{}' has a share of a sequence, of which the CUDA backend has no attention; the CPU's does "
                      "(--backend cpu)",
                      op.name)};
    }
  }

  CudaKernel update_kernel(const Op& op, std::uint32_t rank) const {
    const std::optional<RankUpdate> own = ops_.update_of(op, rank);
    if (!own) return {[](const KernelArguments&, const Queue&) {}, {}};
    std::optional<CudaKernel> kernel = made_kernel(own->numbers, own->op, rank);
    if (!kernel || !kernel->run) {
      throw CannotRun{fmt::format("the CUDA backend has no kernel of kind '{}' ('{}')", op.kind, op.name)};
    }
    return {[run = std::move(kernel->run), skipped = own->skipped](const KernelArguments& a, const Queue& queue) {
              run(skipping(a, skipped), queue);
            },
            kernel->scratch};
  }

  std::function<void(const KernelArguments&)> host_kernel(const Op& op, std::uint32_t rank) const {
    if (exchanges(op) || op.phase != Phase::update) return nullptr;
    const std::optional<RankUpdate> own = ops_.update_of(op, rank);
    if (!own) return [](const KernelArguments&) {};
    return [update = plain_update(own->numbers, own->op), skipped = own->skipped](const KernelArguments& a) {
      update(skipping(a, skipped));
    };
  }

  const RankOps& ops_;
  const Graph& graph_;
  CudaMachine& machine_;
  bool tf32_;
};

class NetworkOnGpus : public RunnableNetwork {
 public:
  NetworkOnGpus(Network whole, const RankOps& ops, std::vector<CudaNetwork> ranks, CudaMachine& machine,
                const CudaOptions& options)
      : together_(std::move(whole), ops.network().graph, ops.layouts(), ops.mesh()),
        ranks_(std::move(ranks)),
        exchange_(ops.network().graph, ops.layouts(), ops.mesh(), machine),
        machine_(machine),
        options_(options) {}

  const Network& network() const override { return ranks_.front().network; }

  std::variant<Replayed, ReplayFailure> run(const Problem& problem, const Schedule& schedule, const ReplayPlan& plan,
                                            const ReplayOptions& options) override {
    if (std::optional<ReplayFailure> refused = refused_on_ranks(problem, schedule)) return *refused;
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      if (ranks_[rank].inputs.size() == schedule.micro_batches) continue;
      RankStart start = together_.start_of(rank, schedule.micro_batches, options);
      ranks_[rank].inputs = std::move(start.batch.inputs);
      ranks_[rank].initial_values = std::move(start.values);
    }
    auto all = replay_ranks_on_cuda(problem, schedule, plan, ranks_, exchange_, machine_, options_.allocation, options);
    if (ReplayFailure* failure = std::get_if<ReplayFailure>(&all)) return std::move(*failure);
    std::vector<RanksTogether::Outcome> outcomes;
    for (Replayed& each : std::get<std::vector<Replayed>>(all)) outcomes.emplace_back(std::move(each));
    return together_.put_together(outcomes);
  }

 private:
  RanksTogether together_;
  std::vector<CudaNetwork> ranks_;
  NcclExchange exchange_;
  CudaMachine& machine_;
  CudaOptions options_;
};

}  // namespace

std::variant<std::unique_ptr<RunnableNetwork>, ReplayFailure> network_on_gpus(Network whole, const Problem& problem,
                                                                              CudaMachine& machine,
                                                                              const CudaOptions& options) {
  const std::size_t ranks = problem.mesh->ranks(), gpus = machine.gpus();
  if (ranks > gpus) {
    return ReplayFailure{
        fmt::format("the plan has {} ranks, this machine {} GPU{}", ranks, gpus, gpus == 1 ? "" : "s")};
  }
  std::variant<RankOps, ReplayFailure> ops = rank_ops(whole, problem);
  if (ReplayFailure* failure = std::get_if<ReplayFailure>(&ops)) return std::move(*failure);
  const RankOps& of_ranks = std::get<RankOps>(ops);
  try {
    std::vector<CudaNetwork> made = CudaRankKernels(of_ranks, machine, options.tf32).run();
    return std::make_unique<NetworkOnGpus>(std::move(whole), of_ranks, std::move(made), machine, options);
  } catch (CannotRun& cannot) {
    return ReplayFailure{std::move(cannot.what)};
  }
}

}  // namespace plimsoll
