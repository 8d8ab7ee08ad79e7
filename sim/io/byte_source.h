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

}  // namespace plimsoll
