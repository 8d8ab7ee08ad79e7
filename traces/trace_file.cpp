#include "traces/trace_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/io/input_error.h"
#include "sim/io/json/json_cursor.h"
#include "sim/io/shipped.h"
#include "sim/io/text_file.h"
#include "traces/imports/foreign_file.h"
#include "traces/imports/framework_graphs.h"
#include "traces/models/named_models.h"
#include "traces/models/synthetic.h"
#include "traces/models/synthetic_graphs.h"
#include "traces/trace_parts.h"

namespace plimsoll {
namespace {

constexpr ShippedFiles trace_files{"trace", "traces/data", ".json"};

/// A top-level word that decides how the rest is read, so it is looked at before all else.
std::string head(JsonDocument& document, std::string_view key, std::span<const std::string_view> allowed) {
  std::string word = document.peek_string(key).value_or("");
  if (std::ranges::find(allowed, word) != allowed.end()) return word;
  std::string what = fmt::format("expected {}", alternatives(allowed));
  if (!word.empty()) what += fmt::format(", found {}", word);
  if (allowed.size() > 1) what += suggestion(word, allowed);
  document.complain(key, what);
  document.throw_if_any();
  return "";
}

}  // namespace

const std::string& name_of(const Trace& trace) {
  return std::visit([](const auto& model) -> const std::string& { return model.name; }, trace.model);
}

const Source& source_of(const Trace& trace) {
  return std::visit([](const auto& model) -> const Source& { return model.source; }, trace.model);
}

Trace load_trace(std::string_view reference, const std::vector<std::string>& others) {
  if (is_framework_graph(reference)) return {framework_graph(reference)};
  if (is_synthetic(reference)) return {synthetic_model(reference)};
  if (is_synthetic_graph(reference)) return {synthetic_graph(reference)};
  return read_trace(find_trace(reference, others));
}

Trace read_trace(const std::filesystem::path& path) {
  std::string text = read_text_file(path);
  if (const std::string hint = foreign_hint(text, path.string()); !hint.empty()) {
    throw InputError(located(path.string(), {}, "", hint));
  }
  return parse_trace(std::move(text), path.string());
}

Trace parse_trace(std::string text, std::string file_name) {
  JsonDocument document(std::move(text), std::move(file_name));
  if (!document.is_object()) {
    document.complain("", "expected an object, found a list");
    document.throw_if_any();
  }
  constexpr std::string_view formats[] = {trace_format}, kinds[] = {"chain", "graph"};
  head(document, "format", formats);
  if (head(document, "kind", kinds) == "chain") return read_chain(document);
  return {read_graph(document)};
}

std::filesystem::path find_trace(std::string_view name_or_path, const std::vector<std::string>& others) {
  std::vector<std::string> models = others;
  for (const NamedModel& model : named_models()) models.emplace_back(model.name);
  for (const auto names : {synthetic_names, synthetic_graph_names, framework_names}) {
    for (std::string& name : names()) models.push_back(std::move(name));
  }
  return find_file(name_or_path, trace_files, models);
}

std::vector<std::string> shipped_traces() {
  return shipped_names(trace_files);
}

}  // namespace plimsoll
