#include "validate/cuda/cuda_backend.h"

#include "validate/cuda/cuda_machine.h"
#include "validate/cuda/cuda_network.h"
#include "validate/cuda/cuda_rates.h"
#include "validate/cuda/cuda_replay.h"

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
  std::variant<std::unique_ptr<RunnableNetwork>, ReplayFailure> prepared_on_ranks(Network, const Problem&) override {
    return ReplayFailure{"the CUDA backend runs no ranks that share out ops; the CPU's does (--backend cpu)"};
  }
  /// Copies take what they take: the paces are not kept to.
  std::optional<MachineRates> measure(LinkPace, LinkPace, std::size_t repetitions, const Proceed& proceed) override {
    return told([&] { return measure_gpu(machine_, libraries_of(machine_, options_), {}, repetitions, proceed); });
  }
  std::string device() const override { return told(gpu_name); }
  std::string library() const override {
    const bool caching = options_.allocation == Allocation::caching;
    return told(gpu_libraries) + (options_.tf32 ? ", TF32" : "") +
           (caching ? ", caching allocation" : ", stream-ordered allocation");
  }

 private:
  CudaOptions options_;
  CudaMachine machine_;
};

}  // namespace

std::unique_ptr<Backend> cuda_backend(const CudaOptions& options) {
  return std::make_unique<CudaBackend>(options);
}

}  // namespace plimsoll
