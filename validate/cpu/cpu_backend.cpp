#include "validate/cpu/cpu_backend.h"

#include "validate/cpu/cpu_replay.h"
#include "validate/cpu/machine_rates.h"
#include "validate/cpu/ranks/rank_replay.h"
#include "validate/cpu/ranks/thread_rates.h"

namespace plimsoll {
namespace {

class CpuBackend : public Backend {
 public:
  std::unique_ptr<RunnableNetwork> prepared(Network network) override {
    return std::make_unique<RunnableCpuNetwork>(with_kernels(std::move(network)), pool_);
  }
  std::variant<std::unique_ptr<RunnableNetwork>, ReplayFailure> prepared_on_ranks(Network network,
                                                                                  const Problem& problem) override {
    return network_on_ranks(std::move(network), problem, pool_);
  }
  std::optional<MachineRates> measure(LinkPace to_host, LinkPace to_device, std::size_t repetitions,
                                      const Proceed& proceed) override {
    return measure_machine(to_host, to_device, repetitions, proceed);
  }
  MeasuredRate exchange_seconds(CollectiveKind kind, std::uint32_t ranks, Bytes bytes,
                                std::size_t repetitions) override {
    return thread_exchange_seconds(kind, ranks, bytes, repetitions);
  }
  std::string device() const override { return this_processor(); }
  std::string library() const override { return kernel_library() + ", one thread a stream"; }

 private:
  BlockPool pool_;
};

}  // namespace

std::variant<Replayed, ReplayFailure> RunnableCpuNetwork::run(const Problem& problem, const Schedule& schedule,
                                                              const ReplayPlan& plan, const ReplayOptions& options) {
  return replay_on_cpu(problem, schedule, plan, made_, pool_, options);
}

std::unique_ptr<Backend> cpu_backend() {
  return std::make_unique<CpuBackend>();
}

}  // namespace plimsoll
