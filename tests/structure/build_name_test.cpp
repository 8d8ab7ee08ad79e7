// cmake/build_name.cmake: how a build gets its name.

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <regex>
#include <string>

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

bool runs(const std::string& command) {
  return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
}

/// Sources in a folder of their own, with or without a history.
class Sources {
 public:
  Sources() {
    std::string name = (fs::temp_directory_path() / "plimsoll_test_XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    folder_ = name;
    fs::create_directories(folder_ / "tests");
    for (const char* file : {"CMakeLists.txt", "a.cpp", "README.md", "tests/t.cpp"}) write(file, "1\n");
  }
  ~Sources() {
    fs::remove_all(output().parent_path());
    fs::remove_all(folder_);
  }
  Sources(const Sources&) = delete;
  Sources& operator=(const Sources&) = delete;

  void write(const std::string& file, const std::string& text) const { std::ofstream(folder_ / file) << text; }
  void remove(const std::string& file) const { fs::remove(folder_ / file); }
  void git(const std::string& words) const {
    REQUIRE(runs("git -C " + folder_.string() + " -c user.name=n -c user.email=e@e " + words));
  }

  fs::path output() const { return folder_.string() + ".out/build_name.cpp"; }
  std::string name() const {
    REQUIRE(runs("cmake -DSOURCE=" + folder_.string() + " -DOUTPUT=" + output().string() +
                 " -P " PLIMSOLL_SOURCE_DIR "/cmake/build_name.cmake"));
    std::ifstream file(output());
    const std::string text(std::istreambuf_iterator<char>(file), {});
    std::smatch found;
    REQUIRE(std::regex_search(text, found, std::regex("return \"(.*)\";")));
    return found[1];
  }

 private:
  fs::path folder_;
};

TEST_CASE("a build is named by its commit, and by what the program is made of where that was changed", "[structure]") {
  if (!runs("git --version") || !runs("cmake --version")) {
    std::cout << "skipped: git and cmake are needed to name builds\n";
    return;
  }
  const Sources sources;
  CHECK(sources.name() == "unknown");
  sources.git("init -q");
  CHECK(sources.name() == "unknown");
  sources.git("add .");
  sources.git("commit -q -m one");
  const std::string clean = sources.name();
  CHECK(std::regex_match(clean, std::regex("[0-9a-f]{12}")));

  const fs::file_time_type written = fs::last_write_time(sources.output());
  sources.write("README.md", "2\n");
  sources.write("tests/t.cpp", "2\n");
  CHECK(sources.name() == clean);
  CHECK(fs::last_write_time(sources.output()) == written);  // nothing is compiled again

  sources.write("a.cpp", "2\n");
  const std::string changed = sources.name();
  CHECK(std::regex_match(changed, std::regex(clean + "-dirty-[0-9a-f]{8}")));
  sources.write("a.cpp", "3\n");
  CHECK(sources.name() != changed);
  sources.write("a.cpp", "1\n");
  CHECK(sources.name() == clean);
  sources.write("b.cpp", "1\n");  // not tracked, but compiled
  const std::string with_another = sources.name();
  CHECK(with_another.starts_with(clean + "-dirty-"));
  sources.write("b.cpp", "2\n");
  CHECK(sources.name() != with_another);
  sources.remove("b.cpp");
  sources.git("commit -q -a -m two");
  CHECK(std::regex_match(sources.name(), std::regex("[0-9a-f]{12}")));
  CHECK(sources.name() != clean);
}

}  // namespace
}  // namespace plimsoll
