#include "experiments/report/compared.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "experiments/report/drawing.h"
#include "experiments/report/report.h"
#include "sim/io/input_error.h"
#include "sim/io/output_error.h"
#include "sim/io/text_file.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

/// What a word says that figures may differ in, and its key of a figure.
struct Attribute {
  std::string_view word, key;
};
constexpr std::array<Attribute, 5> attributes{{{"folders", "folder"},
                                               {"models", "model"},
                                               {"platforms", "machine"},
                                               {"micro-batches", "micro_batches"},
                                               {"optimizers", "optimizer"}}};

/// Points of a figure get numbers that no other folder's points have.
void renumber(Json& figure, std::size_t first) {
  const auto renumber_all = [&](Json& points) {
    for (Json& point : points) point["point"] = point["point"].get<std::size_t>() + first;
  };
  for (Json& series : figure["series"]) renumber_all(series["points"]);
  for (const char* key : {"timelines", "gantts", "meshes"}) {
    if (figure.contains(key)) renumber_all(figure[key]);
  }
}

/// The lines of report_timelines with those numbers.
std::string renumbered(const std::string& lines, std::size_t first) {
  std::string all;
  for (std::size_t at = 0; at < lines.size();) {
    const std::size_t tab = lines.find('\t', at), end = lines.find('\n', at) + 1;
    all += std::to_string(std::stoull(lines.substr(at, tab - at)) + first);
    all.append(lines, tab, end - tab);
    at = end;
  }
  return all;
}

void check_compared(const std::vector<NamedContents>& all) {
  std::set<fs::path> seen;
  for (const NamedContents& each : all) {
    const auto refuse = [&](const char* what) { throw InputError(located(each.folder.string(), {}, "", what)); };
    if (each.contents.identity.is_null()) refuse("holds no sweep (no manifest.json)");
    if (each.contents.records.empty()) refuse("holds no results yet");
    if (!seen.insert(fs::weakly_canonical(fs::absolute(each.folder))).second) refuse("is there twice");
  }
}

/// As folders are called where several are compared: by their last parts, if these differ.
std::vector<std::string> folder_names(const std::vector<NamedContents>& all) {
  std::vector<std::string> names;
  std::set<std::string> unlike;
  for (const NamedContents& each : all) {
    names.push_back(fs::absolute(each.folder / "").lexically_normal().parent_path().filename().string());
    unlike.insert(names.back());
  }
  if (unlike.size() == all.size()) return names;
  for (std::size_t i = 0; i < all.size(); ++i) names[i] = all[i].folder.string();
  return names;
}

}  // namespace

std::vector<std::string> together_words() {
  std::vector<std::string> words;
  for (const Attribute& each : attributes) words.emplace_back(each.word);
  return words;
}

void put_together(Json& data, const std::vector<std::string>& words) {
  std::map<std::string, std::vector<std::size_t>> groups;  // by all that is to be the same
  std::vector<std::string> order;
  for (std::size_t i = 0; i < data["figures"].size(); ++i) {
    std::string same;
    for (const Attribute& each : attributes) {
      if (std::ranges::find(words, each.word) == words.end()) {
        same += data["figures"][i].value(std::string(each.key), Json()).dump() + "\n";
      }
    }
    if (groups[same].empty()) order.push_back(same);
    groups[same].push_back(i);
  }
  Json& together = data["together"] = Json::array();
  for (const std::string& same : order) {
    const std::vector<std::size_t>& figures = groups[same];
    if (figures.size() < 2) continue;
    for (const std::size_t i : figures) data["figures"][i]["together"] = together.size();
    together.push_back(
        {{"file", fmt::format("together-{}", together.size() + 1)}, {"by", words}, {"figures", figures}});
  }
}

Json compared_data(const std::vector<NamedContents>& all, const std::string& made_by) {
  Json joint;
  std::size_t first = 0;
  const std::vector<std::string> names = folder_names(all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string& name = names[i];
    Json data = report_data(all[i].contents, made_by);
    for (Json& figure : data["figures"]) {
      figure["folder"] = name;
      renumber(figure, first);
    }
    const Json of_folder{{"name", name}, {"experiment", data["experiment"]}, {"first_point", first}};
    if (joint.is_null()) {
      joint = std::move(data);
    } else {
      for (const char* key : {"figures", "impossible"})
        joint[key].insert(joint[key].end(), data[key].begin(), data[key].end());
    }
    joint["folders"].push_back(of_folder);
    first += all[i].contents.records.rbegin()->first + 1;
  }
  return joint;
}

std::vector<fs::path> write_comparison(const std::vector<NamedContents>& all, const fs::path& folder,
                                       const std::string& made_by, const std::vector<std::string>& words,
                                       std::size_t most_pictures) {
  check_compared(all);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw OutputError(located(folder.string(), {}, "", "cannot make the folder: " + error.message()));
  Json data = compared_data(all, made_by);
  put_together(data, words);
  std::string timelines;
  for (std::size_t i = 0; i < all.size(); ++i) {
    timelines += renumbered(report_timelines(all[i].contents), data["folders"][i]["first_point"].get<std::size_t>());
  }
  std::vector<ComparedFolder> named;
  for (std::size_t i = 0; i < all.size(); ++i) named.push_back({data["folders"][i]["name"], all[i].contents});
  std::vector<fs::path> files{folder / "results.csv", folder / "report.json", folder / "report.html",
                              folder / "results.sqlite"};
  write_text_file(files[0], compared_csv(named, made_by));
  write_json_file(files[1], data);
  write_text_file(files[2], report_html(data, std::move(timelines)));
  write_text_file(files[3], compared_database(named));
  const std::size_t drawn = std::min(most_pictures, data["together"].size());
  if (drawn > 0) draw_by_python("experiments/plot.py", {files[1].string(), folder.string(), std::to_string(drawn)});
  for (std::size_t i = 0; i < drawn; ++i) {
    for (const char* extension : {".svg", ".pdf", ".png"}) {
      files.push_back(folder / (data["together"][i]["file"].get<std::string>() + extension));
    }
  }
  return files;
}

}  // namespace plimsoll
