#include "strategies/offloading/frameworks/policy_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "sim/io/input_error.h"
#include "sim/io/json/json.h"
#include "sim/io/json/json_cursor.h"
#include "sim/io/text_file.h"
#include "strategies/models/runs_again.h"

namespace plimsoll {
namespace {

constexpr std::array<std::pair<std::string_view, OpChoice>, 9> choice_words{{
    {"save", OpChoice::save},
    {"recompute", OpChoice::recompute},
    {"offload", OpChoice::offload},
    {"MUST_SAVE", OpChoice::save},
    {"PREFER_SAVE", OpChoice::save},
    {"MUST_RECOMPUTE", OpChoice::recompute},
    {"PREFER_RECOMPUTE", OpChoice::recompute},
    {"MUST_CPU_OFFLOAD", OpChoice::offload},
    {"PREFER_CPU_OFFLOAD", OpChoice::offload},
}};

std::optional<OpChoice> policy_choice_of(std::string_view word) {
  const auto found = std::ranges::find(choice_words, word, &std::pair<std::string_view, OpChoice>::first);
  return found == choice_words.end() ? std::nullopt : std::optional(found->second);
}

std::string expected_choice(std::string_view found) {
  std::vector<std::string_view> words;
  for (const auto& each : choice_words) words.push_back(each.first);
  return fmt::format("expected {}, found '{}'{}", alternatives(words), found, suggestion(found, words));
}

/// The policy, as names come in.
class NamedChoices {
 public:
  explicit NamedChoices(const Graph& graph)
      : graph_(graph), overwritten_(overwritten_tensors(graph)), policy_(graph.ops.size(), OpChoice::save) {
    for (std::size_t o = 0; o < graph.ops.size(); ++o) {
      if (graph.ops[o].phase == Phase::forward) ops_.emplace(graph.ops[o].name, o);
    }
    for (const auto& each : ops_) names_.push_back(each.first);
  }

  /// What is wrong with it; nothing where all is well.
  std::optional<std::string> set(std::string_view name, OpChoice choice) {
    const auto found = ops_.find(name);
    if (found == ops_.end()) {
      return fmt::format("no forward op of '{}' is called '{}'{}", graph_.name, name, suggestion(name, names_));
    }
    const std::size_t o = found->second;
    if (!named_.emplace(o, true).second) return fmt::format("'{}' is named twice", name);
    if (choice == OpChoice::recompute) {
      if (std::optional<std::string> why = why_not_again(graph_, graph_.ops[o], overwritten_)) return why;
    }
    policy_[o] = choice;
    return std::nullopt;
  }

  OpPolicy policy() && { return std::move(policy_); }

 private:
  const Graph& graph_;
  std::vector<bool> overwritten_;
  std::map<std::string_view, std::size_t> ops_;
  std::vector<std::string_view> names_;
  std::map<std::size_t, bool> named_;
  OpPolicy policy_;
};

/// Words of a line between blanks, with their columns, up to a comment.
std::vector<std::pair<std::uint32_t, std::string_view>> policy_words_of(std::string_view line) {
  constexpr std::string_view blanks = " \t\r";
  std::vector<std::pair<std::uint32_t, std::string_view>> words;
  line = line.substr(0, line.find('#'));
  for (std::size_t at = line.find_first_not_of(blanks); at != std::string_view::npos;) {
    const std::size_t end = std::min(line.find_first_of(blanks, at), line.size());
    words.emplace_back(static_cast<std::uint32_t>(at + 1), line.substr(at, end - at));
    at = line.find_first_not_of(blanks, end);
  }
  return words;
}

void read_policy_lines(const std::string& file, std::string_view text, NamedChoices& choices) {
  Complaints complaints(file, text);
  std::uint32_t number = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    ++number;
    const auto words = policy_words_of(line);
    if (words.empty()) continue;
    if (words.size() > 2) {
      complaints.add({number, words[2].first}, "", fmt::format("'{}' follows a name and a choice", words[2].second));
      continue;
    }
    const std::optional<OpChoice> choice = words.size() == 2 ? policy_choice_of(words[1].second) : OpChoice::recompute;
    if (!choice) {
      complaints.add({number, words[1].first}, "", expected_choice(words[1].second));
    } else if (const std::optional<std::string> wrong = choices.set(words[0].second, *choice)) {
      complaints.add({number, words[0].first}, "", *wrong);
    }
  }
  complaints.throw_if_any();
}

void read_policy_object(const std::string& file, std::string text, NamedChoices& choices) {
  JsonDocument document(std::move(text), file);
  document.read([&](JsonCursor root) {
    root.object([&](std::string_view name, JsonCursor value) {
      const std::string word = value.string();
      if (word.empty()) return;
      const std::optional<OpChoice> choice = policy_choice_of(word);
      if (!choice) {
        value.complain(expected_choice(word));
      } else if (const std::optional<std::string> wrong = choices.set(name, *choice)) {
        value.complain(*wrong);
      }
    });
  });
}

std::string_view policy_word(OpChoice choice) {
  switch (choice) {
    case OpChoice::save:
      return "MUST_SAVE";
    case OpChoice::recompute:
      return "MUST_RECOMPUTE";
    case OpChoice::offload:
      return "MUST_CPU_OFFLOAD";
  }
  return {};
}

}  // namespace

OpPolicy read_policy_file(const std::string& file, const Graph& graph) {
  std::string text = read_text_file(file);
  NamedChoices choices(graph);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && text[first] == '{') {
    read_policy_object(file, std::move(text), choices);
  } else {
    read_policy_lines(file, text, choices);
  }
  return std::move(choices).policy();
}

std::string policy_text(const Graph& graph, const OpPolicy& policy, PolicyFormat format) {
  std::string lines;
  Json object = Json::object();
  for (std::size_t o = 0; o < policy.size(); ++o) {
    if (graph.ops[o].phase != Phase::forward) continue;
    if (policy[o] == OpChoice::recompute) lines += graph.ops[o].name + "\n";
    const bool is_named = format == PolicyFormat::torchtitan || policy[o] == OpChoice::offload;
    if (is_named) object[graph.ops[o].name] = policy_word(policy[o]);
  }
  return format == PolicyFormat::recompute_ops ? lines : json_text(object, 2) + "\n";
}

}  // namespace plimsoll
