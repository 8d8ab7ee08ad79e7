#include "strategies/compose/spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/io/excerpt.h"
#include "sim/io/input_error.h"
#include "strategies/list.h"

namespace plimsoll {
namespace {

bool in_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

/// The words of a text that begin with a letter.
std::vector<std::string_view> names_in(std::string_view text) {
  std::vector<std::string_view> names;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    while (end < text.size() && in_name(text[end])) ++end;
    if (std::isalpha(static_cast<unsigned char>(text[at]))) names.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return names;
}

/// `; did you mean 'conv.input'?`: the value with one of its words as the option's texts have it, where that is
/// allowed.
std::string meant(const OptionSet& options, const OptionInfo& option, std::string_view value) {
  const std::string values = option.values_text();
  std::vector<std::string_view> known = names_in(values);
  std::ranges::copy(names_in(option.help), std::back_inserter(known));
  std::vector<std::string> allowed;
  for (const std::string_view word : names_in(value)) {
    const auto at = static_cast<std::size_t>(word.data() - value.data());
    for (const std::string_view name : known) {
      const std::string repaired = std::string(value).replace(at, word.size(), name);
      if (options.allows(option, repaired)) allowed.push_back(repaired);
    }
  }
  return suggestion(value, allowed);
}

class SpecReader {
 public:
  SpecReader(std::string_view spec, std::string_view where) : spec_(spec), where_(where) {}

  std::vector<Pass> read() {
    std::vector<Pass> passes;
    do {
      passes.push_back(pass());
      if (passes.size() > 1) judge_order(passes[passes.size() - 2], passes.back());
      const SplitStrategy* split = std::get_if<SplitStrategy>(&passes.back().strategy->kind);
      if (split != nullptr && split->followed_by != nullptr) {
        for (Pass& next : split->followed_by(passes.back().options)) passes.push_back(std::move(next));
      }
    } while (take('|'));
    if (at_ < spec_.size()) fail(at_, "", fmt::format("expected '|' or the end, found '{}'", spec_[at_]));
    return passes;
  }

 private:
  [[noreturn]] void fail(std::size_t at, std::string_view key, std::string_view what) const {
    const Position place{1, static_cast<std::uint32_t>(at + 1)};
    throw InputError(located(where_, place, key, what), {excerpt(spec_, place)});
  }

  void skip_spaces() {
    while (at_ < spec_.size() && std::isspace(static_cast<unsigned char>(spec_[at_]))) ++at_;
  }

  bool take(char c) {
    skip_spaces();
    if (at_ >= spec_.size() || spec_[at_] != c) return false;
    ++at_;
    return true;
  }

  std::string_view word(std::string_view expected, std::string_view key) {
    skip_spaces();
    const std::size_t first = at_;
    while (at_ < spec_.size() && in_name(spec_[at_])) ++at_;
    if (at_ == first) {
      fail(first, key,
           fmt::format("expected {}, found {}", expected,
                       first < spec_.size() ? fmt::format("'{}'", spec_[first]) : "the end"));
    }
    return spec_.substr(first, at_ - first);
  }

  Pass pass() {
    skip_spaces();
    start_ = at_;
    const std::string_view name = word("the name of a strategy", "");
    const StrategyInfo* strategy = find_strategy(name);
    if (strategy == nullptr) {
      std::vector<std::string_view> names;
      for (const StrategyInfo* known : strategies()) names.push_back(known->name);
      fail(start_, "", fmt::format("unknown strategy '{}'{}", name, suggestion(name, names)));
    }
    std::map<std::string, std::string, std::less<>> given;
    if (take('(') && !take(')')) {
      do {
        option(*strategy, given);
      } while (take(','));
      if (!take(')')) {
        fail(at_, strategy->name,
             fmt::format("expected ',' or ')', found {}",
                         at_ < spec_.size() ? fmt::format("'{}'", spec_[at_]) : "the end"));
      }
    }
    return {strategy, Options(strategy->options, given)};
  }

  void option(const StrategyInfo& strategy, std::map<std::string, std::string, std::less<>>& given) {
    skip_spaces();
    const std::size_t first = at_;
    const std::string_view name = word("the name of an option", strategy.name);
    const std::string key = fmt::format("{}.{}", strategy.name, name);
    const OptionInfo* known = strategy.options.find(name);
    if (known == nullptr) {
      std::vector<std::string_view> names;
      for (const OptionInfo& each : strategy.options) names.push_back(each.name);
      fail(first, key, fmt::format("unknown option{}", suggestion(name, names)));
    }
    if (!take('=')) fail(at_, key, "expected '=' and a value");
    skip_spaces();
    const std::size_t value_at = at_;
    while (at_ < spec_.size() && spec_[at_] != ',' && spec_[at_] != ')') ++at_;
    std::size_t end = at_;
    while (end > value_at && std::isspace(static_cast<unsigned char>(spec_[end - 1]))) --end;
    const std::string_view value = spec_.substr(value_at, end - value_at);
    if (!strategy.options.allows(*known, value)) {
      fail(value_at, key,
           fmt::format("expected {}, found '{}'{}", known->values_text(), value,
                       meant(strategy.options, *known, value)));
    }
    if (!given.try_emplace(std::string(name), value).second) fail(first, key, "given twice");
  }

  void judge_order(const Pass& before, const Pass& after) const {
    const StrategyInfo& first = *before.strategy;
    const StrategyInfo& second = *after.strategy;
    if (first.family == Family::transform && &first != &second) return;  // the problem is changed, then planned
    if (first.family == Family::baseline || second.family == Family::baseline) {
      const StrategyInfo& other = first.family == Family::baseline ? second : first;
      const StrategyInfo& baseline = &other == &second ? first : second;
      const std::string_view why = baseline.name == "store_all"
                                       ? "store_all keeps everything, and every memory strategy starts from that anyway"
                                       : "it combines the others by itself";
      fail(start_, "", fmt::format("'{}' cannot be combined with '{}': {}", baseline.name, other.name, why));
    }
    if (first.family == Family::offloading && second.family == Family::offloading) return judge_moves(first, second);
    if (first.partitions() && second.partitions() && first.family != second.family) {
      fail(start_, "", fmt::format("'{}' cannot follow '{}': both assign work to devices", second.name, first.name));
    }
    const bool both_hybrid = first.family == Family::hybrid && second.family == Family::hybrid && &first != &second;
    if (both_hybrid && !first.partitions() && !second.partitions()) return;
    if (first.family == second.family) {
      fail(start_, "",
           fmt::format("'{}' cannot follow '{}': both are {} strategies, and one part has one", second.name, first.name,
                       name_of(first.family)));
    }
    if (second.family < first.family) {
      fail(start_, "",
           fmt::format("'{}' ({}) must stand before '{}' ({})", second.name, name_of(second.family), first.name,
                       name_of(first.family)));
    }
  }

  /// Activations, then parameters, gradients and states.
  void judge_moves(const StrategyInfo& first, const StrategyInfo& second) const {
    if (!first.moves_parameters() && second.moves_parameters()) return;
    std::string_view why =
        first.moves_parameters() ? "both move parameters, gradients or states" : "both move activations";
    if (first.moves_parameters() && !second.moves_parameters()) {
      why = "a strategy that moves activations comes before one that moves parameters, gradients or states";
    }
    fail(start_, "", fmt::format("'{}' cannot follow '{}': {}", second.name, first.name, why));
  }

  std::string_view spec_, where_;
  std::size_t at_ = 0;
  std::size_t start_ = 0;  // of the pass being read
};

/// Also what cuts graphs into chains, or keeps others from it.
bool changes_what_is_planned(const StrategyInfo& strategy) {
  return changes_problem(strategy) || strategy.may_split_backward() || strategy.chains_only || strategy.partitions() ||
         strategy.family == Family::compression;
}

constexpr std::string_view spaces = " \t\n\v\f\r";

/// The strategy that the text begins with; null where it is none.
const StrategyInfo* strategy_at(std::string_view text) {
  text.remove_prefix(std::min(text.size(), text.find_first_not_of(spaces)));
  const std::string_view name = text.substr(0, text.find_first_of("(|"));
  return find_strategy(name.substr(0, name.find_first_of(spaces)));
}

/// Of what stages of chains save it sees every tensor.
bool has_pass_that_changes(std::string_view spec) {
  for (std::size_t from = 0; from < spec.size(); from = std::min(spec.size(), spec.find('|', from)) + 1) {
    const StrategyInfo* strategy = strategy_at(spec.substr(from));
    if (strategy != nullptr && changes_what_is_planned(*strategy)) return true;
  }
  return false;
}

/// Where in a pipeline a pass stands, from its name to the '|' behind it; nothing if it has no such pass.
std::optional<std::pair<std::size_t, std::size_t>> span_of(std::string_view spec, std::string_view name) {
  for (std::size_t from = 0; from < spec.size();) {
    std::size_t end = from;
    for (int depth = 0; end < spec.size() && (depth > 0 || spec[end] != '|'); ++end) {
      depth += spec[end] == '(' ? 1 : spec[end] == ')' ? -1 : 0;
    }
    const std::size_t begin = std::min(spec.find_first_not_of(spaces, from), end);
    const std::string_view text = spec.substr(begin, end - begin);
    if (text.starts_with(name) && (text.size() == name.size() || !in_name(text[name.size()]))) return {{begin, end}};
    from = end + 1;
  }
  return std::nullopt;
}

/// `strategy 'rotor' works ...`, `'rotor' in a part ...` or `rotor: ...`: the name.
std::string_view name_at_the_head(std::string_view complaint) {
  for (const std::string_view before : {"strategy ", "'"}) {
    if (complaint.starts_with(before)) complaint.remove_prefix(before.size());
  }
  const auto* const end = std::ranges::find_if_not(complaint, in_name);
  return complaint.substr(0, static_cast<std::size_t>(end - complaint.begin()));
}

}  // namespace

InputError placed(const InputError& complaint, std::string_view spec, std::string_view where) {
  const std::string_view what = complaint.what(), name = name_at_the_head(what);
  const auto pass = name.empty() ? std::nullopt : span_of(spec, name);
  if (!pass) return complaint;
  std::size_t at = pass->first, first = what.size();
  for (const std::string_view option : names_in(spec.substr(at, pass->second - at))) {
    const std::string given = std::string(option) + "=";
    const auto begin = static_cast<std::size_t>(option.data() - spec.data());
    const std::size_t quoted = what.find(given);
    const bool is_of_longer_word = quoted > 0 && quoted < what.size() && in_name(what[quoted - 1]);
    if (quoted >= first || is_of_longer_word || spec.substr(begin, given.size()) != given) continue;
    first = quoted;
    at = begin + given.size();
  }
  const Position place{1, static_cast<std::uint32_t>(at + 1)};
  std::vector<std::string> excerpts = complaint.excerpts();
  excerpts.resize(std::max<std::size_t>(excerpts.size(), 1));
  excerpts.front() = excerpt(spec, place);
  return {located(where, place, "", what), std::move(excerpts)};
}

std::vector<Pass> parse_spec(std::string_view spec, std::string_view where) {
  return SpecReader(spec, where).read();
}

Pipeline parse_pipeline(std::string text, std::string_view where) {
  std::vector<Pass> passes = parse_spec(text, where);
  return {std::move(text), std::move(passes)};
}

std::vector<Pass> changes_of(std::string_view spec, std::string_view where) {
  if (strategy_at(spec) == nullptr || !has_pass_that_changes(spec)) return {};
  std::vector<Pass> passes = parse_spec(spec, where);
  const auto is_hybrid = [](const Pass& pass) { return pass.strategy->family == Family::hybrid; };
  if (std::ranges::any_of(passes, is_hybrid)) return passes;  // whether the problem is a chain depends on the others
  std::erase_if(passes, [](const Pass& pass) { return !changes_what_is_planned(*pass.strategy); });
  return passes;
}

}  // namespace plimsoll
