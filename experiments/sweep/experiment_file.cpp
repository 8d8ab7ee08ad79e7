#include "experiments/sweep/experiment_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <span>

#include "experiments/study/allocator_spec.h"
#include "experiments/study/choice/cluster_question.h"
#include "experiments/sweep/value_ranges.h"
#include "sim/core/names.h"
#include "sim/io/evaluation_words.h"
#include "sim/io/fields.h"
#include "sim/io/input_error.h"
#include "sim/io/one_of.h"
#include "sim/io/parameter_groups.h"
#include "sim/io/quantity.h"
#include "sim/io/text_file.h"
#include "sim/io/yaml_document.h"
#include "strategies/compose/spec.h"

namespace plimsoll {

template <>
struct Names<BudgetMark> {
  static constexpr std::array all{std::pair{BudgetMark::smallest, "smallest"},
                                  std::pair{BudgetMark::store_all, "store_all"}};
};

template <>
struct Names<BudgetScale> {
  static constexpr std::array all{std::pair{BudgetScale::linear, "linear"}, std::pair{BudgetScale::log, "log"}};
};

namespace {

namespace fs = std::filesystem;

using Places = std::map<std::string, std::vector<YamlPlace>, std::less<>>;
using Aliases = std::map<std::string, std::string>;  // what a name stands for

/// A list of at least one, or a single value in place of a list of one.
std::vector<YamlCursor> elements_of(const YamlCursor& value) {
  if (value.is_scalar()) return {value};
  std::vector<YamlCursor> elements = value.elements();
  if (value.is_list() && elements.empty()) value.complain("is empty, expected at least one");
  return elements;
}

/// Twice the same is a slip.
template <class Element, class Read>
std::vector<Element> list_of(const YamlCursor& value, Read read) {
  std::vector<Element> list;
  std::set<Element> seen;
  for (const YamlCursor& element : elements_of(value)) {
    list.push_back(read(element));
    if (!seen.insert(list.back()).second) element.complain("is listed twice, " + element.found());
  }
  return list;
}

std::string word(const YamlCursor& value) {
  std::string text = value.string();
  if (value.is_scalar() && text.empty()) value.complain("is empty");
  return text;
}

/// A word of a list, and where it stands.
struct PlacedWord {
  std::string text;
  YamlCursor at;
};

/// Whether YAML has cut a word at a comma: `[rotor(slots=9, x=1)]`.
bool is_cut(std::string_view text) {
  return std::ranges::count(text, '(') > std::ranges::count(text, ')');
}

/// The rest of what is_cut, or of a name with options: `[uniform:6, x=1]`.
bool is_rest(std::string_view text) {
  const std::size_t equals = text.find('=');
  return std::ranges::count(text, '(') < std::ranges::count(text, ')') ||
         (equals != std::string_view::npos && text.find_first_of(":(/") > equals);
}

/// The words that an element stands for. What it lacks is complained about.
std::vector<PlacedWord> placed_words(const YamlCursor& element, const Aliases& aliases) {
  std::string text = word(element);
  if (const auto alias = aliases.find(text); alias != aliases.end()) text = alias->second;
  if (is_cut(text)) element.complain("is cut at its comma: quote it, " + element.found());
  if (is_cut(text) || text.empty()) return {};
  const Parsed<std::vector<std::string>> words = words_meant_by(text);
  if (!words.fine()) element.complain(words.complaint);
  std::vector<PlacedWord> placed;
  for (const std::string& each : words.value) placed.push_back({each, element});
  return placed;
}

/// The words of a list, without those that are there twice and the rests of words that were cut, which are complained
/// about.
std::vector<PlacedWord> words_of_list(const YamlCursor& value, const Aliases& aliases) {
  std::vector<PlacedWord> words;
  std::set<std::string> seen;
  bool cut = false;
  for (const YamlCursor& element : elements_of(value)) {
    const bool is_word = element.is_scalar() && !aliases.contains(element.string());
    if (is_word && is_rest(element.string())) {
      if (!cut) element.complain("is the rest of a word with a comma: quote that, " + element.found());
      continue;
    }
    cut = is_word && is_cut(element.string());
    for (PlacedWord& each : placed_words(element, aliases)) {
      if (!seen.insert(each.text).second) {
        const bool made = !element.is_scalar() || each.text != element.string();
        element.complain("is listed twice, " + (made ? "as '" + each.text + "'" : element.found()));
      }
      words.push_back(std::move(each));
    }
  }
  return words;
}

/// A pass pipeline, refused here if it is malformed, so that the place in the file is told too.
Pipeline strategy(const PlacedWord& word) {
  try {
    return parse_pipeline(word.text, word.text);
  } catch (const InputError& error) {
    word.at.complain(error.what());
  }
  return {word.text, {}};
}

std::uint32_t count_of(const PlacedWord& word) {
  constexpr std::int64_t most = 1'000'000;
  const Parsed<std::int64_t> count = parse_integer(word.text);
  if (count.fine() && count.value >= 1 && count.value <= most) return static_cast<std::uint32_t>(count.value);
  word.at.complain(fmt::format("expected a whole number from 1 to {}, found '{}'", most, word.text));
  return 1;
}

/// A size, or a word that stands for one.
Bytes size_or(const YamlCursor& value, const std::vector<std::string_view>& words) {
  if (!value.is_scalar()) return value.bytes();
  const std::string text = value.string();
  const Parsed<Bytes> size = parse_bytes(text);
  if (!size.fine()) value.complain(size.complaint + "; or " + alternatives(words) + suggestion(text, words));
  return size.value;
}

/// A share, where that is what is meant.
std::optional<Share> share(const YamlCursor& value) {
  if (!value.is_scalar() || !is_share(value.string())) return std::nullopt;
  const Parsed<Share> parsed = parse_share(value.string());
  if (!parsed.fine()) value.complain(parsed.complaint);
  return parsed.value;
}

BudgetList::value_type budget(const YamlCursor& value) {
  if (value.is_scalar() && value.string() == "capacity") return std::nullopt;
  if (const std::optional<Share> part = share(value)) return *part;
  return size_or(value, {"capacity"});
}

BudgetEnd budget_end(const YamlCursor& value) {
  if (const auto mark = value.is_scalar() ? from_name<BudgetMark>(value.string()) : std::nullopt) return *mark;
  if (const std::optional<Share> part = share(value)) return *part;
  return size_or(value, {written(BudgetMark::smallest), written(BudgetMark::store_all)});
}

/// Whether a range is known to end below its beginning, whatever the trace.
bool is_backward(const BudgetRange& range) {
  const Bytes *from = std::get_if<Bytes>(&range.from), *to = std::get_if<Bytes>(&range.to);
  const Share *first = std::get_if<Share>(&range.from), *last = std::get_if<Share>(&range.to);
  return (from != nullptr && to != nullptr && *from > *to) || (first != nullptr && last != nullptr && *first > *last);
}

using RangeField = Field<BudgetRange, const YamlCursor&>;
constexpr RangeField range_fields[] = {
    {"from", Need::required, [](BudgetRange& r, const YamlCursor& v) { r.from = budget_end(v); }},
    {"to", Need::required, [](BudgetRange& r, const YamlCursor& v) { r.to = budget_end(v); }},
    {"count", Need::required,
     [](BudgetRange& r, const YamlCursor& v) {
       constexpr std::uint32_t most = 10'000;
       r.count = v.count();
       if (r.count == 1 || r.count > most) v.complain("expected 2 to 10000, " + v.found());
     }},
    {"scale", Need::optional, [](BudgetRange& r, const YamlCursor& v) { r.scale = one_of<BudgetScale>(v); }},
};

std::variant<BudgetList, BudgetRange> memory(const YamlCursor& value) {
  if (!value.is_object()) return list_of<BudgetList::value_type>(value, budget);
  BudgetRange range;
  read_fields(value, range_fields, range);
  if (is_backward(range)) value.complain("from is larger than to");
  if (range.from == BudgetEnd(BudgetMark::store_all)) value.complain("store_all can only be the upper end, 'to'");
  if (range.to == BudgetEnd(BudgetMark::smallest)) value.complain("smallest can only be the lower end, 'from'");
  if (range.scale == BudgetScale::log && range.from == BudgetEnd(Bytes{}))
    value.complain("from 0 B there are no ratios");
  return range;
}

Evaluation evaluation(const YamlCursor& value) {
  Parsed<Evaluation> read = read_evaluation(value.string());
  if (!read.fine() && value.is_word()) value.complain(read.complaint);
  return read.value;
}

AllocatorChoice allocator(const YamlCursor& value) {
  AllocatorSpec spec = read_allocator(value.string());
  if (!spec.fine() && value.is_word())
    value.complain(spec.key.empty() ? spec.complaint : spec.key + ": " + spec.complaint);
  return spec.value;
}

void check_experiment_format(const YamlCursor& value) {
  constexpr std::string_view format = "plimsoll.experiment.v1";
  if (value.string() != format) value.complain("expected '" + std::string(format) + "', " + value.found());
}

/// An experiment while its files are read, the base first.
struct Draft {
  Experiment experiment;
  Places places;
  Aliases aliases;
  std::set<std::string, std::less<>> given;  ///< lists
  std::vector<YamlPlace> zip_at, exclude_at, within_at;

  /// The words of a list, which replace those of a base.
  std::vector<PlacedWord> take(const std::string& list, const YamlCursor& value) {
    given.insert(list);
    std::vector<PlacedWord> words = words_of_list(value, aliases);
    std::vector<YamlPlace>& at = places[list];
    at.clear();
    for (const PlacedWord& each : words) at.push_back(each.at.place());
    return words;
  }
};

std::vector<std::string> texts(const std::vector<PlacedWord>& words) {
  std::vector<std::string> list;
  for (const PlacedWord& each : words) list.push_back(each.text);
  return list;
}

/// `*norm*=adam`, or a list of such.
void read_groups(Draft& d, const YamlCursor& value) {
  const auto read = [&](const YamlCursor& each) {
    const Parsed<std::vector<ParameterGroup>> parsed = parse_parameter_groups(each.string());
    if (!parsed.fine()) each.complain(parsed.complaint);
    d.experiment.parameter_groups.insert(d.experiment.parameter_groups.end(), parsed.value.begin(), parsed.value.end());
  };
  d.experiment.parameter_groups.clear();
  if (value.is_scalar()) return read(value);
  for (const YamlCursor& each : value.elements()) read(each);
}

void read_strategies(Draft& d, const YamlCursor& value) {
  d.experiment.strategies.clear();
  for (const PlacedWord& each : d.take("strategies", value)) d.experiment.strategies.push_back(strategy(each));
}

void read_micro_batches(Draft& d, const YamlCursor& value) {
  d.experiment.micro_batches.clear();
  for (const PlacedWord& each : d.take("micro_batches", value)) d.experiment.micro_batches.push_back(count_of(each));
}

void read_excluded(Draft& d, const YamlCursor& value) {
  d.experiment.selection.excluded = read_exclusions(value);
  d.exclude_at.clear();
  for (const YamlCursor& each : value.is_list() ? value.elements() : std::vector{value}) {
    d.exclude_at.push_back(each.place());
  }
}

void read_timeout(Draft& d, const YamlCursor& value) {
  d.experiment.timeout = value.seconds();
  if (!(d.experiment.timeout->value > 0)) value.complain("expected more than 0 s, " + value.found());
}

void read_memory_limit(Draft& d, const YamlCursor& value) {
  constexpr Bytes least{64'000'000};  // the program itself
  d.experiment.memory_limit = value.bytes();
  if (*d.experiment.memory_limit < least) value.complain("expected at least 64 MB, " + value.found());
}

using DraftField = Field<Draft, const YamlCursor&>;
constexpr DraftField draft_fields[] = {
    // Of a whole file only; the others may be changed by a preset or a command.
    {"format", Need::required, [](Draft&, const YamlCursor& v) { check_experiment_format(v); }},
    {"base", Need::optional, [](Draft&, const YamlCursor&) {}},     // was read before
    {"alias", Need::optional, [](Draft&, const YamlCursor&) {}},    // the same
    {"presets", Need::optional, [](Draft&, const YamlCursor&) {}},  // is read behind
    {"name", Need::optional,
     [](Draft& d, const YamlCursor& v) {
       d.given.insert("name");
       d.experiment.name = word(v);
     }},
    {"traces", Need::optional, [](Draft& d, const YamlCursor& v) { d.experiment.traces = texts(d.take("traces", v)); }},
    {"platforms", Need::optional,
     [](Draft& d, const YamlCursor& v) { d.experiment.platforms = texts(d.take("platforms", v)); }},
    {"strategies", Need::optional, read_strategies},
    {"zip", Need::optional,
     [](Draft& d, const YamlCursor& v) {
       d.experiment.selection.zipped = read_zip(v);
       d.zip_at = {v.place()};
     }},
    {"exclude", Need::optional, read_excluded},
    {"memory", Need::optional, [](Draft& d, const YamlCursor& v) { d.experiment.memory = memory(v); }},
    {"micro_batches", Need::optional, read_micro_batches},
    {"optimizer", Need::optional,
     [](Draft& d, const YamlCursor& v) {
       d.experiment.optimizers = list_of<Optimizer>(v, [](const YamlCursor& o) { return one_of<Optimizer>(o); });
     }},
    {"states", Need::optional, [](Draft& d, const YamlCursor& v) { d.experiment.states = one_of<States>(v); }},
    {"update_kernels", Need::optional,
     [](Draft& d, const YamlCursor& v) { d.experiment.update_kernels = one_of<UpdateKernels>(v); }},
    {"parameter_groups", Need::optional, read_groups},
    {"ema", Need::optional, [](Draft& d, const YamlCursor& v) { d.experiment.ema = v.boolean(); }},
    {"clip_norm", Need::optional, [](Draft& d, const YamlCursor& v) { d.experiment.clip_norm = v.boolean(); }},
    {"evaluate", Need::optional, [](Draft& d, const YamlCursor& v) { d.experiment.evaluation = evaluation(v); }},
    {"gradients", Need::optional, [](Draft& d, const YamlCursor& v) { d.experiment.gradients = one_of<Gradients>(v); }},
    {"engine", Need::optional, [](Draft& d, const YamlCursor& v) { d.experiment.engine = one_of<Engine>(v); }},
    {"allocator", Need::optional, [](Draft& d, const YamlCursor& v) { d.experiment.allocator = allocator(v); }},
    {"within", Need::optional,
     [](Draft& d, const YamlCursor& v) {
       d.experiment.within = one_of<Within>(v);
       d.within_at = {v.place()};
     }},
    {"timelines", Need::optional, [](Draft& d, const YamlCursor& v) { d.experiment.timelines = v.boolean(); }},
    {"timeout", Need::optional, read_timeout},
    {"memory_limit", Need::optional, read_memory_limit},
};
constexpr std::span changeable_fields = std::span(draft_fields).subspan(4);

/// Calls `read` with the value of a key of an object, if it is there.
template <class Read>
void at_key(const YamlCursor& object, std::string_view key, Read read) {
  if (!object.is_object()) return;
  object.object([&](std::string_view each, const YamlCursor& value) {
    if (each == key) read(value);
  });
}

void read_aliases(const YamlCursor& value, Draft& draft) {
  value.object([&](std::string_view name, const YamlCursor& of) {
    const std::string text = word(of);
    draft.aliases[std::string(name)] = text;
    const Parsed<std::vector<std::string>> words = words_meant_by(text);
    if (words.fine() && words.value.size() == 1) draft.experiment.aliases[text] = name;
  });
}

/// All presets are read, so that all of them are right; the one that is asked for is kept.
void read_presets(const YamlCursor& root, const std::string& asked, Draft& draft, const std::string& file) {
  std::vector<std::string> names;
  std::optional<Draft> kept;
  at_key(root, "presets", [&](const YamlCursor& presets) {
    presets.object([&](std::string_view name, const YamlCursor& changes) {
      Draft changed = draft;
      read_fields(changes, changeable_fields, changed);
      names.emplace_back(name);
      if (name == asked) kept = std::move(changed);
    });
  });
  if (kept) draft = std::move(*kept);
  if (asked.empty() || std::ranges::find(names, asked) != names.end()) return;
  const std::string known = names.empty()
                                ? "it has none"
                                : "expected " + alternatives(std::vector<std::string_view>(names.begin(), names.end()));
  throw InputError(
      located(file, {}, "presets", fmt::format("no preset '{}', {}{}", asked, known, suggestion(asked, names))));
}

/// `key=value` of a command, as a document of its own.
void read_setting(const std::string& setting, Draft& draft) {
  const std::size_t equals = setting.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw InputError("--set: expected KEY=VALUE such as micro_batches=8, found '" + setting + "'");
  }
  YamlDocument document(setting.substr(0, equals) + ": " + setting.substr(equals + 1), "--set " + setting);
  read_fields(document.root(), changeable_fields, draft);
  document.throw_if_any();
}

/// What shows only when all lists are known.
std::string wrong_selection(const Draft& draft) {
  const PointSelection& selection = draft.experiment.selection;
  const CombinedValues values = values_of(draft.experiment);
  const std::string of_zip = complaint_of_zip(selection, values);
  const auto complaint = [](const YamlPlace& at, const std::string& what) {
    return located(at.file, at.at, at.path, what);
  };
  if (!of_zip.empty()) return complaint(draft.zip_at.front(), of_zip);
  for (std::size_t e = 0; e < selection.excluded.size(); ++e) {
    const std::string what = complaint_of_exclusion(selection.excluded[e], values);
    if (!what.empty()) return complaint(draft.exclude_at[e], what);
  }
  return "";
}

/// A path that exists beside the experiment file; else the reference as it stands.
std::string beside(const fs::path& folder, const std::string& reference, std::string_view extension) {
  const fs::path path(reference);
  const bool is_path = reference.find('/') != std::string::npos || path.extension() == extension;
  std::error_code ignored;
  if (is_path && path.is_relative() && fs::exists(folder / path, ignored)) return (folder / path).lexically_normal();
  return reference;
}

Json to_json(const std::variant<BudgetList, BudgetRange>& memory) {
  if (const BudgetRange* range = std::get_if<BudgetRange>(&memory)) {
    Json json{{"from", to_json(range->from)}, {"to", to_json(range->to)}, {"count", range->count}};
    if (range->scale != BudgetScale::linear) json["scale"] = written(range->scale);
    return json;
  }
  Json list = Json::array();
  for (const BudgetList::value_type& b : std::get<BudgetList>(memory)) {
    list.push_back(b ? std::visit([](auto end) { return to_json(BudgetEnd(end)); }, *b) : Json("capacity"));
  }
  return list;
}

}  // namespace

std::size_t budgets(const Experiment& experiment) {
  if (const BudgetRange* range = std::get_if<BudgetRange>(&experiment.memory)) return range->count;
  return std::get<BudgetList>(experiment.memory).size();
}

CombinedValues values_of(const Experiment& e) {
  CombinedValues values{e.traces, e.platforms, {}, {}, {}};
  for (const std::uint32_t m : e.micro_batches) values[2].push_back(std::to_string(m));
  for (const Optimizer optimizer : e.optimizers) values[3].emplace_back(written(optimizer));
  for (const Pipeline& strategy : e.strategies) values[4].push_back(strategy.text);
  return values;
}

namespace {

/// What does not go together with what is to fit the budgets.
std::string wrong_within(const Draft& draft) {
  const Experiment& e = draft.experiment;
  if (e.within == Within::live) return "";
  const YamlPlace& at = draft.within_at.front();
  if (e.within == Within::reserved && e.allocator.kind == AllocatorKind::exact) {
    return located(at.file, at.at, at.path,
                   "reserved: the allocator 'exact' reserves the live bytes alone: give another");
  }
  for (const Pipeline& strategy : e.strategies) {
    if (asks_cluster({.trace = {}, .platform = {}, .strategy = strategy})) {
      return located(at.file, at.at, at.path,
                     fmt::format("{}: '{}' chooses by live bytes", written(e.within), strategy.text));
    }
  }
  return "";
}

/// At most as deep as anybody's files are: the base of a base of a base.
constexpr std::size_t deepest_base = 16;

/// Reads a file's base, if it names one, and then the file over it. `above` are the files that have led here.
void read_draft(const std::string& text, const std::string& file, const std::string& preset,
                std::vector<std::string> above, Draft& draft) {
  YamlDocument document(text, file);
  const YamlCursor root = document.root();
  above.push_back(fs::path(file).lexically_normal());
  at_key(root, "base", [&](const YamlCursor& value) {
    const std::string base = (fs::path(file).parent_path() / word(value)).lexically_normal();
    const bool is_circle = std::ranges::find(above, base) != above.end();
    if (is_circle) value.complain("leads back to this file, " + value.found());
    if (above.size() > deepest_base) value.complain("a base of more than 16 bases");
    document.throw_if_any();
    std::string of_base;
    try {
      of_base = read_text_file(base);
    } catch (const InputError& error) {
      value.complain(error.what());
    }
    document.throw_if_any();
    read_draft(of_base, base, "", above, draft);
  });
  at_key(root, "alias", [&](const YamlCursor& value) { read_aliases(value, draft); });
  read_fields(root, draft_fields, draft);
  if (above.size() == 1) {
    for (const char* key : {"name", "traces", "platforms", "strategies"}) {
      if (root.is_object() && !draft.given.contains(key)) root.complain_missing_key(key);
    }
  }
  document.throw_if_any();
  read_presets(root, preset, draft, file);
  document.throw_if_any();
}

}  // namespace

ExperimentFile parsed_experiment(const std::string& text, const std::string& file, const ExperimentChanges& changes) {
  Draft draft;
  read_draft(text, file, changes.preset, {}, draft);
  for (const std::string& setting : changes.settings) read_setting(setting, draft);
  const Experiment& experiment = draft.experiment;
  double all = 1;
  for (const std::size_t size : {experiment.traces.size(), experiment.platforms.size(), experiment.strategies.size(),
                                 experiment.micro_batches.size(), experiment.optimizers.size(), budgets(experiment)}) {
    all *= static_cast<double>(size);
  }
  if (all > static_cast<double>(most_points)) {
    throw InputError(located(file, {}, "", fmt::format("makes {:.0f} points, expected {} at most", all, most_points)));
  }
  if (const std::string wrong = wrong_selection(draft); !wrong.empty()) throw InputError(wrong);
  if (const std::string wrong = wrong_within(draft); !wrong.empty()) throw InputError(wrong);
  return {std::move(draft.experiment), file, text, std::move(draft.places)};
}

Experiment parse_experiment(const std::string& text, const std::string& file) {
  return parsed_experiment(text, file).experiment;
}

ExperimentFile read_experiment(const fs::path& path, const ExperimentChanges& changes) {
  ExperimentFile file = parsed_experiment(read_text_file(path), path.string(), changes);
  const auto all_beside = [&](std::vector<std::string>& names, const char* list, std::string_view extension) {
    for (std::size_t n = 0; n < names.size(); ++n) {
      const fs::path folder = fs::path(file.places[list][n].file).parent_path();
      std::string found = beside(folder, names[n], extension);
      if (auto alias = file.experiment.aliases.extract(names[n]); !alias.empty()) {
        alias.key() = found;
        file.experiment.aliases.insert(std::move(alias));
      }
      names[n] = std::move(found);
    }
  };
  all_beside(file.experiment.traces, "traces", ".json");
  all_beside(file.experiment.platforms, "platforms", ".yaml");
  return file;
}

std::string complaint_about(const ExperimentFile& file, std::string_view list, std::size_t element,
                            const std::string& what) {
  const YamlPlace& at = file.places.find(list)->second.at(element);
  return located(at.file, at.at, at.path, what);
}

Json to_json(const BudgetEnd& end) {
  if (const Bytes* bytes = std::get_if<Bytes>(&end)) return bytes->count;
  if (const Share* part = std::get_if<Share>(&end)) return written(*part);
  return written(std::get<BudgetMark>(end));
}

Json to_json(const Experiment& experiment) {
  Json strategies = Json::array(), optimizers = Json::array();
  for (const Pipeline& strategy : experiment.strategies) strategies.push_back(strategy.text);
  for (const Optimizer optimizer : experiment.optimizers) optimizers.push_back(written(optimizer));
  Json json{{"name", experiment.name},
            {"traces", experiment.traces},
            {"platforms", experiment.platforms},
            {"strategies", std::move(strategies)},
            {"memory", to_json(experiment.memory)},
            {"micro_batches", experiment.micro_batches},
            {"optimizer", std::move(optimizers)},
            {"gradients", written(experiment.gradients)},
            {"engine", written(experiment.engine)},
            {"allocator", experiment.allocator.text}};
  write_selection(experiment.selection, json);
  if (!experiment.aliases.empty()) json["alias"] = experiment.aliases;
  if (experiment.states != States::by_dtype) json["states"] = written(experiment.states);
  if (experiment.update_kernels != UpdateKernels::fused) json["update_kernels"] = written(experiment.update_kernels);
  if (!experiment.parameter_groups.empty()) json["parameter_groups"] = written(experiment.parameter_groups);
  if (experiment.ema) json["ema"] = true;
  if (experiment.clip_norm) json["clip_norm"] = true;
  if (experiment.evaluation) json["evaluate"] = written(*experiment.evaluation);
  if (experiment.within != Within::live) json["within"] = written(experiment.within);
  if (experiment.timelines) json["timelines"] = true;
  if (experiment.timeout) json["timeout_s"] = experiment.timeout->value;
  if (experiment.memory_limit) json["memory_limit_bytes"] = experiment.memory_limit->count;
  return json;
}

bool same_limits(const Json& a, const Json& b) {
  const auto same = [&](const char* key) { return a.value(key, Json()) == b.value(key, Json()); };
  return same("timeout_s") && same("memory_limit_bytes");
}

}  // namespace plimsoll
