#pragma once
// Runs a schedule with real tensors and kernels on GPUs: its streams and waits are CUDA's, one host thread issues the
// steps, events around each give its dates.

#include <span>
#include <variant>
#include <vector>

#include "sim/model/problem.h"
#include "validate/cuda/cuda_backend.h"
#include "validate/cuda/cuda_machine.h"
#include "validate/cuda/cuda_network.h"
#include "validate/replay_plan.h"
#include "validate/replayed.h"

namespace plimsoll {

/// `plan` is that of the schedule and of the network of `cuda`. Devices of the platform are GPUs 0, 1, ... After a
/// failure all device memory has been given back.
std::variant<Replayed, ReplayFailure> replay_on_cuda(const Problem&, const Schedule&, const ReplayPlan& plan,
                                                     CudaNetwork& cuda, CudaMachine&, Allocation, const ReplayOptions&);

/// What a rank brings to an exchange: its tensors, and the stream that has made what is in them and reads what comes.
struct RankCall {
  KernelArguments arguments;
  cudaStream_t stream = nullptr;
};

/// Who carries what ranks exchange.
class RankExchanges {
 public:
  RankExchanges() = default;
  virtual ~RankExchanges() = default;
  RankExchanges(const RankExchanges&) = delete;
  RankExchanges& operator=(const RankExchanges&) = delete;

  virtual bool exchanges(OpId) const = 0;
  /// Nothing is on its way.
  virtual void begin_run(bool poisons) = 0;
  /// Of all ranks, in their order: behind what their streams have done so far, and before what they do next.
  virtual void issue(OpId, std::span<const RankCall> by_rank) = 0;
};

/// The same schedule of one device by each rank in step, rank r on GPU r. By rank.
std::variant<std::vector<Replayed>, ReplayFailure> replay_ranks_on_cuda(const Problem&, const Schedule&,
                                                                        const ReplayPlan& plan,
                                                                        std::span<CudaNetwork> ranks, RankExchanges&,
                                                                        CudaMachine&, Allocation, const ReplayOptions&);

}  // namespace plimsoll
