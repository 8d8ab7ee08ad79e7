#include "sim/io/text_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "sim/io/byte_source.h"
#include "sim/io/input_error.h"
#include "sim/io/output_error.h"
#include "sim/io/unfinished.h"

namespace plimsoll {
namespace {

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Close>;

template <class Error>
[[noreturn]] void fail(const std::filesystem::path& path, std::string_view what, int error) {
  throw Error(located(path.string(), {}, "", std::string(what) + ": " + std::strerror(error)));
}

/// Of what is no file with a size, such as a pipe or a device: it may never end.
constexpr std::size_t most_without_size = std::size_t{1} << 28;

/// 0, or what errno says.
int write_to(const std::filesystem::path& path, std::string_view text) {
  File file(std::fopen(path.c_str(), "wb"));
  if (!file) return errno;
  if (std::fwrite(text.data(), 1, text.size(), file.get()) != text.size()) return errno;
  return std::fclose(file.release()) == 0 ? 0 : errno;
}

}  // namespace

std::string read_text_file(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) fail<InputError>(path, "cannot read", EISDIR);
  const File file(std::fopen(path.c_str(), "rb"));
  if (!file) fail<InputError>(path, "cannot read", errno);
  const std::uintmax_t size = std::filesystem::file_size(path, error);  // unknown for pipes
  const bool has_size = !error && size > 0 && std::filesystem::is_regular_file(path, error);
  std::string text;
  if (has_size) text.reserve(static_cast<std::size_t>(size) + 1);  // one more, to see the end
  constexpr std::size_t block = std::size_t{1} << 20;
  for (std::size_t used = 0;;) {
    const std::size_t room = text.capacity() > used ? text.capacity() - used : block;
    text.resize(used + std::min(room, block));
    const std::size_t got = std::fread(text.data() + used, 1, text.size() - used, file.get());
    if (got < text.size() - used && std::ferror(file.get())) fail<InputError>(path, "cannot read", errno);
    used += got;
    if (!has_size && used > most_without_size) {
      throw InputError(located(
          path.string(), {}, "",
          "cannot read: it has no size, and does not end within " + std::to_string(most_without_size) + " bytes"));
    }
    if (got == 0) {
      text.resize(used);
      return is_compressed(text) ? expanded(path, text) : text;
    }
  }
}

void write_text_file(const std::filesystem::path& path, std::string_view text) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {  // a terminal, a pipe, /dev/null
    if (std::filesystem::is_directory(status)) fail<OutputError>(path, "cannot write", EISDIR);
    if (const int error = write_to(path, text); error != 0) fail<OutputError>(path, "cannot write", error);
    return;
  }
  const std::filesystem::path unfinished = unfinished_beside(path);
  if (const int error = write_to(unfinished, text); error != 0) {
    std::remove(unfinished.c_str());
    fail<OutputError>(path, "cannot write", error);
  }
  if (std::rename(unfinished.c_str(), path.c_str()) != 0) {
    const int reason = errno;
    std::remove(unfinished.c_str());
    fail<OutputError>(path, "cannot write", reason);
  }
}

}  // namespace plimsoll
