#include "experiments/sweep/experiment_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "experiments/study/allocator_spec.h"
#include "sim/core/names.h"
#include "sim/io/fields.h"
#include "sim/io/input_error.h"
#include "sim/io/one_of.h"
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

namespace {

namespace fs = std::filesystem;

/// A list of at least one, or a single value in place of a list of one; twice the same is a slip.
template <class Element, class Read>
std::vector<Element> list_of(const YamlCursor& value, Read read) {
  if (value.is_scalar()) return {read(value)};
  const std::vector<YamlCursor> elements = value.elements();
  if (value.is_list() && elements.empty()) value.complain("is empty, expected at least one");
  std::vector<Element> list;
  std::set<Element> seen;
  for (const YamlCursor& element : elements) {
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

/// A pass pipeline, refused here if it is malformed, so that the place in the file is told too.
Pipeline strategy(const YamlCursor& value) {
  std::string spec = word(value);
  if (spec.empty()) return {};
  try {
    return parse_pipeline(spec, spec);
  } catch (const InputError& error) {
    value.complain(error.what());
  }
  return {spec, {}};
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
};

std::variant<BudgetList, BudgetRange> memory(const YamlCursor& value) {
  if (!value.is_object()) return list_of<BudgetList::value_type>(value, budget);
  BudgetRange range;
  read_fields(value, range_fields, range);
  if (is_backward(range)) value.complain("from is larger than to");
  if (range.from == BudgetEnd(BudgetMark::store_all)) value.complain("store_all can only be the upper end, 'to'");
  if (range.to == BudgetEnd(BudgetMark::smallest)) value.complain("smallest can only be the lower end, 'from'");
  return range;
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

using ExperimentField = Field<Experiment, const YamlCursor&>;
constexpr ExperimentField experiment_fields[] = {
    {"format", Need::required, [](Experiment&, const YamlCursor& v) { check_experiment_format(v); }},
    {"name", Need::required, [](Experiment& e, const YamlCursor& v) { e.name = word(v); }},
    {"traces", Need::required, [](Experiment& e, const YamlCursor& v) { e.traces = list_of<std::string>(v, word); }},
    {"platforms", Need::required,
     [](Experiment& e, const YamlCursor& v) { e.platforms = list_of<std::string>(v, word); }},
    {"strategies", Need::required,
     [](Experiment& e, const YamlCursor& v) { e.strategies = list_of<Pipeline>(v, strategy); }},
    {"memory", Need::optional, [](Experiment& e, const YamlCursor& v) { e.memory = memory(v); }},
    {"micro_batches", Need::optional,
     [](Experiment& e, const YamlCursor& v) {
       e.micro_batches = list_of<std::uint32_t>(v, [](const YamlCursor& m) { return m.count(); });
     }},
    {"optimizer", Need::optional,
     [](Experiment& e, const YamlCursor& v) {
       e.optimizers = list_of<Optimizer>(v, [](const YamlCursor& o) { return one_of<Optimizer>(o); });
     }},
    {"states", Need::optional, [](Experiment& e, const YamlCursor& v) { e.states = one_of<States>(v); }},
    {"update_kernels", Need::optional,
     [](Experiment& e, const YamlCursor& v) { e.update_kernels = one_of<UpdateKernels>(v); }},
    {"gradients", Need::optional, [](Experiment& e, const YamlCursor& v) { e.gradients = one_of<Gradients>(v); }},
    {"engine", Need::optional, [](Experiment& e, const YamlCursor& v) { e.engine = one_of<Engine>(v); }},
    {"allocator", Need::optional, [](Experiment& e, const YamlCursor& v) { e.allocator = allocator(v); }},
    {"timelines", Need::optional, [](Experiment& e, const YamlCursor& v) { e.timelines = v.boolean(); }},
    {"timeout", Need::optional,
     [](Experiment& e, const YamlCursor& v) {
       e.timeout = v.seconds();
       if (!(e.timeout->value > 0)) v.complain("expected more than 0 s, " + v.found());
     }},
    {"memory_limit", Need::optional,
     [](Experiment& e, const YamlCursor& v) {
       constexpr Bytes least{64'000'000};  // the program itself
       e.memory_limit = v.bytes();
       if (*e.memory_limit < least) v.complain("expected at least 64 MB, " + v.found());
     }},
};

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
    return {{"from", to_json(range->from)}, {"to", to_json(range->to)}, {"count", range->count}};
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

Experiment parse_experiment(const std::string& text, std::string file) {
  YamlDocument document(text, file);
  Experiment experiment;
  read_fields(document.root(), experiment_fields, experiment);
  document.throw_if_any();
  double all = 1;
  for (const std::size_t size : {experiment.traces.size(), experiment.platforms.size(), experiment.strategies.size(),
                                 experiment.micro_batches.size(), experiment.optimizers.size(), budgets(experiment)}) {
    all *= static_cast<double>(size);
  }
  if (all > static_cast<double>(most_points)) {
    throw InputError(located(file, {}, "", fmt::format("makes {:.0f} points, expected {} at most", all, most_points)));
  }
  return experiment;
}

ExperimentFile read_experiment(const fs::path& path) {
  std::string text = read_text_file(path);
  Experiment experiment = parse_experiment(text, path.string());
  const fs::path folder = path.parent_path();
  for (std::string& trace : experiment.traces) trace = beside(folder, trace, ".json");
  for (std::string& platform : experiment.platforms) platform = beside(folder, platform, ".yaml");
  return {std::move(experiment), path.string(), std::move(text)};
}

std::string complaint_about(const ExperimentFile& file, std::string_view list, std::size_t element,
                            const std::string& what) {
  YamlDocument document(file.text, file.path);
  document.root().object([&](std::string_view key, const YamlCursor& value) {
    if (key == list) (value.is_scalar() ? value : value.elements().at(element)).complain(what);
  });
  try {
    document.throw_if_any();
  } catch (const InputError& error) {
    return error.what();
  }
  return what;
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
  if (experiment.states != States::by_dtype) json["states"] = written(experiment.states);
  if (experiment.update_kernels != UpdateKernels::fused) json["update_kernels"] = written(experiment.update_kernels);
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
