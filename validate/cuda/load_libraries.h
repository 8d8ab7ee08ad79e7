#pragma once
// cuBLASLt and cuDNN, loaded when a GPU is first used: linked as usual, their hundreds of megabytes would cost every
// command of the program a tenth of a second and 200 MB.

namespace plimsoll {

/// Throws BackendError where one is missing. Before it, no function of either may be called.
void load_libraries();

/// The same of NCCL, which ranks on several GPUs need. In a build without its header there is no such function.
void load_nccl();

}  // namespace plimsoll
