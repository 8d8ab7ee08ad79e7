// The tests that need a GPU. Without one they say so and end with 77, which ctest counts as skipped.

#define CATCH_CONFIG_RUNNER
#include <cuda_runtime_api.h>

#include <catch2/catch.hpp>
#include <iostream>

int main(int argc, char** argv) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    std::cout << "skipped, nothing was tested: no GPU (" << cudaGetErrorString(status) << ")\n";
    return 77;
  }
  return Catch::Session().run(argc, argv);
}
