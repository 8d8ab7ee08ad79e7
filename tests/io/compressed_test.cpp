// Text files that gzip compressed.

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <string>

#include "sim/io/byte_source.h"
#include "sim/io/text_file.h"
#include "tests/bad_input.h"
#include "tests/experiments/temporary_folder.h"

using namespace plimsoll;

namespace {

std::string many_lines() {
  std::string text;
  for (int line = 0; line < 200'000; ++line) text += std::to_string(line * 7919 % 100'003) + "\n";
  return text;
}

}  // namespace

TEST_CASE("a compressed text file reads as the text, in several members too", "[io]") {
  const TemporaryFolder folder;
  const std::string text = many_lines(), plain = (folder / "a.json").string(), packed = plain + ".gz";
  write_text_file(plain, text);
  REQUIRE(std::system(("gzip -k " + plain).c_str()) == 0);
  CHECK(read_text_file(packed) == text);
  REQUIRE(std::system(("cat " + packed + " " + packed + " > " + plain).c_str()) == 0);
  CHECK(read_text_file(plain) == text + text);
  CHECK(read_text_file(packed).size() > std::size_t{1} << 20);  // more than one block
}

TEST_CASE("a compressed file that is cut off or damaged is refused by name", "[io]") {
  const TemporaryFolder folder;
  const std::string plain = (folder / "a").string(), file = plain + ".gz";
  write_text_file(plain, many_lines());
  REQUIRE(std::system(("gzip " + plain).c_str()) == 0);
  std::string bytes = bytes_of(file);
  const auto complaint = [&](const std::string& changed) {
    std::ofstream(file, std::ios::binary) << changed;
    return complaint_of([&] { read_text_file(file); });
  };
  for (const std::size_t size : {2UL, 9UL, 10UL, bytes.size() / 2, bytes.size() - 1})
    CHECK(complaint(bytes.substr(0, size)) == file + ": cannot read: the compressed file ends too early");
  bytes[bytes.size() / 2] = static_cast<char>(~bytes[bytes.size() / 2]);
  CHECK(complaint(bytes).starts_with(file + ": cannot read: not a sound gzip file: "));
  CHECK(complaint("\x1f\x8bno").starts_with(file + ": cannot read: "));
}
