#pragma once
// Trace files: JSON text <-> Chain or Graph. The format is described key by key in traces/format.md.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "sim/core/allocations.h"
#include "sim/core/chain.h"
#include "sim/core/graph.h"

namespace plimsoll {

struct Trace {
  std::variant<Chain, Graph> model;
  std::optional<ChainAllocations> allocations = {};  ///< of a chain, where they were measured

  friend bool operator==(const Trace&, const Trace&) = default;
};

const std::string& name_of(const Trace&);
const Source& source_of(const Trace&);

/// What `--trace` takes: a path, the name of a shipped trace, or a synthetic one such as `uniform:16`. `others`: names
/// of what the caller makes itself, which may be meant.
Trace load_trace(std::string_view reference, const std::vector<std::string>& others = {});

Trace read_trace(const std::filesystem::path&);
Trace parse_trace(std::string text, std::string file_name);

/// Reads back as the same trace; defaults are written out.
void write_trace(const std::filesystem::path&, const Trace&);
std::string trace_text(const Trace&);

/// The file that a path or a shipped name means; throws where there is none.
std::filesystem::path find_trace(std::string_view name_or_path, const std::vector<std::string>& others = {});
std::vector<std::string> shipped_traces();

}  // namespace plimsoll
