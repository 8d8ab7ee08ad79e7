#include "experiments/sweep/mesh_record.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <variant>
#include <vector>

#include "sim/core/collective_op.h"
#include "sim/core/expects.h"
#include "sim/core/names.h"
#include "sim/core/op_attribute.h"
#include "sim/core/op_kind.h"
#include "sim/ops/op_loop.h"

namespace plimsoll {
namespace {

/// With a star for each number: `layer*.attention`.
std::string without_numbers(std::string_view name) {
  std::string made;
  bool is_number = false;
  for (const char c : name) {
    const bool is_digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (is_digit && is_number) continue;
    made += is_digit ? '*' : c;
    is_number = is_digit;
  }
  return made;
}

/// By axis of the mesh, the dimension that the op's attribute `cuts` names: `axis:dimension axis:dimension`.
std::vector<std::optional<std::string>> cuts_by_axis(const Op& op, const Mesh& mesh) {
  std::vector<std::optional<std::string>> cuts(mesh.axes.size());
  std::string_view text = attribute_of(op, "cuts").value_or("");
  while (!text.empty()) {
    const std::string_view one = text.substr(0, text.find(' '));
    const std::size_t colon = one.find(':');
    const std::optional<std::size_t> axis = mesh.axis(one.substr(0, colon));
    EXPECTS(axis && colon != std::string_view::npos);
    cuts[*axis] = std::string(one.substr(colon + 1));
    text.remove_prefix(std::min(one.size() + 1, text.size()));
  }
  return cuts;
}

/// How a rank's first output lies along an axis; null: the rank's op does not say.
Json result_of(const Graph& graph, OpId op, const std::optional<std::string>& cut) {
  if (!cut) return "whole";
  const std::variant<OpLoop, std::string> found = loop_of(graph, op);
  const OpLoop* loop = std::get_if<OpLoop>(&found);
  const std::optional<std::uint8_t> dim = loop != nullptr ? loop->dim(*cut) : std::nullopt;
  if (!dim || loop->outputs.empty()) return nullptr;
  const auto has = [&](const std::vector<std::uint8_t>& dims) { return std::ranges::find(dims, *dim) != dims.end(); };
  if (has(loop->outputs.front())) return "cut";
  return !loop->whole.empty() && has(loop->whole.front()) ? "whole" : "sum";
}

Json operators_json(const Graph& graph, const Mesh& mesh) {
  Json operators = Json::array();
  std::map<std::string, std::size_t> known;
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    if (op.phase != Phase::forward || collective_of(op) || op_kind(op) == OpKind::share || op.is_view) continue;
    Json cuts = Json::array(), results = Json::array();
    for (const std::optional<std::string>& cut : cuts_by_axis(op, mesh)) {
      cuts.push_back(cut ? Json(*cut) : Json(nullptr));
      results.push_back(result_of(graph, id_at<OpId>(o), cut));
    }
    Json made = {{"name", without_numbers(op.name)}, {"kind", op.kind}, {"cuts", cuts}, {"results", results}};
    const auto [place, fresh] = known.try_emplace(made.dump(), operators.size());
    if (fresh) {
      made["count"] = 0;
      operators.push_back(std::move(made));
    }
    Json& count = operators[place->second]["count"];
    count = count.get<int>() + 1;
  }
  return operators;
}

Json exchanges_json(const Graph& graph, std::uint32_t micro_batches) {
  struct Sum {
    std::int64_t count = 0, bytes = 0;
    double seconds = 0;
  };
  std::map<std::tuple<Phase, std::string, std::string, bool>, Sum> sums;
  for (const Op& op : graph.ops) {
    const std::optional<OpCollective> exchange = collective_of(op);
    if (!exchange) continue;
    const Phase phase = is_backward(op.phase) ? Phase::backward : op.phase;
    Sum& sum = sums[{phase, std::string(op.kind), std::string(exchange->axis), exchange->overlaps}];
    const std::int64_t times = phase == Phase::update ? 1 : micro_batches;
    sum.count += times;
    sum.bytes += times * exchanged_bytes(graph, op).count;
    sum.seconds += static_cast<double>(times) * op.duration.value_or(Seconds{}).value;
  }
  Json exchanges = Json::array();
  for (const auto& [key, sum] : sums) {
    const auto& [phase, kind, axes, beside] = key;
    exchanges.push_back({{"kind", kind},
                         {"axes", axes},
                         {"phase", written(phase)},
                         {"beside", beside},
                         {"count", sum.count},
                         {"bytes", sum.bytes},
                         {"seconds", sum.seconds}});
  }
  return exchanges;
}

}  // namespace

Json mesh_record(const Problem& problem) {
  EXPECTS(problem.mesh);
  const Graph& graph = problem.of_ops ? *problem.of_ops : problem.graph;
  Json axes = Json::array();
  for (const Axis& axis : problem.mesh->axes) {
    axes.push_back({{"name", axis.name}, {"ranks", axis.ranks}, {"own_micro_batches", axis.shares_micro_batches}});
  }
  return {{"axes", std::move(axes)},
          {"operators", operators_json(graph, *problem.mesh)},
          {"exchanges", exchanges_json(graph, problem.micro_batches)}};
}

}  // namespace plimsoll
