#include "traces/trace_file.h"

#include <fmt/format.h>

#include "sim/io/json_cursor.h"
#include "sim/io/shipped.h"
#include "sim/io/text_file.h"
#include "traces/synthetic.h"
#include "traces/trace_parts.h"

namespace plimsoll {
namespace {

constexpr ShippedFiles trace_files{"trace", "traces/data", ".json"};

/// Both are looked at before all else: what another version means by a key is unknown.
void check_head(JsonDocument& document) {
  const std::optional<std::string> format = document.peek_string("format");
  if (!format) {
    document.complain("format", fmt::format("missing, expected \"{}\"", trace_format));
  } else if (*format != trace_format) {
    document.complain("format", fmt::format("expected {}, found {}", trace_format, *format));
  }
  document.throw_if_any();
}

}  // namespace

const std::string& name_of(const Trace& trace) {
  return std::visit([](const auto& model) -> const std::string& { return model.name; }, trace.model);
}

const Source& source_of(const Trace& trace) {
  return std::visit([](const auto& model) -> const Source& { return model.source; }, trace.model);
}

Trace load_trace(std::string_view reference) {
  if (is_synthetic(reference)) return {synthetic_chain(reference)};
  return read_trace(find_trace(reference));
}

Trace read_trace(const std::filesystem::path& path) {
  return parse_trace(read_text_file(path, JsonDocument::spare), path.string());
}

Trace parse_trace(std::string text, std::string file_name) {
  JsonDocument document(std::move(text), std::move(file_name));
  check_head(document);
  const std::string kind = document.peek_string("kind").value_or("");
  if (kind == "chain") return {read_chain(document)};
  if (kind == "graph") return {read_graph(document)};
  document.complain("kind", fmt::format("expected \"chain\" or \"graph\"{}", kind.empty() ? "" : ", found " + kind));
  document.throw_if_any();
  return {};
}

std::filesystem::path find_trace(std::string_view name_or_path) {
  return find_file(name_or_path, trace_files);
}

std::vector<std::string> shipped_traces() {
  return shipped_names(trace_files);
}

}  // namespace plimsoll
