#pragma once
// The parts that the readers of chain and graph traces share.

#include "sim/core/chain.h"
#include "sim/core/graph.h"
#include "sim/io/json/json_cursor.h"

namespace plimsoll {

struct Trace;

inline constexpr std::string_view trace_format = "plimsoll.trace.v1";

Trace read_chain(JsonDocument&);
Graph read_graph(JsonDocument&);

Source read_source(JsonCursor);
std::vector<std::uint32_t> read_indices(JsonCursor);
std::vector<std::int64_t> read_shape(JsonCursor);
double above_zero(JsonCursor);

/// Elements say their own number where they like; a wrong one means that references are not what they seem.
void check_id(JsonCursor id, std::size_t position);

/// Complains unless `index` is below `count`: `no such parameter, expected an index below 3, found 5`.
bool check_index(JsonDocument&, const std::string& path, std::uint32_t index, std::size_t count, std::string_view noun);

/// What a graph must fulfil beyond its syntax; complains about what it does not.
void check_graph(JsonDocument&, const Graph&);
/// The part of it that is about storages with several tensors.
void check_sharing(JsonDocument&, const Graph&);

}  // namespace plimsoll
