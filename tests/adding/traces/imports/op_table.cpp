#include "traces/imports/op_table.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>
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

/// What a row names wrongly is found after reading, when places are looked up.
void add_op(EdgeList& list, JsonDocument& document, Row& row) {
  const auto number = static_cast<std::uint32_t>(list.ops.size());
  for (std::size_t k = 0; k < row.reads.size(); ++k) {
    const std::string path = fmt::format("[{}].reads[{}]", number, k);
    if (!check_index(document, path, row.reads[k], number, "op before this one")) continue;
    list.edges.push_back({.from = row.reads[k], .to = number, .bytes = {}, .place = {}});
  }
  list.ops.push_back(std::move(row.op));
}

}  // namespace

Graph read_op_table(const std::filesystem::path& path) {
  JsonDocument document(read_text_file(path), path.string());
  EdgeList list{.name = path.stem().string(), .notes = {{"imported_from", "a table of ops"}}, .ops = {}, .edges = {}};
  std::vector<Row> rows;
  document.read(
      [&](JsonCursor root) { root.array([&](JsonCursor row) { read_fields(row, row_fields, rows.emplace_back()); }); });
  for (Row& row : rows) add_op(list, document, row);
  document.throw_if_any();
  Complaints complaints(path.string());
  return graph_of(std::move(list), complaints);
}

}  // namespace plimsoll
