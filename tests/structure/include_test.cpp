// Who may include whom: the table of sim/README.md, held against the sources.

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <regex>

#include "tests/structure/include_table.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& file) {
  std::ifstream in(fs::path(PLIMSOLL_SOURCE_DIR) / file);
  return {std::istreambuf_iterator<char>(in), {}};
}

IncludeTable shipped_table() {
  return include_table(text_of("sim/README.md"));
}

/// What every source file includes, by its path.
std::map<std::string, Includes> all_includes(const IncludeTable& table) {
  std::map<std::string, Includes> all;
  const fs::path root = PLIMSOLL_SOURCE_DIR;
  for (const char* folder : {"sim", "traces", "platforms", "strategies", "validate", "experiments"}) {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string extension = entry.path().extension();
      if (extension != ".h" && extension != ".cpp" && extension != ".cu" && extension != ".cuh" && extension != ".def")
        continue;
      const std::string file = fs::relative(entry.path(), root);
      all[file] = includes_of(table, text_of(file));
    }
  }
  return all;
}

TEST_CASE("every file includes only what its row of the include table allows", "[structure]") {
  const IncludeTable table = shipped_table();
  const std::map<std::string, Includes> all = all_includes(table);
  REQUIRE(all.size() > 500);
  std::vector<std::string> said;
  for (const auto& [file, includes] : all) {
    const std::vector<std::string> more = complaints(table, file, includes);
    said.insert(said.end(), more.begin(), more.end());
  }
  CHECK(said == std::vector<std::string>{});
}

TEST_CASE("every row of the include table has files, and every entry a file that needs it", "[structure]") {
  const IncludeTable table = shipped_table();
  std::map<std::string, Includes> used;  // by row
  std::map<std::string, std::size_t> files;
  for (const auto& [file, includes] : all_includes(table)) {
    const std::string row = row_of(table, file);
    ++files[row];
    used[row].folders.insert(includes.folders.begin(), includes.folders.end());
    used[row].libraries.insert(includes.libraries.begin(), includes.libraries.end());
  }
  for (const auto& [row, allowed] : table) {
    INFO(row);
    CHECK(files[row] > 0);
    for (const std::string& folder : allowed.folders) {
      INFO(folder);
      CHECK(used[row].folders.contains(folder));
    }
    for (const auto& [library, only] : allowed.libraries) {
      INFO(library);
      CHECK(used[row].libraries.contains(library));
    }
  }
}

TEST_CASE("no row of the include table reaches above its level, and none comes back to itself", "[structure]") {
  const IncludeTable table = shipped_table();
  for (const auto& [row, allowed] : table) {
    INFO(row);
    std::set<std::string> reached = allowed.folders;
    for (const std::string& folder : allowed.folders) CHECK(table.at(folder).level <= allowed.level);
    for (std::size_t before = 0; before != reached.size();) {
      before = reached.size();
      for (const std::string& folder : std::set(reached)) {
        reached.insert(table.at(folder).folders.begin(), table.at(folder).folders.end());
      }
    }
    CHECK_FALSE(reached.contains(row));
  }
}

/// By folder: those of strategies that its files include.
using Folders = std::map<std::string, std::set<std::string>>;

std::vector<std::string> folders_in_circles(Folders reached) {
  for (bool grows = true; grows;) {
    grows = false;
    for (auto& [folder, all] : reached) {
      const std::size_t before = all.size();
      for (const std::string& next : std::set(all)) {
        const auto found = reached.find(next);
        if (found != reached.end()) all.insert(found->second.begin(), found->second.end());
      }
      grows |= all.size() != before;
    }
  }
  std::vector<std::string> circular;
  for (const auto& [folder, all] : reached) {
    if (all.contains(folder)) circular.push_back(folder);
  }
  return circular;
}

TEST_CASE("no folder of strategies comes back to itself by includes, families' own folders among them", "[structure]") {
  static const std::regex include(R"re(#include "(strategies/[^"]*)/[^/"]+")re");
  const fs::path root = PLIMSOLL_SOURCE_DIR;
  Folders folders;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / "strategies")) {
    if (entry.path().extension() != ".h" && entry.path().extension() != ".cpp") continue;
    const fs::path file = fs::relative(entry.path(), root);
    const std::string folder = file.parent_path(), text = text_of(file);
    for (std::sregex_iterator at(text.begin(), text.end(), include), end; at != end; ++at) {
      if ((*at)[1] != folder) folders[folder].insert((*at)[1]);
    }
  }
  CHECK(folders.size() > 20);
  CHECK(folders_in_circles(folders) == std::vector<std::string>{});
  CHECK(folders_in_circles({{"a", {"b"}}, {"b", {"c"}}, {"c", {"a"}}, {"d", {"a"}}}) ==
        std::vector<std::string>{"a", "b", "c"});
}

TEST_CASE("what validate itself holds includes no backend", "[structure]") {
  for (const char* backend : {"validate/cpu", "validate/cuda", "validate/device"}) {
    CHECK_FALSE(shipped_table().at("validate").folders.contains(backend));
  }
}

TEST_CASE("an include that the table does not allow is named", "[structure]") {
  const IncludeTable table = shipped_table();
  const auto said = [&](const std::string& file, const std::string& text) {
    return complaints(table, file, includes_of(table, text));
  };
  using Said = std::vector<std::string>;
  CHECK(said("validate/backend.h", "#include \"validate/cpu/paced_copy.h\"\n") ==
        Said{"validate/backend.h includes validate/cpu, which is not in the row of validate"});
  CHECK(said("validate/networks/network.h", "#include \"validate/backend.h\"\n") ==
        Said{"validate/networks/network.h includes validate, which is not in the row of validate/networks"});
  CHECK(said("sim/core/graph.h", "#include <unistd.h>\n#  include <vector>\n") ==
        Said{"sim/core/graph.h includes POSIX, which is not in the row of sim/core"});
  CHECK(said("sim/io/text_file.cpp", "#include <zlib.h>\n") ==
        Said{"sim/io/text_file.cpp includes zlib, which is for byte_source.cpp only"});
  CHECK(said("traces/a.cpp", "#include <nlohmann/json.hpp>\n#include <dance/steps.h>\n") ==
        Said{"traces/a.cpp includes nlohmann-json, which is not in the row of traces",
             "traces/a.cpp includes unknown <dance/steps.h>, which is not in the row of traces"});
  CHECK(said("traces/a.cpp", "#include \"a.h\"\n") == Said{"traces/a.cpp includes a folder that has no row"});
  CHECK(said("music/a.cpp", "") == Said{"music/a.cpp: its folder has no row"});
  CHECK(said("strategies/models/a.h", "#include \"strategies/compose/parts/passes.h\"\n") ==
        Said{"strategies/models/a.h includes strategies/compose/parts, which is not in the row of strategies/models"});
  CHECK(said("strategies/hybrid/deep/down/a.h",
             "#include \"strategies/compose/levels/planned_parts.h\"\n#include <fmt/format.h>\n")
            .empty());
}

TEST_CASE("a line of the include table that cannot be read is named", "[structure]") {
  const std::string head = "| level | folder | may include | third parties |\n|---|---|---|---|\n";
  const auto row = [&](const std::string& line) { include_table(head + "| 0 | `sim/core` | | |\n" + line + "\n"); };
  CHECK_NOTHROW(row("| 1 | `sim/io` | core | fmt, zlib in `a.cpp` |"));
  CHECK_THROWS_WITH(row("| 1 | `sim/io` | cores | |"), "'cores' is no folder of the table: | 1 | `sim/io` | cores | |");
  CHECK_THROWS_WITH(row("| 1 | sim/io | core | |"), "no level and folder: | 1 | sim/io | core | |");
  CHECK_THROWS_WITH(row("| 1 | `sim/core` | | |"), "twice: | 1 | `sim/core` | | |");
  CHECK_NOTHROW(row("| 1 | `traces/core` | sim/core | |"));
  CHECK_THROWS_WITH(row("| 1 | `traces/core` | | |\n| 1 | `sim/io` | core | |"),
                    "'core' is several folders: | 1 | `sim/io` | core | |");
  CHECK_THROWS_WITH(row("| 1 | `sim/io` | core | fmt, here only |"),
                    "not a third party: | 1 | `sim/io` | core | fmt, here only |");
  CHECK_THROWS_WITH(row("| 1 | `sim/io` | core |"), "not a row: | 1 | `sim/io` | core |");
  CHECK_THROWS_WITH(include_table("| level | folder |\n"), "no table of who may include whom");
}

}  // namespace
}  // namespace plimsoll
