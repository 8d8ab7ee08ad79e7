#include "validate/cpu/ranks/rank_replay.h"

#include <optional>
#include <thread>
#include <utility>

#include "validate/cpu/cpu_replay.h"
#include "validate/cpu/kernels/rank_kernels.h"
#include "validate/ranks/ranks_together.h"

namespace plimsoll {
namespace {

class NetworkOnRanks : public RunnableNetwork {
 public:
  NetworkOnRanks(Network whole, RankNetworks made, const Mesh& mesh, BlockPool& pool)
      : together_(std::move(whole), made.ranks.front().network.graph, std::move(made.layouts), mesh),
        ranks_(std::move(made.ranks)),
        pool_(pool) {}

  const Network& network() const override { return ranks_.front().network; }

  std::variant<Replayed, ReplayFailure> run(const Problem& problem, const Schedule& schedule, const ReplayPlan& plan,
                                            const ReplayOptions& options) override {
    if (std::optional<ReplayFailure> refused = refused_on_ranks(problem, schedule)) return *refused;
    std::vector<RanksTogether::Outcome> ran(ranks_.size());
    {
      std::vector<std::jthread> threads;
      for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
        threads.emplace_back([&, rank] {
          const RankStart start = together_.start_of(rank, schedule.micro_batches, options);
          ReplayOptions own = options;
          own.batch = &start.batch;
          own.start = &start.values;
          ran[rank] = replay_on_cpu(problem, schedule, plan, ranks_[rank], pool_, own);
        });
      }
    }
    return together_.put_together(ran);
  }

 private:
  RanksTogether together_;
  std::vector<CpuNetwork> ranks_;
  BlockPool& pool_;
};

}  // namespace

std::variant<std::unique_ptr<RunnableNetwork>, ReplayFailure> network_on_ranks(Network whole, const Problem& problem,
                                                                               BlockPool& pool) {
  std::variant<RankNetworks, ReplayFailure> made = rank_networks(whole, problem);
  if (const auto* failure = std::get_if<ReplayFailure>(&made)) return *failure;
  return std::make_unique<NetworkOnRanks>(std::move(whole), std::get<RankNetworks>(std::move(made)), *problem.mesh,
                                          pool);
}

}  // namespace plimsoll
