// Finding cuBLASLt and cuDNN on a machine on which the program was not built.

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>

#include "tests/experiments/temporary_folder.h"
#include "validate/backend.h"
#include "validate/cuda/library_places.h"

namespace plimsoll {
namespace {

Environment made_up(const std::map<std::string, std::string>& variables) {
  return [variables](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
  };
}

void touch(const std::filesystem::path& file) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file) << "not a library";
}

TEST_CASE("a library is looked for by name, in the toolkit and in PyTorch's packages", "[fake_cuda]") {
  const TemporaryFolder folder;
  const std::string root = (folder / "venv").string(), packages = root + "/lib/python3.11/site-packages/nvidia/";
  touch(root + "/bin/python3");
  touch(packages + "cublas/lib/libthing.so.13");
  touch(packages + "cudnn/lib/libother.so.9");
  const Environment environment =
      made_up({{"PATH", "/nowhere:" + root + "/bin"}, {"PLIMSOLL_CUDA_LIBRARIES", "/a:/b"}});
  const std::vector<std::string> places = places_of({"libthing.so", {13, 12}, "/built/here/libthing.so"}, environment);
  const auto at = [&](const std::string& place) { return std::ranges::find(places, place) - places.begin(); };
  const auto none = static_cast<std::ptrdiff_t>(places.size());
  CHECK(at("/a/libthing.so.13") == 0);
  CHECK(at("/b/libthing.so.13") == 1);
  CHECK(at("libthing.so.13") == 2);
  CHECK(at("/built/here/libthing.so.13") == 3);
  CHECK(at("/usr/local/cuda/lib64/libthing.so.13") < none);
  CHECK(at(packages + "cublas/lib/libthing.so.13") < at("libthing.so.12"));
  CHECK(at(packages + "cublas/lib/libthing.so.12") < none);
}

TEST_CASE("a library that is nowhere, or is none, is named", "[fake_cuda]") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH(
      open_library({"libplimsoll_nowhere.so", {13, 12}, "/built/here/x.so"}, made_up({})),
      "no library for the CUDA backend: libplimsoll_nowhere.so.13 or libplimsoll_nowhere.so.12 is nowhere: neither "
      "where "
      "the system finds libraries (LD_LIBRARY_PATH), nor in a CUDA toolkit, nor in Python's packages (nvidia/*/lib); "
      "PLIMSOLL_CUDA_LIBRARIES may name its folder");
  touch(folder / "libplimsoll_broken.so.3");
  CHECK_THROWS_WITH(open_library({"libplimsoll_broken.so", {3}, (folder / "x.so").string()}, made_up({})),
                    Catch::Matchers::StartsWith("no library for the CUDA backend: " + folder.path.string()));
  CHECK(open_library({"libm.so", {6}, "/built/here/libm.so"}, made_up({})) != nullptr);
}

}  // namespace
}  // namespace plimsoll
