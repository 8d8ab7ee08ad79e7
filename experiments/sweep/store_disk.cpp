#include "experiments/sweep/store_disk.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "experiments/sweep/worker_pool.h"
#include "sim/io/input_error.h"
#include "sim/io/output_error.h"
#include "sim/io/unfinished.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, int error) {
  throw OutputError(located(path.string(), {}, "", std::string("cannot write: ") + std::strerror(error)));
}

}  // namespace

std::int64_t StoreDisk::do_write(int file, const char* bytes, std::size_t count) {
  return write(file, bytes, count);
}
int StoreDisk::do_truncate(int file, std::uintmax_t size) {
  return ftruncate(file, static_cast<off_t>(size));
}
int StoreDisk::do_sync(int file) {
  return fsync(file);
}
int StoreDisk::do_rename(const fs::path& from, const fs::path& to) {
  return std::rename(from.c_str(), to.c_str());
}

void StoreDisk::append(int file, const fs::path& path, std::string_view text) {
  while (!text.empty()) {
    const std::int64_t written = do_write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(path, errno);
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void StoreDisk::cut(int file, const fs::path& path, std::uintmax_t size) {
  if (do_truncate(file, size) != 0) fail(path, errno);
}

void StoreDisk::sync(int file, const fs::path& path) {
  const int synced = do_sync(file);
  const bool has_no_sync = synced != 0 && (errno == EINVAL || errno == ENOTSUP);  // a file system without it
  if (synced != 0 && !has_no_sync) fail(path, errno);
}

void StoreDisk::replace(const fs::path& path, std::string_view text) {
  const fs::path unfinished = unfinished_beside(path);
  const Descriptor file(open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (file.fd() < 0) fail(path, errno);
  try {
    append(file.fd(), path, text);
    sync(file.fd(), path);
    if (do_rename(unfinished, path) != 0) fail(path, errno);
  } catch (const OutputError&) {
    std::remove(unfinished.c_str());
    throw;
  }
}

}  // namespace plimsoll
