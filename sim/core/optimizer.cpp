#include "sim/core/optimizer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

/// Bytes of a state; of the parameter's own where it is not in fp32 or the numbers cannot be counted.
Bytes bytes_of_state(States states, Bytes parameter, std::string_view dtype) {
  const std::optional<std::int64_t> each = bytes_of_dtype(dtype);
  if (!each || (states != States::fp32 && !has_fp32_copy(states, dtype))) return parameter;
  return Bytes{parameter.count / *each * bytes_of_fp32};
}

/// How much of a pattern that begins with no `*` is for this character: 0 where it has another.
std::size_t width_for(std::string_view pattern, char c) {
  const std::size_t end = pattern.front() == '[' ? pattern.find(']', 2) : std::string_view::npos;
  if (end == std::string_view::npos) return pattern.front() == '?' || pattern.front() == c ? 1 : 0;
  const bool is_negated = pattern[1] == '!';
  bool has_it = false;
  for (std::size_t k = is_negated ? 2 : 1; k < end; ++k) {
    const bool is_range = k + 2 < end && pattern[k + 1] == '-';
    has_it |= is_range ? pattern[k] <= c && c <= pattern[k + 2] : pattern[k] == c;
    if (is_range) k += 2;
  }
  return has_it != is_negated ? end + 1 : 0;
}

/// Of `*`, `?`, `[a-z]` and `[!a-z]`, against the whole name. Of stars only the last one has to try again.
bool matches_name(std::string_view pattern, std::string_view name) {
  std::size_t at = 0, behind_star = std::string_view::npos, from = 0;
  for (std::size_t n = 0; n < name.size();) {
    if (at < pattern.size() && pattern[at] == '*') {
      behind_star = ++at;
      from = n;
      continue;
    }
    const std::size_t width = at < pattern.size() ? width_for(pattern.substr(at), name[n]) : 0;
    if (width == 0 && behind_star == std::string_view::npos) return false;
    at = width > 0 ? at + width : behind_star;
    n = width > 0 ? n + 1 : ++from;
  }
  return pattern.find_first_not_of('*', at) == std::string_view::npos;
}

}  // namespace

std::size_t Optimizers::group_of(const std::string& parameter) const {
  const auto matches = [&](const ParameterGroup& group) {
    return group.pattern == parameter || matches_name(group.pattern, parameter);
  };
  return static_cast<std::size_t>(std::ranges::find_if(groups, matches) - groups.begin());
}

std::size_t group_of(const Graph& graph, const Op& update, const Optimizers& optimizers) {
  if (optimizers.groups.empty()) return 0;
  const auto is_parameter = [&](TensorId t) { return graph[t].kind == TensorKind::parameter; };
  const auto first = std::ranges::find_if(update.mutates, is_parameter);
  return first == update.mutates.end() ? optimizers.groups.size() : optimizers.group_of(graph[*first].name);
}

std::optional<std::int64_t> bytes_of_dtype(std::string_view dtype) {
  if (dtype == "bf16" || dtype == "fp16") return 2;  // the usual ones are asked for with each kernel
  if (dtype == "fp32" || dtype == "tf32") return 4;
  constexpr std::array<std::pair<std::string_view, std::int64_t>, 13> known{{{"fp64", 8},
                                                                             {"float64", 8},
                                                                             {"double", 8},
                                                                             {"float32", 4},
                                                                             {"float", 4},
                                                                             {"bfloat16", 2},
                                                                             {"float16", 2},
                                                                             {"half", 2},
                                                                             {"fp8", 1},
                                                                             {"float8", 1},
                                                                             {"float8_e4m3fn", 1},
                                                                             {"float8_e5m2", 1},
                                                                             {"fp8_e4m3", 1}}};
  const auto* found = std::ranges::find(known, dtype, &std::pair<std::string_view, std::int64_t>::first);
  return found == known.end() ? std::nullopt : std::optional(found->second);
}

const std::string& dtype_of(const Graph& graph, const Tensor& tensor) {
  return tensor.dtype.empty() ? graph.source.dtype : tensor.dtype;
}

bool has_fp32_copy(States states, std::string_view dtype) {
  const std::optional<std::int64_t> each = bytes_of_dtype(dtype);
  return states != States::as_parameters && each && *each < bytes_of_fp32;
}

std::vector<Tensor> states_of(Optimizer optimizer, States states, const Tensor& parameter, std::string_view dtype) {
  if (optimizer == Optimizer::none) return {};
  const Bytes bytes = bytes_of_state(states, parameter.bytes, dtype);
  const std::string own(bytes == parameter.bytes ? dtype : "fp32");
  std::vector<Tensor> made;
  const auto add = [&](const std::string& name) {
    made.push_back({.name = name + " of " + parameter.name,
                    .kind = TensorKind::optimizer_state,
                    .bytes = bytes,
                    .storage = {},
                    .shape = {},
                    .dtype = own});
  };
  if (has_fp32_copy(states, dtype)) add("fp32 copy");
  for (std::int64_t s = 0; s < optimizer_states(optimizer); ++s) add("state " + std::to_string(s));
  return made;
}

Bytes state_bytes(Optimizer optimizer, States states, Bytes parameter, std::string_view dtype) {
  if (optimizer == Optimizer::none) return {};
  const std::int64_t count = optimizer_states(optimizer) + (has_fp32_copy(states, dtype) ? 1 : 0);
  return count * bytes_of_state(states, parameter, dtype);
}

Bytes average_bytes(States states, Bytes parameter, std::string_view dtype) {
  return has_fp32_copy(states, dtype) ? bytes_of_state(states, parameter, dtype) : parameter;
}

Bytes update_bytes_moved(const Graph& graph, States states, const std::vector<TensorId>& parameters,
                         const std::vector<TensorId>& gradients, const std::vector<TensorId>& kept) {
  Bytes moved;
  for (const TensorId t : gradients) moved += graph[t].bytes;
  for (const TensorId t : kept) moved += 2 * graph[t].bytes;
  for (const TensorId t : parameters) {
    moved += (has_fp32_copy(states, dtype_of(graph, graph[t])) ? 1 : 2) * graph[t].bytes;
  }
  return moved;
}

Bytes clipping_bytes_moved(const Graph& graph, const std::vector<TensorId>& gradients) {
  Bytes moved;
  for (const TensorId t : gradients) moved += 3 * graph[t].bytes;
  return moved;
}

Op update_op(const Graph& graph, States states, std::string name, const std::vector<TensorId>& parameters,
             const std::vector<TensorId>& gradients, const std::vector<TensorId>& kept) {
  Op update;
  update.name = std::move(name);
  update.kind = "optimizer";
  update.phase = Phase::update;
  update.flops = Flops{0};
  update.bytes_moved = update_bytes_moved(graph, states, parameters, gradients, kept);
  update.inputs = parameters;
  update.inputs.insert(update.inputs.end(), gradients.begin(), gradients.end());
  update.inputs.insert(update.inputs.end(), kept.begin(), kept.end());
  update.mutates = parameters;
  update.mutates.insert(update.mutates.end(), kept.begin(), kept.end());
  update.recomputable = false;
  return update;
}

States taken(States states, const Graph& graph, const std::vector<TensorId>& parameters) {
  if (states != States::by_dtype) return states;
  const auto copied = std::ranges::count_if(
      parameters, [&](TensorId t) { return has_fp32_copy(States::by_dtype, dtype_of(graph, graph[t])); });
  if (copied == 0) return States::as_parameters;
  return copied == std::ssize(parameters) ? States::fp32 : States::by_dtype;
}

std::string no_fp32_states(const std::string& parameter, const std::string& dtype) {
  return "states in fp32 need the number of elements of '" + parameter + "', whose dtype '" + dtype +
         "' is unknown; states as_parameters take the bytes of the parameter";
}

std::int64_t optimizer_states(Optimizer optimizer) {
  switch (optimizer) {
    case Optimizer::none:
    case Optimizer::sgd:
      return 0;
    case Optimizer::momentum:
      return 1;
    case Optimizer::adam:
      return 2;
  }
  return 0;
}

std::int64_t optimizer_moves(Optimizer optimizer) {
  // Reads parameter, gradient and states; writes parameter and states.
  return optimizer == Optimizer::none ? 0 : 3 + 2 * optimizer_states(optimizer);
}

}  // namespace plimsoll
