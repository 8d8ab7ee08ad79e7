#include "validate/cuda/load_libraries.h"

#include <cublasLt.h>
#include <cudnn.h>
#include <dlfcn.h>

#include <string>
#ifdef PLIMSOLL_NCCL
#include <nccl.h>
#endif

#include "validate/backend.h"
#include "validate/cuda/library_places.h"

// Each function is a jump to where its library has it. The address comes from dlsym; arguments pass through untouched.
#if defined(__x86_64__)
#define PLIMSOLL_JUMP(name) "jmp *" #name "_address(%rip)\n"
#elif defined(__aarch64__)
#define PLIMSOLL_JUMP(name) "adrp x16, " #name "_address\nldr x16, [x16, #:lo12:" #name "_address]\nbr x16\n"
#else
#error "the CUDA backend knows how to load its libraries on x86-64 and AArch64"
#endif

#define PLIMSOLL_FUNCTION(library, name)                                         \
  extern "C" {                                                                   \
  __attribute__((used, visibility("hidden"))) void* name##_address = nullptr;    \
  }                                                                              \
  asm(".pushsection .text\n.globl " #name "\n.type " #name ", %function\n" #name \
      ":\n" PLIMSOLL_JUMP(name) ".size " #name ", .-" #name "\n.popsection\n");
#include "validate/cuda/library_functions.def"
#ifdef PLIMSOLL_NCCL
#include "validate/cuda/ranks/nccl_functions.def"
#endif
#undef PLIMSOLL_FUNCTION

namespace plimsoll {
namespace {

void* found(void* library, const char* name) {
  void* address = dlsym(library, name);
  if (address == nullptr) throw BackendError(std::string("no library for the CUDA backend: ") + dlerror());
  return address;
}

}  // namespace

void load_libraries() {
  // PyTorch's packages for CUDA 12 will do too: what is called here is the same in both.
  void* const cublas =
      open_library({"libcublasLt.so", {CUBLAS_VER_MAJOR, CUBLAS_VER_MAJOR - 1}, PLIMSOLL_CUBLASLT}, this_environment());
  void* const cudnn = open_library({"libcudnn.so", {CUDNN_MAJOR}, PLIMSOLL_CUDNN}, this_environment());
#define PLIMSOLL_FUNCTION(library, name) name##_address = found(library, #name);
#include "validate/cuda/library_functions.def"
}

#ifdef PLIMSOLL_NCCL
void load_nccl() {
  void* const nccl = open_library({"libnccl.so", {NCCL_MAJOR}, PLIMSOLL_NCCL}, this_environment());
#include "validate/cuda/ranks/nccl_functions.def"
}
#endif
#undef PLIMSOLL_FUNCTION

}  // namespace plimsoll
