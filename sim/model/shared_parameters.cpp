#include "sim/model/shared_parameters.h"

#include <algorithm>
#include <set>

namespace plimsoll {

Bytes trained_bytes(const Chain& chain, const Stage& stage) {
  Bytes sum;
  for (const std::uint32_t p : stage.parameters) {
    if (chain.parameters[p].trained) sum += chain.parameters[p].bytes;
  }
  return sum;
}

bool own_gradient(const Chain& chain, const Stage& stage) {
  return stage.parameter_gradient && *stage.parameter_gradient != trained_bytes(chain, stage);
}

std::vector<SharedParameter> shared_parameters(const Chain& chain) {
  std::vector<SharedParameter> shared;
  for (std::uint32_t p = 0; p < chain.parameters.size(); ++p) {
    SharedParameter found{.parameter = p, .stages = {}};
    for (std::size_t i = chain.stages.size(); i-- > 0;) {
      const Stage& stage = chain.stages[i];
      if (std::ranges::find(stage.parameters, p) == stage.parameters.end() || own_gradient(chain, stage)) continue;
      found.stages.push_back(static_cast<std::uint32_t>(i));
    }
    if (found.stages.size() < 2 || !chain.parameters[p].trained) continue;
    const auto stated = std::ranges::find(chain.shared, p, &SharedParameter::parameter);
    if (stated != chain.shared.end()) found.in_place = stated->in_place;
    shared.push_back(std::move(found));
  }
  return shared;
}

namespace {

std::size_t trained_parameters(const Chain& chain, const Stage& stage) {
  const std::set<std::uint32_t> own(stage.parameters.begin(), stage.parameters.end());
  const auto is_trained = [&](std::uint32_t p) { return chain.parameters[p].trained; };
  return static_cast<std::size_t>(std::ranges::count_if(own, is_trained));
}

}  // namespace

std::vector<ReleasedWorkspaces> released_workspaces(const Chain& chain) {
  const std::size_t n = chain.stages.size();
  std::vector<Bytes> sums(n), buffers(n);
  std::vector<std::size_t> further(n);  // parameters to whose gradients another stage has contributed before
  for (const SharedParameter& shared : shared_parameters(chain)) {
    const Bytes bytes = chain.parameters[shared.parameter].bytes;
    for (std::size_t k = 1; k < shared.stages.size(); ++k) {
      ++further[shared.stages[k]];
      if (!shared.in_place) sums[shared.stages[k]] += bytes;  // contribution and buffer, then their sum beside them
      for (std::uint32_t i = shared.stages[k]; i < shared.stages[k - 1]; ++i) buffers[i] += bytes;
    }
  }
  std::vector<ReleasedWorkspaces> released;
  for (std::size_t i = 0; i < n; ++i) {
    const Stage& stage = chain.stages[i];
    auto& [fresh, accumulating] = released.emplace_back();
    fresh = stage.backward_released_workspace;
    accumulating = stage.backward_accumulate_released_workspace;
    const bool is_nothing_new = further[i] > 0 && further[i] == trained_parameters(chain, stage);
    if (!fresh && is_nothing_new) fresh = stage.backward_accumulate_workspace + sums[i];
    if (!fresh && sums[i] > Bytes{0}) fresh = stage.backward_workspace + sums[i];
    if (!accumulating && sums[i] + buffers[i] > Bytes{0}) {
      accumulating = stage.backward_accumulate_workspace + sums[i] + buffers[i];
    }
  }
  return released;
}

}  // namespace plimsoll
