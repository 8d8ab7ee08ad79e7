#include "traces/imports/op_table.h"

#include <fmt/format.h>

#include <cstdint>
#include <vector>

#include "sim/io/fields.h"
#include "sim/io/text_file.h"
#include "traces/imports/edge_list.h"
#include "traces/imports/layer_numbers.h"
#include "traces/trace_parts.h"

namespace plimsoll {
namespace {

using enum Need;

constexpr double millisecond = 1e-3;

struct Row {
  ListedOp op;
  std::vector<std::uint32_t> reads;
};

const Field<Row, JsonCursor> row_fields[] = {
    {"name", required, [](Row& row, JsonCursor c) { row.op.name = c.string(); }},
    {"ms", required, [](Row& row, JsonCursor c) { row.op.time = seconds_in(c, millisecond); }},
    {"bytes", required, [](Row& row, JsonCursor c) { row.op.output = c.bytes(); }},
    {"reads", optional, [](Row& row, JsonCursor c) { row.reads = read_indices(c); }},
};

void read_op(EdgeList& list, JsonDocument& document, JsonCursor cursor) {
  Row row;
  read_fields(cursor, row_fields, row);
  const auto number = static_cast<std::uint32_t>(list.ops.size());
  for (const std::uint32_t maker : row.reads) {
    if (check_index(document, fmt::format("[{}].reads", number), maker, number, "op before this one")) {
      list.edges.push_back({.from = maker, .to = number, .bytes = {}, .place = {}});
    }
  }
  list.ops.push_back(std::move(row.op));
}

}  // namespace

Graph read_op_table(const std::filesystem::path& path) {
  JsonDocument document(read_text_file(path), path.string());
  EdgeList list{.name = path.stem().string(), .notes = {{"imported_from", "a table of ops"}}, .ops = {}, .edges = {}};
  document.read([&](JsonCursor root) { root.array([&](JsonCursor op) { read_op(list, document, op); }); });
  document.throw_if_any();
  Complaints complaints(path.string());
  return graph_of(std::move(list), complaints);
}

}  // namespace plimsoll
