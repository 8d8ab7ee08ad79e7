#include "sim/engine/simgrid/shared_memory.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>

#include "sim/engine/engine_error.h"

namespace plimsoll {
namespace {

[[noreturn]] void fail(const char* what) {
  throw EngineError(std::string("SimGrid simulation: ") + what + ": " + std::generic_category().message(errno));
}

}  // namespace

SharedMemory::SharedMemory() : file_(memfd_create("plimsoll", MFD_CLOEXEC)) {
  if (file_ < 0) fail("memfd_create");
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, size_);
  close(file_);
}

void SharedMemory::fit(std::size_t size) {
  if (size <= size_) return;
  size = std::max(size, 2 * size_);
  struct stat now = {};
  if (fstat(file_, &now) != 0) fail("fstat");
  if (static_cast<std::size_t>(now.st_size) < size && ftruncate(file_, static_cast<off_t>(size)) != 0)
    fail("ftruncate");
  void* const memory = data_ == nullptr ? mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0)
                                        : mremap(data_, size_, size, MREMAP_MAYMOVE);
  if (memory == MAP_FAILED) fail("mmap");
  data_ = static_cast<std::byte*>(memory);
  size_ = size;
}

}  // namespace plimsoll
