#include "validate/cuda/cuda_backend.h"

#include <fmt/format.h>

#include <optional>

#include "validate/cuda/cuda_machine.h"
#include "validate/cuda/cuda_network.h"
#include "validate/cuda/cuda_rates.h"
#include "validate/cuda/cuda_replay.h"
#ifdef PLIMSOLL_NCCL
#include "validate/cuda/ranks/cuda_ranks.h"
#include "validate/cuda/ranks/nccl_rates.h"
#endif

namespace plimsoll {
namespace {

Libraries libraries_of(CudaMachine& machine, const CudaOptions& options) {
  const Gpu& gpu = machine.gpu(0);
  return {*gpu.blas, *gpu.dnn, options.tf32};
}

class RunnableCudaNetwork : public RunnableNetwork {
 public:
  RunnableCudaNetwork(Network network, CudaMachine& machine, const CudaOptions& options)
      : machine_(machine), options_(options) {
    set_gpu(0);
    made_ = with_cuda_kernels(std::move(network), libraries_of(machine, options));
  }

  const Network& network() const override { return made_.network; }
  std::variant<Replayed, ReplayFailure> run(const Problem& problem, const Schedule& schedule, const ReplayPlan& plan,
                                            const ReplayOptions& options) override {
    return replay_on_cuda(problem, schedule, plan, made_, machine_, options_.allocation, options);
  }

 private:
  CudaMachine& machine_;
  CudaOptions options_;
  CudaNetwork made_;
};

/// What fails outside a run has no step to be named: one line, as for a missing GPU.
template <class Work>
auto told(Work work) {
  try {
    return work();
  } catch (const CudaError& error) {
    throw BackendError(error.what());
  }
}

class CudaBackend : public Backend {
 public:
  explicit CudaBackend(const CudaOptions& options) : options_(options) {}

  std::unique_ptr<RunnableNetwork> prepared(Network network) override {
    if (network.before != nullptr) throw BackendError("the CUDA backend does not train on stored outputs yet");
    if (!network.slices.empty()) throw BackendError("the CUDA backend does not run slices of sequences yet");
    return told([&] { return std::make_unique<RunnableCudaNetwork>(std::move(network), machine_, options_); });
  }
  std::variant<std::unique_ptr<RunnableNetwork>, ReplayFailure> prepared_on_ranks(
      [[maybe_unused]] Network network, [[maybe_unused]] const Problem& problem) override {
#ifdef PLIMSOLL_NCCL
    return told([&] { return network_on_gpus(std::move(network), problem, machine_, options_); });
#else
    return ReplayFailure{
        "ranks on several GPUs exchange by NCCL, whose header this build had not; the CPU's do without (--backend "
        "cpu)"};
#endif
  }
  /// Copies take what they take: the paces are not kept to.
  std::optional<MachineRates> measure(LinkPace, LinkPace, std::size_t repetitions, const Proceed& proceed) override {
    return told([&] { return measure_gpu(machine_, libraries_of(machine_, options_), {}, repetitions, proceed); });
  }
  MeasuredRate exchange_seconds([[maybe_unused]] CollectiveKind kind, std::uint32_t ranks, [[maybe_unused]] Bytes bytes,
                                [[maybe_unused]] std::size_t repetitions) override {
    const std::size_t gpus = machine_.gpus();
    if (ranks > gpus) throw BackendError(fmt::format("{} ranks need as many GPUs, this machine has {}", ranks, gpus));
#ifdef PLIMSOLL_NCCL
    return told([&] {
      if (!communicators_) communicators_.emplace();
      return nccl_exchange_seconds(machine_, *communicators_, kind, ranks, bytes, repetitions);
    });
#else
    throw BackendError("several GPUs exchange by NCCL, whose header this build had not");
#endif
  }
  std::string device() const override {
    return told(gpu_name);
  }
  std::string library() const override {
    const bool caching = options_.allocation == Allocation::caching;
    return told(gpu_libraries) + (options_.tf32 ? ", TF32" : "") +
           (caching ? ", caching allocation" : ", stream-ordered allocation");
  }

 private:
  CudaOptions options_;
  CudaMachine machine_;
#ifdef PLIMSOLL_NCCL
  std::optional<Communicators> communicators_;
#endif
};

}  // namespace

std::unique_ptr<Backend> cuda_backend(const CudaOptions& options) {
  return std::make_unique<CudaBackend>(options);
}

}  // namespace plimsoll
