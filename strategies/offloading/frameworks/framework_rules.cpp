#include "strategies/offloading/frameworks/framework_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "strategies/models/runs_again.h"

namespace plimsoll {
namespace {

/// A set of roles.
class RoleSet {
 public:
  constexpr RoleSet(std::initializer_list<DecoderRole> roles) {
    for (const DecoderRole role : roles) bits_ |= bit(role);
  }
  constexpr bool has(DecoderRole role) const { return (bits_ & bit(role)) != 0; }

 private:
  static constexpr std::uint32_t bit(DecoderRole role) { return 1U << static_cast<std::uint32_t>(role); }
  std::uint32_t bits_ = 0;
};

OpPolicy policy_of_layers(const Graph& graph, const DecoderOps& decoder, const auto& choice) {
  OpPolicy policy(graph.ops.size(), OpChoice::save);
  for (std::size_t o = 0; o < policy.size(); ++o) {
    if (decoder.role[o] == DecoderRole::parameter_side) {
      policy[o] = OpChoice::recompute;
    } else if (decoder.layer[o]) {
      policy[o] = choice(o, decoder.role[o], *decoder.layer[o]);
    }
  }
  return with_repeatable_only(graph, std::move(policy));
}

/// The policies that `make` adds for a decoder.
template <class Make>
RulePolicies of_decoder(const RuleTask& task, const Make& make) {
  const Graph& graph = task.task.problem.graph;
  const std::variant<DecoderOps, std::string> found = decoder_ops(graph);
  if (const std::string* why = std::get_if<std::string>(&found)) return *why;
  std::vector<OpPolicy> policies;
  make(graph, std::get<DecoderOps>(found), policies);
  return policies;
}

/// In each layer these are saved or moved, the layer's output is saved, and the rest runs again.
template <auto saved, auto moved>
RulePolicies saving_roles(const RuleTask& task) {
  return of_decoder(task, [](const Graph& graph, const DecoderOps& decoder, std::vector<OpPolicy>& policies) {
    policies.push_back(policy_of_layers(graph, decoder, [](std::size_t, DecoderRole role, std::uint32_t) {
      if (moved().has(role)) return OpChoice::offload;
      return role == DecoderRole::layer_output || saved().has(role) ? OpChoice::save : OpChoice::recompute;
    }));
  });
}

/// In each layer these run again.
template <auto again>
RulePolicies repeating_roles(const RuleTask& task) {
  return of_decoder(task, [](const Graph& graph, const DecoderOps& decoder, std::vector<OpPolicy>& policies) {
    policies.push_back(policy_of_layers(graph, decoder, [](std::size_t, DecoderRole role, std::uint32_t) {
      return again().has(role) ? OpChoice::recompute : OpChoice::save;
    }));
  });
}

/// `layer3` of `layer3.mlp.up`, `model.layers.0` of `model.layers.0.mm.12`: until the first part that ends in a digit.
std::string_view layer_name(std::string_view op) {
  if (op.starts_with("behind ")) return {};  // of a layer, in exported graphs
  for (std::size_t dot = op.find('.'); dot != std::string_view::npos; dot = op.find('.', dot + 1)) {
    const std::string_view part = op.substr(0, dot);
    if (!part.empty() && part.back() >= '0' && part.back() <= '9') return part;
  }
  return {};
}

/// Layers by their names: what other layers, or what follows them, read is saved.
RulePolicies huggingface_full(const RuleTask& task) {
  const Graph& graph = task.task.problem.graph;
  std::vector<std::string_view> made_in(graph.storages), layer_of(graph.ops.size());
  std::vector<bool> is_read_outside(graph.storages, false);
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    if (op.phase != Phase::forward) continue;
    layer_of[o] = layer_name(op.name);
    for (const TensorId t : op.inputs) {
      const StorageId storage = graph[t].storage;
      if (made_in[storage.index] != layer_of[o]) is_read_outside[storage.index] = true;
    }
    for (const TensorId t : op.outputs) made_in[graph[t].storage.index] = layer_of[o];
  }
  OpPolicy policy(graph.ops.size(), OpChoice::save);
  bool has_layers = false;
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    if (layer_of[o].empty()) continue;
    has_layers = true;
    const bool is_output =
        std::ranges::any_of(graph.ops[o].outputs, [&](TensorId t) { return is_read_outside[graph[t].storage.index]; });
    policy[o] = is_output ? OpChoice::save : OpChoice::recompute;
  }
  if (!has_layers) return fmt::format("no op of '{}' has the name of a layer, such as 'layer3.mlp.up'", graph.name);
  return std::vector<OpPolicy>{with_repeatable_only(graph, std::move(policy))};
}

/// Method block for each number of layers, method uniform for each group that divides them.
RulePolicies megatron_full(const RuleTask& task) {
  return of_decoder(task, [](const Graph& graph, const DecoderOps& decoder, std::vector<OpPolicy>& policies) {
    const auto add = [&](const auto& again) {
      policies.push_back(policy_of_layers(graph, decoder, [&](std::size_t, DecoderRole role, std::uint32_t layer) {
        return again(role, layer) ? OpChoice::recompute : OpChoice::save;
      }));
    };
    for (std::uint32_t first = 0; first <= decoder.layers; ++first) {
      add([&](DecoderRole role, std::uint32_t layer) { return layer < first && role != DecoderRole::layer_output; });
    }
    for (std::uint32_t group = 2; group <= decoder.layers; ++group) {
      if (decoder.layers % group != 0) continue;
      add([&](DecoderRole role, std::uint32_t layer) {
        return role != DecoderRole::layer_output || (layer + 1) % group != 0;
      });
    }
  });
}

/// Products of a layer in turn are saved and run again.
RulePolicies torchtitan_eager(const RuleTask& task) {
  return of_decoder(task, [](const Graph& graph, const DecoderOps& decoder, std::vector<OpPolicy>& policies) {
    std::vector<std::uint32_t> products(decoder.layers, 0);
    policies.push_back(policy_of_layers(graph, decoder, [&](std::size_t o, DecoderRole role, std::uint32_t layer) {
      if (role == DecoderRole::layer_output || role == DecoderRole::attention) return OpChoice::save;
      const bool is_saved = is_matrix_product(graph.ops[o]) && ++products[layer] % 2 == 1;
      return is_saved ? OpChoice::save : OpChoice::recompute;
    }));
  });
}

/// What "default" saves is moved but in the last layer, the largest first, up to 100 GiB.
RulePolicies torchtitan_offload(const RuleTask& task) {
  return of_decoder(task, [](const Graph& graph, const DecoderOps& decoder, std::vector<OpPolicy>& policies) {
    constexpr Bytes least{4096}, most{100LL << 30};
    OpPolicy policy = policy_of_layers(graph, decoder, [&](std::size_t o, DecoderRole role, std::uint32_t) {
      const bool is_saved =
          role == DecoderRole::layer_output || role == DecoderRole::attention || is_matrix_product(graph.ops[o]);
      return is_saved ? OpChoice::save : OpChoice::recompute;
    });
    const auto bytes_of = [&](std::size_t o) { return graph[graph.ops[o].outputs.front()].bytes; };
    std::vector<std::size_t> candidates;
    for (std::size_t o = 0; o < policy.size(); ++o) {
      const bool is_among = decoder.layer[o] && *decoder.layer[o] + 1 < decoder.layers && policy[o] == OpChoice::save;
      if (is_among && !graph.ops[o].outputs.empty() && bytes_of(o) >= least) candidates.push_back(o);
    }
    std::ranges::stable_sort(candidates, std::ranges::greater{}, bytes_of);
    Bytes moved;
    for (const std::size_t o : candidates) {
      if (moved + bytes_of(o) > most) continue;
      policy[o] = OpChoice::offload;
      moved += bytes_of(o);
    }
    policies.push_back(std::move(policy));
  });
}

/// Of any graph: products of matrices are saved, or nothing is.
template <bool products>
RulePolicies jax_saveable(const RuleTask& task) {
  const Graph& graph = task.task.problem.graph;
  OpPolicy policy(graph.ops.size(), OpChoice::save);
  for (std::size_t o = 0; o < policy.size(); ++o) {
    if (!products || !is_matrix_product(graph.ops[o])) policy[o] = OpChoice::recompute;
  }
  return std::vector<OpPolicy>{with_repeatable_only(graph, std::move(policy))};
}

namespace role_sets {

using enum DecoderRole;

constexpr RoleSet none() {
  return {};
}
constexpr RoleSet projections() {
  return {query_key_value, attention_out, feed_forward_in, feed_forward_out};
}
constexpr RoleSet all_products() {
  return {query_key_value, attention, attention_out, feed_forward_in, feed_forward_out};
}
constexpr RoleSet with_context() {
  return {query_key_value, attention, attention_out};
}
constexpr RoleSet but_inner() {
  return {query_key_value, attention_out, feed_forward_out};
}
constexpr RoleSet but_feed_forward() {
  return {query_key_value, attention_out};
}
constexpr RoleSet only_qkv() {
  return {query_key_value};
}
constexpr RoleSet only_out() {
  return {attention_out};
}
constexpr RoleSet core_attention() {
  return {attention};
}
constexpr RoleSet norms() {
  return {norm};
}
constexpr RoleSet feed_forward() {
  return {feed_forward_in, activation, feed_forward_out};
}
constexpr RoleSet three_modules() {
  return {attention, norm, feed_forward_in, activation, feed_forward_out};
}

}  // namespace role_sets

constexpr std::array framework_rule_table{
    FrameworkRule{"jax.dots_saveable", "products of matrices are saved, on any graph", jax_saveable<true>},
    FrameworkRule{"jax.nothing_saveable", "nothing is saved, on any graph", jax_saveable<false>},
    FrameworkRule{"maxtext.minimal_with_context", "all projections and attention's output are saved",
                  saving_roles<role_sets::all_products, role_sets::none>},
    FrameworkRule{"maxtext.minimal", "all projections are saved",
                  saving_roles<role_sets::projections, role_sets::none>},
    FrameworkRule{"maxtext.save_dot_with_context_except_mlp", "attention's projections and output are saved",
                  saving_roles<role_sets::with_context, role_sets::none>},
    FrameworkRule{"maxtext.save_dot_except_mlpwi", "all projections but the first of the feed-forward are saved",
                  saving_roles<role_sets::but_inner, role_sets::none>},
    FrameworkRule{"maxtext.save_dot_except_mlp", "attention's projections are saved",
                  saving_roles<role_sets::but_feed_forward, role_sets::none>},
    FrameworkRule{"maxtext.save_qkv_proj", "query, key and value are saved",
                  saving_roles<role_sets::only_qkv, role_sets::none>},
    FrameworkRule{"maxtext.save_out_proj", "attention's last projection is saved",
                  saving_roles<role_sets::only_out, role_sets::none>},
    FrameworkRule{"maxtext.full", "the inputs of layers are saved", saving_roles<role_sets::none, role_sets::none>},
    FrameworkRule{"maxtext.minimal_offloaded", "all projections are moved to the host",
                  saving_roles<role_sets::none, role_sets::projections>},
    FrameworkRule{"maxtext.qkv_proj_offloaded", "query, key and value are moved to the host",
                  saving_roles<role_sets::none, role_sets::only_qkv>},
    FrameworkRule{"megatron.core_attn", "--recompute-granularity selective: attention runs again",
                  repeating_roles<role_sets::core_attention>},
    FrameworkRule{"megatron.layernorm", "selective, --recompute-modules layernorm", repeating_roles<role_sets::norms>},
    FrameworkRule{"megatron.mlp", "selective, --recompute-modules mlp", repeating_roles<role_sets::feed_forward>},
    FrameworkRule{"megatron.selective_all", "selective, --recompute-modules core_attn layernorm mlp",
                  repeating_roles<role_sets::three_modules>},
    FrameworkRule{"megatron.full", "--recompute-granularity full: each number of layers, method block and uniform",
                  megatron_full},
    FrameworkRule{"huggingface.full", "gradient_checkpointing=True: the outputs of layers are saved, by their names",
                  huggingface_full},
    FrameworkRule{"torchtitan.default", "graph_trainer: products and attention's output are saved",
                  saving_roles<role_sets::all_products, role_sets::none>},
    FrameworkRule{"torchtitan.eager", "graph_trainer: of the products every second one is saved", torchtitan_eager},
    FrameworkRule{"torchtitan.full", "graph_trainer: the outputs of layers are saved",
                  saving_roles<role_sets::none, role_sets::none>},
    FrameworkRule{"torchtitan.sac_and_offload", "graph_trainer: what default saves is moved but in the last layer",
                  torchtitan_offload},
    FrameworkRule{"torchtitan_solver.auto_perf_maxing",
                  "graph_trainer: a linear program over layers, then a greedy choice in each", torchtitan_solver, true},
    FrameworkRule{"deepcompile.offload_activation", "all that fits stays, the largest first, the rest is moved",
                  deepcompile_offload, true},
};

}  // namespace

std::span<const FrameworkRule> framework_rules() {
  return framework_rule_table;
}

OpPolicy with_repeatable_only(const Graph& graph, OpPolicy policy) {
  const std::vector<bool> overwritten = overwritten_tensors(graph);
  for (std::size_t o = 0; o < policy.size(); ++o) {
    const bool runs_again = policy[o] == OpChoice::recompute && graph.ops[o].phase == Phase::forward;
    if (runs_again && why_not_again(graph, graph.ops[o], overwritten)) policy[o] = OpChoice::save;
  }
  return policy;
}

}  // namespace plimsoll
