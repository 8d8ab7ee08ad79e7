#pragma once
// How a sweep's folder is written: the few calls of the system on which it depends whether results survive, so that
// tests can let each of them fail.

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace plimsoll {

class StoreDisk {
 public:
  StoreDisk() = default;
  virtual ~StoreDisk() = default;
  StoreDisk(const StoreDisk&) = delete;
  StoreDisk& operator=(const StoreDisk&) = delete;

  /// Appends the text. Throws OutputError, and then a part of the text may have been written.
  void append(int file, const std::filesystem::path&, std::string_view text);

  /// Leaves the first `size` bytes.
  void cut(int file, const std::filesystem::path&, std::uintmax_t size);

  /// What was written before is there after a power cut.
  void sync(int file, const std::filesystem::path&);

  /// Puts a whole new file in place of the old one, which stays until then: written beside, synced, renamed.
  void replace(const std::filesystem::path&, std::string_view text);

 protected:
  // As the system's, with its results and errno.
  virtual std::int64_t do_write(int file, const char* bytes, std::size_t count);
  virtual int do_truncate(int file, std::uintmax_t size);
  virtual int do_sync(int file);
  virtual int do_rename(const std::filesystem::path& from, const std::filesystem::path& to);
};

}  // namespace plimsoll
