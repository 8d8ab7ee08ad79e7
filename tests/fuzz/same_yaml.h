#pragma once
// Our tree of a YAML text against yaml-cpp's own, and against that of what yaml-cpp writes of it.

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <optional>
#include <sstream>
#include <string>

#include "sim/io/printable.h"
#include "sim/io/yaml_document.h"

namespace plimsoll {

/// Where two trees differ: a path of keys.
inline std::optional<std::string> yaml_difference(const YamlCursor& ours, const YAML::Node& theirs,
                                                  const std::string& path = "") {
  if (theirs.IsScalar()) {
    if (ours.is_scalar() && ours.string() == theirs.Scalar()) return std::nullopt;
    return path + ": theirs is '" + theirs.Scalar() + "', ours " + ours.found();
  }
  if (theirs.IsSequence()) {
    if (!ours.is_list()) return path + ": theirs is a list, ours " + ours.found();
    const std::vector<YamlCursor> elements = ours.elements();
    if (elements.size() != theirs.size()) return path + ": lists of different lengths";
    for (std::size_t i = 0; i < elements.size(); ++i) {
      if (auto found = yaml_difference(elements[i], theirs[i], path + "[" + std::to_string(i) + "]")) return found;
    }
    return std::nullopt;
  }
  if (!theirs.IsMap()) {
    const bool is_null = !ours.is_scalar() && !ours.is_list() && !ours.is_object();
    return is_null ? std::nullopt : std::optional(path + ": theirs is nothing, ours " + ours.found());
  }
  if (!ours.is_object()) return path + ": theirs is an object, ours " + ours.found();
  std::optional<std::string> found;
  auto their = theirs.begin();
  ours.object([&](std::string_view key, const YamlCursor& value) {
    const std::string at = path + "." + std::string(key);
    if (found) return;
    if (their == theirs.end() || their->first.Scalar() != key) {
      found = at + ": theirs has another key there";
    } else {
      found = yaml_difference(value, their->second, at);
      ++their;
    }
  });
  if (!found && their != theirs.end()) found = path + ": theirs has more keys";
  return found;
}

/// What we refuse although yaml-cpp takes it.
inline bool is_our_own_refusal(const std::string& what) {
  constexpr std::array<const char*, 7> known{"repeated key",
                                             "a key must be a word",
                                             "nested deeper than",
                                             "values, aliases expanded",
                                             "a second document",
                                             "the file is empty",
                                             "an alias inside the node that it"};
  return std::ranges::any_of(known, [&](const char* each) { return what.find(each) != std::string::npos; });
}

/// For whom only the grammar matters.
struct NobodyListens : YAML::EventHandler {
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

/// In which way the two differ about the text, if they do.
inline std::optional<std::string> yaml_disagreement(const std::string& text) {
  std::optional<YAML::Node> theirs;
  std::string why;
  try {
    theirs = YAML::Load(text);
    std::istringstream stream(text);  // Load() stops behind the first document; LoadAll() may never end
    YAML::Parser parser(stream);
    NobodyListens nobody;
    for (int documents = 0; documents < 2; ++documents) parser.HandleNextDocument(nobody);
  } catch (const YAML::Exception& error) {
    theirs.reset();
    why = error.what();
  }
  try {
    YamlDocument ours(text, "text");
    if (!theirs) return "only the library refuses it: " + why;
    if (auto found = yaml_difference(ours.root(), *theirs)) return found;
    if (as_utf8(text) != text) return std::nullopt;   // yaml-cpp replaces what is not UTF-8 when it writes
    const std::string written = YAML::Dump(*theirs);  // which yaml-cpp may read otherwise: spaces before a return
    YamlDocument again(written, "written again");
    if (auto found = yaml_difference(again.root(), YAML::Load(written))) return "written again: " + *found;
  } catch (const InputError& error) {
    if (!theirs || is_our_own_refusal(error.what())) return std::nullopt;
    return std::string("only we refuse it: ") + error.what();
  }
  return std::nullopt;
}

}  // namespace plimsoll
