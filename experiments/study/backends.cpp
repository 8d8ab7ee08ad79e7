#include "experiments/study/backends.h"

#include <fmt/format.h>

#include "sim/io/input_error.h"
#include "validate/cpu/cpu_backend.h"
#ifdef PLIMSOLL_CUDA
#include "validate/cuda/cuda_backend.h"
#endif

namespace plimsoll {
namespace {

#ifdef PLIMSOLL_CUDA
std::unique_ptr<Backend> gpu_backend(KernelSet kernels, const BackendArguments& words) {
  return cuda_backend(
      {.allocation = words.allocation == "stream-ordered" ? Allocation::stream_ordered : Allocation::caching,
       .tf32 = kernels == KernelSet::cuda_tf32});
}
#else
std::unique_ptr<Backend> gpu_backend(KernelSet, const BackendArguments&) {
  throw BackendError("this build has no CUDA backend: nvcc, cuBLASLt or cuDNN was not found when it was configured");
}
#endif

}  // namespace

void add_backend_options(CLI::App& command, BackendArguments& words) {
  command.add_option("--backend", words.backend, "backend that runs the kernels: cpu, or cuda if there is a GPU")
      ->capture_default_str()
      ->check(CLI::IsMember({"cpu", "cuda"}));
  command
      .add_option("--allocation", words.allocation,
                  "allocator of device memory with --backend cuda: caching (PyTorch's rules; the default) "
                  "or\nstream-ordered (CUDA's pool)")
      ->check(CLI::IsMember({"caching", "stream-ordered"}))
      ->type_name("NAME");
}

std::unique_ptr<Backend> make_backend(KernelSet kernels, const BackendArguments& words) {
  if (kernels != KernelSet::cpu) return gpu_backend(kernels, words);
  if (!words.allocation.empty()) throw InputError("--allocation: only with --backend cuda");
  return cpu_backend();
}

std::unique_ptr<Backend> make_backend(const std::string& reference, const BackendArguments& words) {
  const KernelSet kernels = kernels_of(reference);
  if ((kernels == KernelSet::cpu) == (words.backend == "cpu")) return make_backend(kernels, words);
  throw InputError(fmt::format("network '{}' has the workspaces of kernels={}; --backend {} needs kernels={}",
                               reference, kernels == KernelSet::cpu ? "cpu" : "cuda", words.backend, words.backend));
}

std::unique_ptr<Backend> make_backend(const BackendArguments& words) {
  return make_backend(words.backend == "cuda" ? KernelSet::cuda : KernelSet::cpu, words);
}

}  // namespace plimsoll
