#pragma once
// What ranks on GPUs exchange, by NCCL: each rank has one stream for all of its exchanges, so that every rank runs them
// in the same order, whichever streams of the schedule they are of. Events order them among what the rank computes.

#include <optional>
#include <span>
#include <vector>

#include "sim/core/graph.h"
#include "sim/core/mesh.h"
#include "validate/cuda/cuda_machine.h"
#include "validate/cuda/cuda_replay.h"
#include "validate/cuda/ranks/communicators.h"
#include "validate/cuda/ranks/group_exchange.h"

namespace plimsoll {

class NcclExchange : public RankExchanges {
 public:
  /// Of the graph that ranks run; rank r is GPU r.
  NcclExchange(const Graph& rank, const std::vector<RankLayout>&, const Mesh&, CudaMachine&);
  ~NcclExchange() override;

  bool exchanges(OpId op) const override { return !ops_[op.index].empty(); }
  void begin_run(bool poisons) override;
  void issue(OpId, std::span<const RankCall> by_rank) override;

 private:
  /// Of one group, with the op's values.
  struct GroupWork {
    std::vector<std::uint32_t> ranks;
    std::vector<ncclComm_t> communicators;  // none of a rank alone
    std::vector<GroupExchange> values;
  };
  struct Rank {
    OwnedStream stream;
    std::byte* staging = nullptr;
  };
  /// Addresses of one value of a rank.
  struct Ends {
    std::byte *from = nullptr, *to = nullptr, *out = nullptr, *in = nullptr;  // tensors; staging
  };

  std::int64_t staging_bytes(const GroupWork&) const;
  std::vector<Ends> ends_of(const GroupWork&, std::size_t place, const KernelArguments&) const;
  void call(const GroupWork&, std::size_t value, std::size_t place, const Ends&);
  void order(cudaStream_t first, cudaStream_t second, std::uint32_t rank);

  CudaMachine& machine_;
  Communicators communicators_;
  std::vector<std::vector<GroupWork>> ops_;  // by op; none: it exchanges nothing
  std::vector<Rank> ranks_;
  Bytes staging_;
  std::vector<OwnedEvent> events_;  // of this run
};

}  // namespace plimsoll
