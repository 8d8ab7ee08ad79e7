#include "tests/structure/include_table.h"

#include <regex>
#include <sstream>
#include <stdexcept>

namespace plimsoll {
namespace {

/// Whose headers are whose.
const std::vector<std::pair<std::regex, std::string>> headers{
    {std::regex(R"(^[a-z_0-9]+$|^c?(stdlib|stdint)\.h$)"), "C++"},
    {std::regex(R"(^(sys/\w+|unistd|fcntl|fnmatch|poll|spawn|dlfcn|malloc)\.h$)"), "POSIX"},
    {std::regex(R"(^(simgrid|xbt)/)"), "SimGrid"},
    {std::regex(R"(^yaml-cpp/)"), "yaml-cpp"},
    {std::regex(R"(^nlohmann/)"), "nlohmann-json"},
    {std::regex(R"(^zlib\.h$)"), "zlib"},
    {std::regex(R"(^sqlite3\.h$)"), "SQLite"},
    {std::regex(R"(^xxhash\.h$)"), "xxHash"},
    {std::regex(R"(^fmt/)"), "fmt"},
    {std::regex(R"(^boost/)"), "Boost"},
    {std::regex(R"(^CLI/)"), "CLI11"},
    {std::regex(R"(^pybind11/)"), "pybind11"},
    {std::regex(R"(^google/protobuf/|\.pb\.h$)"), "protobuf"},
    {std::regex(R"(^coin/)"), "COIN-OR"},
    {std::regex(R"(^metis\.h$)"), "METIS"},
    {std::regex(R"(^scotch/)"), "Scotch"},
    {std::regex(R"(^dnnl)"), "oneDNN"},
    {std::regex(R"(^omp\.h$)"), "OpenMP"},
    {std::regex(R"(^cuda)"), "CUDA"},
    {std::regex(R"(^cublas)"), "cuBLASLt"},
    {std::regex(R"(^cudnn)"), "cuDNN"},
    {std::regex(R"(^nccl)"), "NCCL"},
    {std::regex(R"(^nvtx3/)"), "NVTX"},
};

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(' ');
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, at);) {
    if (!trimmed(part).empty()) parts.push_back(trimmed(part));
  }
  return parts;
}

struct WrittenRow {
  std::string line, level, folder, may_include, libraries;
};

/// The lines of the page's table that has these columns.
std::vector<WrittenRow> written_rows(const std::string& page) {
  static const std::string head = "| level | folder | may include | third parties |\n|---|---|---|---|\n";
  static const std::regex row(R"(^\|([^|]*)\|([^|]*)\|([^|]*)\|([^|]*)\|$)");
  const std::size_t begin = page.find(head);
  if (begin == std::string::npos) throw std::runtime_error("no table of who may include whom");
  std::istringstream in(page.substr(begin + head.size()));
  std::vector<WrittenRow> rows;
  for (std::string line; std::getline(in, line) && !line.empty();) {
    std::smatch cells;
    if (!std::regex_match(line, cells, row)) throw std::runtime_error("not a row: " + line);
    rows.push_back({line, trimmed(cells[1]), trimmed(cells[2]), trimmed(cells[3]), trimmed(cells[4])});
  }
  return rows;
}

std::string last_part(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

}  // namespace

IncludeTable include_table(const std::string& page) {
  static const std::regex folder(R"(^`([a-z_/]+)`$)"), library(R"(^([\w-]+)(?: in `([\w.]+)`)?$)");
  const std::vector<WrittenRow> rows = written_rows(page);
  IncludeTable table;
  std::map<std::string, std::set<std::string>> ending;  // paths, by their last parts
  std::smatch found;
  for (const WrittenRow& row : rows) {
    if (!std::regex_match(row.folder, found, folder) || !std::regex_match(row.level, std::regex("[0-9]")))
      throw std::runtime_error("no level and folder: " + row.line);
    const std::string path = found[1];
    if (table.contains(path)) throw std::runtime_error("twice: " + row.line);
    ending[last_part(path)].insert(path);
    table[path].level = std::stoi(row.level);
    for (const std::string& name : split(row.libraries, ',')) {
      if (!std::regex_match(name, found, library)) throw std::runtime_error("not a third party: " + row.line);
      table[path].libraries[found[1]] = found[2].matched ? std::optional<std::string>(found[2]) : std::nullopt;
    }
  }
  for (const WrittenRow& row : rows) {
    IncludeRow& made = table.at(row.folder.substr(1, row.folder.size() - 2));
    for (const std::string& name : split(row.may_include, ',')) {
      const std::set<std::string> meant = table.contains(name) ? std::set{name} : ending[name];
      if (meant.empty()) throw std::runtime_error("'" + name + "' is no folder of the table: " + row.line);
      if (meant.size() > 1) throw std::runtime_error("'" + name + "' is several folders: " + row.line);
      made.folders.insert(*meant.begin());
    }
  }
  return table;
}

std::string row_of(const IncludeTable& table, const std::string& file) {
  std::string row;
  for (const auto& [folder, allowed] : table) {
    if (file.starts_with(folder + "/") && folder.size() > row.size()) row = folder;
  }
  return row;
}

Includes includes_of(const IncludeTable& table, const std::string& text) {
  static const std::regex include(R"re(^\s*#\s*include\s+(["<])([^">]+)[">])re");
  Includes found;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    std::smatch parts;
    if (line.find("include") == std::string::npos || !std::regex_search(line, parts, include)) continue;
    const std::string target = parts[2];
    if (parts[1] == "\"") {
      found.folders.insert(row_of(table, target));
      continue;
    }
    std::string owner = "unknown <" + target + ">";
    for (const auto& [header, library] : headers) {
      if (std::regex_search(target, header)) owner = library;
    }
    if (owner != "C++") found.libraries.insert(owner);
  }
  return found;
}

std::vector<std::string> complaints(const IncludeTable& table, const std::string& file, const Includes& includes) {
  const std::string row = row_of(table, file);
  if (row.empty()) return {file + ": its folder has no row"};
  const IncludeRow& allowed = table.at(row);
  std::vector<std::string> said;
  for (const std::string& folder : includes.folders) {
    if (folder.empty()) said.push_back(file + " includes a folder that has no row");
    if (folder != row && !folder.empty() && !allowed.folders.contains(folder))
      said.push_back(file + " includes " + folder + ", which is not in the row of " + row);
  }
  for (const std::string& library : includes.libraries) {
    if (library == "POSIX" && allowed.level != 0) continue;
    const auto entry = allowed.libraries.find(library);
    if (entry == allowed.libraries.end())
      said.push_back(file + " includes " + library + ", which is not in the row of " + row);
    else if (entry->second && *entry->second != last_part(file))
      said.push_back(file + " includes " + library + ", which is for " + *entry->second + " only");
  }
  return said;
}

}  // namespace plimsoll
