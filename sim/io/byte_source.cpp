#include "sim/io/byte_source.h"

#define ZLIB_CONST  // what it reads, it does not change
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "sim/io/input_error.h"

namespace plimsoll {
namespace {

constexpr unsigned block_size = 1U << 18U;

[[noreturn]] void cannot_read(const std::filesystem::path& path, std::string_view why) {
  throw InputError(located(path.string(), {}, "", std::string("cannot read: ").append(why)));
}

constexpr const char* ends_too_early = "the compressed file ends too early";
constexpr std::size_t most_expanded = std::size_t{1} << 32U;

struct End {
  void operator()(z_stream* stream) const { inflateEnd(stream); }
};

}  // namespace

bool is_compressed(std::string_view bytes) {
  return bytes.starts_with("\x1f\x8b");
}

std::string expanded(const std::filesystem::path& path, std::string_view compressed) {
  z_stream stream{};
  if (inflateInit2(&stream, MAX_WBITS + 16) != Z_OK) cannot_read(path, std::strerror(ENOMEM));
  const std::unique_ptr<z_stream, End> ends(&stream);
  std::string text;
  while (true) {
    if (stream.avail_in == 0) {
      const std::size_t chunk = std::min<std::size_t>(compressed.size(), block_size);
      stream.next_in = reinterpret_cast<const Bytef*>(compressed.data());
      stream.avail_in = static_cast<uInt>(chunk);
      compressed.remove_prefix(chunk);
    }
    const std::size_t used = text.size();
    text.resize(used + block_size);
    stream.next_out = reinterpret_cast<Bytef*>(text.data() + used);
    stream.avail_out = block_size;
    const int result = inflate(&stream, Z_NO_FLUSH);
    text.resize(used + block_size - stream.avail_out);
    const bool is_read = stream.avail_in == 0 && compressed.empty();
    if (result == Z_STREAM_END) {
      if (is_read) return text;
      inflateReset(&stream);  // another member: files may be joined
    } else if (result == Z_BUF_ERROR || (result == Z_OK && is_read && stream.avail_out > 0)) {
      cannot_read(path, ends_too_early);
    } else if (result != Z_OK) {
      cannot_read(path, std::string("not a sound gzip file: ").append(stream.msg == nullptr ? "damaged" : stream.msg));
    }
    if (text.size() > most_expanded) cannot_read(path, "expanded it has more than 4 GiB");
  }
}

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
  if (error == Z_BUF_ERROR) cannot_read(path_, ends_too_early);
  if (error != Z_OK) cannot_read(path_, std::string("not a sound gzip file: ").append(what));
  return {};
}

}  // namespace plimsoll
