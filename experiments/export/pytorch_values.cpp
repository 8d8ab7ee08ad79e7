#include "experiments/export/pytorch_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "sim/core/expects.h"
#include "sim/io/input_error.h"
#include "sim/io/json/parsed_json.h"

namespace plimsoll {
namespace {

/// The tensors of the graph that are those of the chain, in the order in which chain_graph makes them.
std::vector<std::optional<TensorId>> boundary_tensors(const Problem& problem) {
  const Chain& chain = *problem.chain;
  std::vector<std::optional<TensorId>> tensors(chain.tensors.size());
  const auto take = [&](std::size_t boundary, std::vector<TensorId> from) {
    auto next = from.begin();
    for (const std::uint32_t t : chain.boundaries[boundary]) {
      if (tensors[t]) continue;
      EXPECTS(next != from.end());
      tensors[t] = *next++;
    }
  };
  take(0, problem.graph[problem.index->forward[0]].inputs);
  for (std::size_t i = 0; i < chain.stages.size(); ++i) {
    const Op& op = problem.graph[problem.index->forward[i]];
    std::vector<TensorId> outputs;
    std::ranges::copy_if(op.outputs, std::back_inserter(outputs),
                         [&](TensorId t) { return std::ranges::find(op.saved, t) == op.saved.end(); });
    take(i + 1, std::move(outputs));
  }
  return tensors;
}

/// Of which tensors of the chain a backward makes gradients, in the order of its outputs.
std::vector<std::uint32_t> gradients_of(const Chain& chain, std::size_t stage) {
  const Stage& of = chain.stages[stage];
  if (of.tensors) return of.tensors->gradients;
  return chain.boundaries[stage];
}

/// Empty where it has no such text.
std::string text_at(const Json& stage, const char* key) {
  const auto text = stage.is_object() ? stage.find(key) : stage.end();
  return stage.is_object() && text != stage.end() && text->is_string() ? text->get<std::string>() : "";
}

/// By its first module, as PyTorch's side cuts the model.
std::string stage_name(const Json& stage) {
  return text_at(stage, "name");
}

/// What the trace calls that stage, which may be another name.
std::string name_in_trace(const Json& stage) {
  const std::string own = text_at(stage, "in_trace");
  return own.empty() ? stage_name(stage) : own;
}

/// A list of the same length as another one of the chain.
const Json& list_of(const Json& source, const char* key, std::size_t length) {
  const auto found = source.find(key);
  if (found == source.end()) {
    refuse_for_pytorch(
        fmt::format("source.pytorch.{} of the trace is missing: it was measured by an older exporter", key));
  }
  if (!found->is_array() || found->size() != length) {
    refuse_for_pytorch(
        fmt::format("source.pytorch.{} of the trace: expected a list of {}, found {}", key, length,
                    found->is_array() ? fmt::format("one of {}", found->size()) : std::string(found->type_name())));
  }
  return *found;
}

}  // namespace

void refuse_for_pytorch(const std::string& why) {
  throw InputError("--for pytorch: " + why);
}

namespace {

Json noted(const Source& of, const std::string& trace) {
  const auto found = std::ranges::find(of.notes, "pytorch", &std::pair<std::string, std::string>::first);
  if (found == of.notes.end()) {
    refuse_for_pytorch(
        fmt::format("the trace '{}' does not say which modules its stages are (source.pytorch): it was measured by an "
                    "older exporter, or not in PyTorch",
                    trace));
  }
  Json source = parsed_json(found->second);
  if (!source.is_object()) refuse_for_pytorch("source.pytorch of the trace: expected an object");
  return source;
}

}  // namespace

std::map<StorageId, PytorchValue> pytorch_values(const Problem& problem) {
  using Kind = PytorchValue::Kind;
  const Chain& chain = *problem.chain;
  const Graph& graph = problem.graph;
  std::map<StorageId, PytorchValue> values;
  const auto add = [&](TensorId t, PytorchValue value) {
    value.bytes = graph[t].bytes;
    values.try_emplace(graph[t].storage, std::move(value));
  };
  const std::vector<std::optional<TensorId>> tensors = boundary_tensors(problem);
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const auto number = static_cast<std::uint32_t>(t);
    if (tensors[t]) add(*tensors[t], {Kind::boundary, chain.tensors[t].name, number, 0, {}});
  }
  for (std::size_t i = 0; i < chain.stages.size(); ++i) {
    const std::string name = fmt::format("saved by {}", chain.stages[i].name);
    for (const TensorId t : graph[problem.index->forward[i]].saved) {
      add(t, {Kind::saved, name, {}, static_cast<std::uint32_t>(i), {}});
    }
    if (problem.index->backward[i] == no_op) continue;
    const std::vector<std::uint32_t> of = gradients_of(chain, i);
    const Op& op = graph[problem.index->backward[i]];
    for (std::size_t g = 0; g < of.size() && g < op.outputs.size(); ++g) {
      if (graph[op.outputs[g]].kind != TensorKind::gradient) break;
      add(op.outputs[g], {Kind::gradient, "gradient of " + chain.tensors[of[g]].name, of[g], 0, {}});
    }
  }
  std::set<std::string> names;
  for (auto& [storage, value] : values) {
    if (!names.insert(value.name).second) value.name += fmt::format(" ({})", storage.index);
  }
  return values;
}

Json pytorch_stages(const Source& of, const std::string& trace) {
  Json source = noted(of, trace);
  const auto stages = source.find("stages");
  const auto is_stage = [](const Json& stage) { return !stage_name(stage).empty(); };
  if (stages == source.end() || !stages->is_array() || !std::ranges::all_of(*stages, is_stage)) {
    refuse_for_pytorch("source.pytorch.stages of the trace: expected a list of objects with a name");
  }
  return *stages;
}

Json pytorch_source(const Chain& chain) {
  Json source = noted(chain.source, chain.name);
  const Json& stages = list_of(source, "stages", chain.stages.size());
  for (std::size_t i = 0; i < chain.stages.size(); ++i) {
    if (name_in_trace(stages[i]) != chain.stages[i].name) {
      refuse_for_pytorch(
          fmt::format("source.pytorch.stages[{}] of the trace is not its stage '{}'", i, chain.stages[i].name));
    }
  }
  const Json& boundaries = list_of(source, "boundaries", chain.stages.size() + 1);
  const Json& tensors = list_of(source, "tensors", chain.stages.size() + 1);
  list_of(source, "fingerprint", source.contains("fingerprint") ? source["fingerprint"].size() : 0);
  for (std::size_t j = 0; j < chain.stages.size(); ++j) {
    const auto is_tensor = [&](const Json& number) {
      return number.is_null() || (number.is_number_unsigned() && number.get<std::size_t>() < chain.tensors.size());
    };
    if (!boundaries[j].is_array() || !tensors[j].is_array() || boundaries[j].size() != tensors[j].size() ||
        !std::ranges::all_of(tensors[j], is_tensor)) {
      refuse_for_pytorch(
          fmt::format("source.pytorch.tensors[{}] of the trace: expected one of its tensors for each of the names in "
                      "source.pytorch.boundaries[{}]",
                      j, j));
    }
  }
  return source;
}

}  // namespace plimsoll
