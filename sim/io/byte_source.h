#pragma once
// The bytes of a file, block by block; a file that gzip compressed is expanded on the way.

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

struct gzFile_s;  // zlib's

namespace plimsoll {

class ByteSource {
 public:
  /// Throws InputError where the file cannot be opened.
  explicit ByteSource(const std::filesystem::path&);

  /// The next block, valid until the next call; empty at the end. Throws InputError where the file cannot be read, or
  /// what is compressed is damaged or cut off.
  std::string_view next();

 private:
  struct Close {
    void operator()(gzFile_s*) const;
  };

  std::filesystem::path path_;
  std::unique_ptr<gzFile_s, Close> file_;
  std::string block_;
};

/// Whether these are the first bytes of what gzip compressed.
bool is_compressed(std::string_view bytes);

/// The text of a compressed file that is in memory. Throws InputError where it is damaged, cut off, or more than 4 GiB.
std::string expanded(const std::filesystem::path&, std::string_view compressed);

}  // namespace plimsoll
