#include "sim/io/byte_source.h"

#include <zlib.h>

#include <cerrno>
#include <cstring>

#include "sim/io/input_error.h"

namespace plimsoll {
namespace {

constexpr unsigned block_size = 1U << 18U;

[[noreturn]] void cannot_read(const std::filesystem::path& path, std::string_view why) {
  throw InputError(located(path.string(), {}, "", std::string("cannot read: ").append(why)));
}

}  // namespace

void ByteSource::Close::operator()(gzFile_s* file) const {
  gzclose(file);
}

ByteSource::ByteSource(const std::filesystem::path& path) : path_(path), block_(block_size, '\0') {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) cannot_read(path, std::strerror(EISDIR));
  errno = 0;
  file_.reset(gzopen(path.c_str(), "rb"));
  if (!file_) cannot_read(path, std::strerror(errno != 0 ? errno : ENOMEM));
  gzbuffer(file_.get(), block_size);
}

std::string_view ByteSource::next() {
  const int got = gzread(file_.get(), block_.data(), block_size);
  if (got > 0) return std::string_view(block_).substr(0, static_cast<std::size_t>(got));
  int error = Z_OK;
  const char* const what = gzerror(file_.get(), &error);
  if (error == Z_ERRNO) cannot_read(path_, std::strerror(errno));
  if (error == Z_BUF_ERROR) cannot_read(path_, "the compressed file ends too early");
  if (error != Z_OK) cannot_read(path_, std::string("not a sound gzip file: ").append(what));
  return {};
}

}  // namespace plimsoll
