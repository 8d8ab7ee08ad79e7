#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "traces/chain_draft.h"
#include "traces/trace_parts.h"

namespace plimsoll {
namespace {

/// Only the first stage reads what has to be loaded.
void check_load(JsonDocument& document, const Stage& stage, std::size_t i) {
  const Seconds most = i == 0 ? stage.forward : Seconds{0};
  if (stage.load <= most) return;
  document.complain(below("stages", i, "load_s"),
                    i == 0 ? fmt::format("more than the forward, of which it is a part, expected at most {}, found {}",
                                         most.value, stage.load.value)
                           : "only the first stage reads the network's input");
}

/// What is said of the two parts of a backward.
void check_parts(JsonDocument& document, const Stage& stage, std::size_t i) {
  if (stage.backward_weight > stage.backward) {
    document.complain(below("stages", i, "backward_weight_s"),
                      fmt::format("more than the backward, of which it is a part, expected at most {}, found {}",
                                  stage.backward.value, stage.backward_weight.value));
  }
  const Bytes stays = stage.weight_saved.value_or(Bytes{0});
  if (stage.weight_made > stays) {
    document.complain(
        below("stages", i, "weight_made_bytes"),
        fmt::format("more than 'weight_saved_bytes', of which it is a part, expected at most {}, found {}", stays.count,
                    stage.weight_made.count));
  }
  if (!stage.weight_keeps_gradient && stage.weight_made == Bytes{0} && stage.backward_weight > Seconds{0}) {
    document.complain(below("stages", i, "weight_keeps_gradient"),
                      "expected true or 'weight_made_bytes' above 0: gradients of weights come from other gradients");
  }
  if (stage.backward_weight_accumulate_workspace && !stage.backward_weight_workspace) {
    document.complain(below("stages", i, "backward_weight_accumulate_workspace_bytes"),
                      "there is no 'backward_weight_workspace_bytes'");
  }
}

void check_stage(JsonDocument& document, const ChainDraft& draft, std::size_t i) {
  const Stage& stage = draft.stages[i].stage;
  const std::optional<Bytes> parameter_bytes = draft.stages[i].parameter_bytes;
  if (stage.saved < stage.output) {
    document.complain(below("stages", i, "saved_bytes"),
                      fmt::format("less than the output, which is part of it, expected at least {}, found {}",
                                  stage.output.count, stage.saved.count));
  }
  check_parts(document, stage, i);
  check_load(document, stage, i);
  std::set<std::uint32_t> used;
  Bytes sum;
  for (std::size_t k = 0; k < stage.parameters.size(); ++k) {
    const std::string path = below(below("stages", i, "parameters"), k);
    const std::uint32_t parameter = stage.parameters[k];
    if (!check_index(document, path, parameter, draft.chain.parameters.size(), "parameter")) continue;
    if (!used.insert(parameter).second)
      document.complain(path, fmt::format("parameter {} for the second time", parameter));
    sum += draft.chain.parameters[parameter].bytes;
  }
  const bool is_frozen = std::ranges::none_of(used, [&](std::uint32_t p) { return draft.chain.parameters[p].trained; });
  if (!used.empty() && is_frozen && stage.parameter_gradient.value_or(Bytes{}) > Bytes{}) {
    document.complain(below("stages", i, "parameter_gradient_bytes"),
                      fmt::format("none of the stage's parameters is trained, expected 0, found {}",
                                  stage.parameter_gradient->count));
  }
  if (!stage.parameters.empty() && parameter_bytes && *parameter_bytes != sum) {
    document.complain(
        below("stages", i, "parameter_bytes"),
        fmt::format("not the sum of the stage's parameters, expected {}, found {}", sum.count, parameter_bytes->count));
  }
}

/// A backward lets go of what its stage saved beside the output; within one call of autograd also of the output, of its
/// input and of its output's gradient; and of nothing else.
void check_below_zero(JsonDocument& document, const ChainDraft& draft, std::size_t i) {
  const Stage& stage = draft.stages[i].stage;
  const auto check = [&](const char* key, std::optional<Bytes> stated, Bytes least) {
    if (!stated || *stated >= least) return;
    document.complain(below("stages", i, key),
                      fmt::format("below 0 by more than the backward can let go of, expected at least {}, found {}",
                                  least.count, stated->count));
  };
  const Bytes inner = std::max(Bytes{}, stage.saved - stage.output);
  check("backward_workspace_bytes", stage.backward_workspace, Bytes{} - inner);
  check("backward_accumulate_workspace_bytes", draft.stages[i].backward_accumulate_workspace, Bytes{} - inner);
  const Bytes input = i == 0 ? draft.chain.input : draft.stages[i - 1].stage.output;
  const bool last = i + 1 == draft.stages.size();
  const Bytes output_gradient = last ? Bytes{} : draft.stages[i + 1].input_gradient.value_or(stage.output);
  const Bytes least = Bytes{} - (stage.saved + input + output_gradient);
  check("backward_released_workspace_bytes", stage.backward_released_workspace, least);
  check("backward_accumulate_released_workspace_bytes", stage.backward_accumulate_released_workspace, least);
}

/// Boundaries, where given, list the tensors whose sum the stages state.
void check_boundaries(JsonDocument& document, const ChainDraft& draft) {
  const Chain& chain = draft.chain;
  if (!draft.has_boundaries) return;
  if (chain.boundaries.size() != draft.stages.size() + 1) {
    document.complain("boundaries", fmt::format("expected {}, one more than stages, found {}", draft.stages.size() + 1,
                                                chain.boundaries.size()));
    return;
  }
  for (std::size_t j = 0; j < chain.boundaries.size(); ++j) {
    const std::set<std::uint32_t> distinct(chain.boundaries[j].begin(), chain.boundaries[j].end());
    Bytes sum;
    bool known = true;
    for (std::size_t k = 0; k < chain.boundaries[j].size(); ++k) {
      known &= check_index(document, below(below("boundaries", j), k), chain.boundaries[j][k], chain.tensors.size(),
                           "tensor");
    }
    if (!known) continue;
    for (const std::uint32_t tensor : distinct) sum += chain.tensors[tensor].bytes;
    const Bytes stated = j == 0 ? chain.input : draft.stages[j - 1].stage.output;
    if (sum == stated) continue;
    document.complain(
        j == 0 ? "input_bytes" : below("stages", j - 1, "output_bytes"),
        fmt::format("not the sum of the tensors of boundaries[{}], expected {}, found {}", j, sum.count, stated.count));
  }
}

/// The tensors that are listed are among what is said to be saved, and those of boundaries are there.
void check_saved_tensors(JsonDocument& document, const ChainDraft& draft, std::size_t i) {
  const Stage& stage = draft.stages[i].stage;
  Bytes listed;
  for (const InnerTensor& tensor : stage.inner) listed += tensor.bytes;
  if (!stage.inner.empty() && listed > stage.saved - stage.output) {
    document.complain(
        below("stages", i, "saved_tensors"),
        fmt::format("more bytes than 'saved_bytes' without the output, expected at most {} together, found {}",
                    (stage.saved - stage.output).count, listed.count));
  }
  const auto& boundaries = draft.chain.boundaries;
  for (std::size_t k = 0; k < stage.boundary_uses.size(); ++k) {
    const std::uint32_t t = stage.boundary_uses[k].tensor;
    const std::string path = below(below("stages", i, "boundary_uses"), k);
    const auto is_at = [&](std::size_t j) {
      return j < boundaries.size() && std::ranges::find(boundaries[j], t) != boundaries[j].end();
    };
    if (!is_at(i) && !is_at(i + 1)) {
      document.complain(path, fmt::format("expected a tensor of boundaries[{}] or [{}], found {}", i, i + 1, t));
    }
  }
}

bool has(const std::vector<std::uint32_t>& list, std::uint32_t index) {
  return std::ranges::find(list, index) != list.end();
}

/// A statement about a stage as a whole that its tensors contradict.
void check_said(JsonDocument& document, std::size_t i, std::string_view key, std::optional<bool> said, bool is) {
  if (!said || *said == is) return;
  document.complain(below("stages", i, key), fmt::format("kept_tensors say {}, found {}", is, *said));
}

/// What stages say of each tensor of their boundaries; with it, what they say of boundaries as a whole is known.
void check_tensors(JsonDocument& document, ChainDraft& draft) {
  const Chain& chain = draft.chain;
  const bool any = std::ranges::any_of(draft.stages, [](const StageDraft& d) { return d.kept_tensors.has_value(); });
  for (std::size_t i = 0; i < draft.stages.size(); ++i) {
    const StageDraft& stage = draft.stages[i];
    for (const auto& [key, given] : {std::pair{"kept_tensors", stage.kept_tensors.has_value()},
                                     std::pair{"gradient_tensors", stage.gradient_tensors.has_value()}}) {
      if (given && !draft.has_boundaries) document.complain(below("stages", i, key), "there are no boundaries");
      if (!given && (any || stage.gradient_tensors)) {
        document.complain(below("stages", i), fmt::format("missing key '{}': all stages have it or none", key));
      }
    }
  }
  document.throw_if_any();
  if (!any) return;
  std::vector<bool> has_gradient(chain.tensors.size(), false);
  for (std::size_t i = draft.stages.size(); i-- > 0;) {
    StageDraft& stage = draft.stages[i];
    const std::vector<std::uint32_t>&input = chain.boundaries[i], &output = chain.boundaries[i + 1];
    for (std::size_t k = 0; k < stage.kept_tensors->size(); ++k) {
      const std::uint32_t t = (*stage.kept_tensors)[k];
      if (has(input, t) || has(output, t)) continue;
      document.complain(below(below("stages", i, "kept_tensors"), k),
                        fmt::format("expected a tensor of boundaries[{}] or [{}], found {}", i, i + 1, t));
    }
    for (std::size_t k = 0; k < stage.gradient_tensors->size(); ++k) {
      const std::uint32_t t = (*stage.gradient_tensors)[k];
      if (has(input, t)) {
        has_gradient[t] = true;
      } else {
        document.complain(below(below("stages", i, "gradient_tensors"), k),
                          fmt::format("expected a tensor of boundaries[{}], found {}", i, t));
      }
    }
    Bytes gradient;
    for (const std::uint32_t t : std::set(input.begin(), input.end())) {
      if (has_gradient[t]) gradient += chain.tensors[t].gradient.value_or(chain.tensors[t].bytes);
    }
    if (stage.input_gradient.value_or(gradient) != gradient) {
      document.complain(below("stages", i, "input_gradient_bytes"),
                        fmt::format("not the sum of the gradients of boundaries[{}], expected {}, found {}", i,
                                    gradient.count, stage.input_gradient->count));
    }
    const auto keeps = [&](auto counts) { return std::ranges::any_of(*stage.kept_tensors, counts); };
    const bool keeps_input = keeps([&](std::uint32_t t) { return has(input, t); });
    const bool keeps_output = keeps([&](std::uint32_t t) { return !has(input, t); });
    check_said(document, i, "keeps_input", stage.keeps_input, keeps_input);
    check_said(document, i, "keeps_output", stage.keeps_output, keeps_output);
    stage.input_gradient = gradient;
    stage.keeps_input = keeps_input;
    stage.keeps_output = keeps_output;
    stage.stage.tensors = {*stage.kept_tensors, *stage.gradient_tensors};
  }
}

/// Contributions come in the order of the backwards, each from a stage with the parameter.
void check_shared(JsonDocument& document, const ChainDraft& draft) {
  for (std::size_t s = 0; s < draft.chain.shared.size(); ++s) {
    const SharedParameter& shared = draft.chain.shared[s];
    if (!check_index(document, below("shared", s, "parameter"), shared.parameter, draft.chain.parameters.size(),
                     "parameter")) {
      continue;
    }
    for (std::size_t k = 0; k < shared.stages.size(); ++k) {
      const std::string path = below(below("shared", s, "stages"), k);
      const std::uint32_t i = shared.stages[k];
      if (!check_index(document, path, i, draft.stages.size(), "stage")) continue;
      if (!has(draft.stages[i].stage.parameters, shared.parameter)) {
        document.complain(path, fmt::format("stage {} does not have parameter {}", i, shared.parameter));
      } else if (k > 0 && i >= shared.stages[k - 1]) {
        document.complain(path,
                          fmt::format("backwards run from the last stage to the first, expected less than {}, found {}",
                                      shared.stages[k - 1], i));
      }
    }
  }
}

}  // namespace

void check_chain(JsonDocument& document, ChainDraft& draft) {
  if (draft.stages.empty()) document.complain("stages", "expected at least one stage");
  if (draft.plain_iteration == Seconds{0}) document.complain("plain_iteration_s", "expected more than 0 s");
  for (std::size_t i = 0; i < draft.stages.size(); ++i) {
    check_stage(document, draft, i);
    check_below_zero(document, draft, i);
    check_saved_tensors(document, draft, i);
  }
  check_boundaries(document, draft);
  document.throw_if_any();
  check_tensors(document, draft);
  check_shared(document, draft);
}

}  // namespace plimsoll
