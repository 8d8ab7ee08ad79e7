#include "experiments/tables/split_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "sim/io/fields.h"
#include "sim/io/json/json_cursor.h"
#include "sim/io/text_file.h"

namespace plimsoll {
namespace {

using enum Need;

constexpr double forbidden = 1e18;

template <class Value>
using Lists = std::vector<std::vector<Value>>;

struct SplitDraft {
  std::string name;
  std::optional<Bytes> limit;
  Lists<std::uint32_t> intervals, pairs;
  Lists<double> node_costs, edge_costs;
  Lists<Bytes> usages;
};

template <class Value, class Read>
void read_lists(Lists<Value>& lists, const JsonCursor& cursor, Read read) {
  cursor.array([&](JsonCursor list) {
    std::vector<Value>& values = lists.emplace_back();
    list.array([&](JsonCursor value) { values.push_back(read(value)); });
  });
}

double read_cost(const JsonCursor& cursor) {
  const std::int64_t cost = cursor.integer();
  if (cost < 0) cursor.complain("expected a cost of at least 0");
  return static_cast<double>(cost);
}

Bytes read_usage(const JsonCursor& cursor) {
  return cursor.bytes();
}

std::uint32_t read_index(const JsonCursor& cursor) {
  return cursor.index();
}

const Field<SplitDraft, JsonCursor> node_fields[] = {
    {"intervals", required, [](SplitDraft& d, JsonCursor c) { read_lists(d.intervals, c, read_index); }},
    {"costs", required, [](SplitDraft& d, JsonCursor c) { read_lists(d.node_costs, c, read_cost); }},
    {"usages", required, [](SplitDraft& d, JsonCursor c) { read_lists(d.usages, c, read_usage); }},
};

const Field<SplitDraft, JsonCursor> edge_fields[] = {
    {"nodes", required, [](SplitDraft& d, JsonCursor c) { read_lists(d.pairs, c, read_index); }},
    {"costs", required, [](SplitDraft& d, JsonCursor c) { read_lists(d.edge_costs, c, read_cost); }},
};

const Field<SplitDraft, JsonCursor> problem_fields[] = {
    {"name", optional, [](SplitDraft& d, JsonCursor c) { d.name = c.string(); }},
    {"nodes", required, [](SplitDraft& d, JsonCursor c) { read_fields(c, node_fields, d); }},
    {"edges", required, [](SplitDraft& d, JsonCursor c) { read_fields(c, edge_fields, d); }},
    {"usage_limit", optional, [](SplitDraft& d, JsonCursor c) { d.limit = c.bytes(); }},
};

const Field<SplitDraft, JsonCursor> file_fields[] = {
    {"problem", required, [](SplitDraft& d, JsonCursor c) { read_fields(c, problem_fields, d); }},
};

/// What lists must have, so that a table can be made of them.
void judge(JsonDocument& document, const SplitDraft& draft) {
  const std::size_t nodes = draft.node_costs.size(), edges = draft.pairs.size();
  const auto as_many = [&](std::string_view list, std::size_t found, std::size_t expected, std::string_view of) {
    if (found == expected) return true;
    document.complain(list, fmt::format("expected {} lists, one for each {}, found {}", expected, of, found));
    return false;
  };
  if (nodes == 0) document.complain("problem.nodes.costs", "expected at least one node");
  bool fine = as_many("problem.nodes.intervals", draft.intervals.size(), nodes, "node");
  fine = as_many("problem.nodes.usages", draft.usages.size(), nodes, "node") && fine;  // all are complained of
  fine = as_many("problem.edges.costs", draft.edge_costs.size(), edges, "pair of nodes") && fine;
  if (!fine) return;
  for (std::size_t n = 0; n < nodes; ++n) {
    const std::vector<std::uint32_t>& interval = draft.intervals[n];
    if (interval.size() != 2 || interval[0] > interval[1]) {
      document.complain(below("problem.nodes.intervals", n), "expected two moments, the second not before the first");
    }
    if (draft.node_costs[n].empty()) document.complain(below("problem.nodes.costs", n), "expected at least one choice");
    if (draft.usages[n].size() != draft.node_costs[n].size()) {
      document.complain(below("problem.nodes.usages", n),
                        fmt::format("expected as many as there are costs, {}, found {}", draft.node_costs[n].size(),
                                    draft.usages[n].size()));
    }
  }
  for (std::size_t e = 0; e < edges; ++e) {
    const std::vector<std::uint32_t>& pair = draft.pairs[e];
    if (pair.size() != 2 || pair[0] == pair[1] || pair[0] >= nodes || pair[1] >= nodes) {
      document.complain(below("problem.edges.nodes", e), fmt::format("expected two different nodes of {}", nodes));
      continue;
    }
    const std::size_t all = draft.node_costs[pair[0]].size() * draft.node_costs[pair[1]].size();
    if (draft.edge_costs[e].size() == all) continue;
    document.complain(
        below("problem.edges.costs", e),
        fmt::format("expected a cost for each pair of choices, {}, found {}", all, draft.edge_costs[e].size()));
  }
}

/// Edges between the same nodes become one.
void add_edges(const SplitDraft& draft, SplitTable& table) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<Seconds>> between;
  for (std::size_t e = 0; e < draft.pairs.size(); ++e) {
    const std::uint32_t a = draft.pairs[e][0], b = draft.pairs[e][1];
    const std::size_t rows = draft.node_costs[a].size(), columns = draft.node_costs[b].size();
    std::vector<Seconds>& sums = between[std::minmax(a, b)];
    sums.resize(rows * columns);
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t j = 0; j < columns; ++j) {
        sums[a < b ? i * columns + j : j * rows + i] += Seconds{draft.edge_costs[e][i * columns + j]};
      }
    }
  }
  for (auto& [ends, sums] : between) {
    const auto edge = static_cast<std::uint32_t>(table.edges.size());
    table.edges_of[ends.first].push_back(edge);
    table.edges_of[ends.second].push_back(edge);
    table.edges.push_back({ends.first, ends.second, std::make_shared<const std::vector<Seconds>>(std::move(sums))});
  }
}

SplitTable table_of(const SplitDraft& draft) {
  SplitTable table;
  table.forbidden = Seconds{forbidden};
  table.limit = draft.limit;
  std::vector<std::uint32_t> dates;
  for (const std::vector<std::uint32_t>& interval : draft.intervals)
    dates.insert(dates.end(), interval.begin(), interval.end());
  std::ranges::sort(dates);
  dates.erase(std::unique(dates.begin(), dates.end()), dates.end());
  const auto moment = [&](std::uint32_t date) {
    return static_cast<std::uint32_t>(std::ranges::lower_bound(dates, date) - dates.begin());
  };
  table.moments = static_cast<std::uint32_t>(dates.size() - 1);
  for (std::size_t n = 0; n < draft.node_costs.size(); ++n) {
    std::vector<SplitTable::Choice> choices;
    for (const double cost : draft.node_costs[n]) choices.push_back({{}, Seconds{cost}, {}});
    table.nodes.push_back(std::make_shared<const std::vector<SplitTable::Choice>>(std::move(choices)));
    table.edges_of.emplace_back();
    table.held.push_back({{moment(draft.intervals[n][0]), moment(draft.intervals[n][1]),
                           std::make_shared<const std::vector<Bytes>>(draft.usages[n])}});
  }
  add_edges(draft, table);
  return table;
}

}  // namespace

SplitProblem parse_split_problem(std::string text, std::string file_name) {
  JsonDocument document(std::move(text), std::move(file_name));
  SplitDraft draft;
  document.read([&](JsonCursor root) { read_fields(root, file_fields, draft); });
  judge(document, draft);
  document.throw_if_any();
  return {draft.name, table_of(draft)};
}

SplitProblem read_split_problem(const std::filesystem::path& path) {
  return parse_split_problem(read_text_file(path), path.string());
}

}  // namespace plimsoll
