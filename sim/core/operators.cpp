#include "sim/core/operators.h"

#include <string_view>
#include <unordered_map>

#include "sim/core/op_attribute.h"

namespace plimsoll {

std::vector<Operator> operators_of(const Graph& graph) {
  constexpr std::string_view of_key = "of";
  std::vector<Operator> operators;
  std::unordered_map<std::string_view, std::size_t> by_name;
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    if (op.phase == Phase::forward) {
      by_name.try_emplace(op.name, operators.size());
      operators.push_back({id_at<OpId>(o), {}});
      continue;
    }
    const std::optional<std::string_view> of = attribute_of(op, of_key);
    const auto found = of ? by_name.find(*of) : by_name.end();
    if (found != by_name.end()) operators[found->second].backward.push_back(id_at<OpId>(o));
  }
  return operators;
}

}  // namespace plimsoll
