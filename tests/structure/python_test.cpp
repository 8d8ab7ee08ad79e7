// The Python is one package, found by what Python itself looks for: installed, named by PYTHONPATH, or beside a script.

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace plimsoll {
namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

std::string whole_text_of(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Files with one of these extensions in the folders of the tree that hold sources or pages.
std::vector<fs::path> files_of(const std::set<std::string>& extensions) {
  std::vector<fs::path> found;
  for (const char* folder : {"docs", "experiments", "platforms", "sim", "strategies", "tests", "traces", "validate"}) {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(fs::path(PLIMSOLL_SOURCE_DIR) / folder)) {
      if (entry.is_regular_file() && extensions.contains(entry.path().extension())) found.push_back(entry.path());
    }
  }
  for (const char* page : {"README.md", "CONTRIBUTING.md"}) {
    if (extensions.contains(".md")) found.push_back(fs::path(PLIMSOLL_SOURCE_DIR) / page);
  }
  return found;
}

/// Where the text changes the list of folders in which Python looks for what is imported; reading it is no change.
std::size_t changes_of_path(std::string_view text) {
  static constexpr std::string_view name = "sys.path";
  std::size_t changes = 0;
  for (std::size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
    std::string_view rest = text.substr(at + name.size());
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    if (rest.starts_with('[')) {  // a part of the list
      rest.remove_prefix(std::min(rest.find(']'), rest.size() - 1) + 1);
      rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    }
    const bool is_called = std::ranges::any_of(std::array{".insert", ".append", ".extend", ".remove", ".pop", ".clear"},
                                               [&](const char* call) { return rest.starts_with(call); });
    const bool is_set = (rest.starts_with('=') && !rest.starts_with("==")) || rest.starts_with("+=");
    changes += is_called || is_set ? 1 : 0;
  }
  return changes;
}

TEST_CASE("no Python changes where it looks for modules, but for a user's own file", "[structure]") {
  Lines found;
  const std::vector<fs::path> files = files_of({".py", ".md", ".sh"});
  CHECK(files.size() > 200);
  for (const fs::path& file : files) {
    const std::size_t changes = changes_of_path(whole_text_of(file));
    if (changes > 0) found.push_back(fs::relative(file, PLIMSOLL_SOURCE_DIR).string() + ": " + std::to_string(changes));
  }
  CHECK(found == Lines{"traces/python/plimsoll/trace/user_code.py: 1"});
}

TEST_CASE("a change of where Python looks is seen in each of its forms", "[structure]") {
  for (const char* change :
       {"sys.path.insert(0, HERE)", "sys.path[:0] = [HERE]", "sys.path += [HERE]", "sys.path = [HERE] + sys.path",
        "import sys; sys.path.append('validate')", "sys.path[0] = HERE"}) {
    INFO(change);
    CHECK(changes_of_path(change) == 1);
  }
  for (const char* read :
       {"for p in sys.path for d in p", "print(sys.path)", "sys.path[0] == HERE", "if sys.path == before:"}) {
    INFO(read);
    CHECK(changes_of_path(read) == 0);
  }
}

TEST_CASE("no Python file has more than 700 lines", "[structure]") {
  Lines long_ones;
  for (const fs::path& file : files_of({".py"})) {
    const std::string text = whole_text_of(file);
    const std::ptrdiff_t lines = std::count(text.begin(), text.end(), '\n');
    if (lines > 700)
      long_ones.push_back(fs::relative(file, PLIMSOLL_SOURCE_DIR).string() + ": " + std::to_string(lines));
  }
  CHECK(long_ones == Lines{});
}

/// What stands between the quotation marks behind `key` in the text.
std::string quoted(const std::string& text, const std::string& key) {
  const std::size_t at = text.find(key);
  REQUIRE(at != std::string::npos);
  const std::size_t begin = text.find('"', at + key.size()) + 1;
  return text.substr(begin, text.find('"', begin) - begin);
}

TEST_CASE("pyproject.toml installs each folder of the package, in the program's version", "[structure]") {
  const fs::path root = PLIMSOLL_SOURCE_DIR;
  const std::string project = whole_text_of(root / "pyproject.toml"), cmake = whole_text_of(root / "CMakeLists.txt");
  CHECK(cmake.find("project(plimsoll VERSION " + quoted(project, "\nversion =") + " ") != std::string::npos);
  const fs::path home = root / quoted(project, "package-dir = { \"\" =");
  std::string expected;
  std::set<std::string> packages;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(home)) {
    if (entry.path().filename() != "__init__.py") continue;
    std::string package = fs::relative(entry.path().parent_path(), home).string();
    std::ranges::replace(package, '/', '.');
    packages.insert("\"" + package + "\"");
  }
  for (const std::string& package : packages) expected += (expected.empty() ? "" : ", ") + package;
  CHECK(packages.size() == 3);
  CHECK(project.find("packages = [" + expected + "]") != std::string::npos);
}

}  // namespace
}  // namespace plimsoll
