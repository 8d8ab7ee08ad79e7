#include "sim/lower/weight_versions.h"

#include <algorithm>

#include "sim/core/expects.h"

namespace plimsoll {

void WeightVersions::find_updates(std::span<const Tape> tapes) {
  if (!come_within()) return;
  const Graph& graph = problem_.graph;
  EXPECTS(updates_.every > 0 && problem_.micro_batches % updates_.every == 0);
  EXPECTS(problem_.gradients == Gradients::fresh);
  for (const Tape& tape : tapes) refuse_moves(tape);
  find_owners();
  const std::uint32_t updates = problem_.micro_batches / updates_.every;
  parts_.resize(partition_.parts.size(), {.updates = {},
                                          .parameters = {},
                                          .gradients = {},
                                          .read = std::vector<std::optional<std::uint32_t>>(problem_.micro_batches),
                                          .readers = std::vector<std::uint32_t>(updates + 1),
                                          .ended = std::vector<std::uint32_t>(updates)});
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    if (op.phase != Phase::update) continue;
    OfPart* part = nullptr;
    for (const TensorId t : op.inputs) {
      if (graph[t].kind != TensorKind::parameter_gradient) continue;
      part = &parts_[owners_.at(graph[t].storage).index];
      if (std::ranges::find(part->gradients, t) == part->gradients.end()) part->gradients.push_back(t);
    }
    if (part == nullptr) {
      throw CannotLower{"'" + op.name +
                        "' distributes parameters of which ranks have updated shares; updates within an iteration need "
                        "whole parameters, each rank's own"};
    }
    part->updates.push_back(id_at<OpId>(o));
    for (const TensorId t : op.mutates) {
      if (graph[t].kind == TensorKind::parameter) part->parameters.push_back(t);
    }
  }
  if (updates_.versions != Versions::double_buffered) return;
  for (OfPart& part : parts_) {
    for (std::uint32_t i = 0; i < problem_.micro_batches; ++i) read(part, i, std::max(i / updates_.every, 1U) - 1);
  }
}

void WeightVersions::refuse_moves(const Tape& tape) const {
  const auto stays = [&](const Action& action) {
    if (action.kind == ActionKind::run) return action.at == place::device;
    return action.kind == ActionKind::cut || per_micro_batch(problem_.graph[action.tensor].kind);
  };
  if (tape.end.empty() && tape.homes.empty() && std::ranges::all_of(tape.actions, stays)) return;
  throw CannotLower{
      "updates within an iteration run on the device, and a tape keeps or updates parameters, gradients or states "
      "elsewhere"};
}

void WeightVersions::find_owners() {
  const Graph& graph = problem_.graph;
  is_updated_.resize(graph.storages, false);
  for (const Op& op : graph.ops) {
    if (op.phase != Phase::update) continue;
    for (const TensorId t : op.mutates) {
      if (graph[t].kind == TensorKind::parameter) is_updated_[graph[t].storage.index] = true;
    }
  }
  for (std::size_t p = 0; p < partition_.parts.size(); ++p) {
    for (const OpId op : partition_.parts[p].ops) {
      for (const std::vector<TensorId>* list : {&graph[op].inputs, &graph[op].outputs}) {
        for (const TensorId t : *list) {
          if (graph[t].kind != TensorKind::parameter_gradient && !has(t)) continue;
          if (owners_.try_emplace(graph[t].storage, id_at<PartId>(p)).first->second == id_at<PartId>(p)) continue;
          throw CannotLower{"two parts of the pipeline use '" + graph[t].name +
                            "': updates within an iteration need parameters that one part alone uses"};
        }
      }
    }
  }
}

void WeightVersions::read(OfPart& part, std::uint32_t micro_batch, std::uint32_t version) {
  part.read[micro_batch] = version;
  ++part.readers[version];
  if (!part.updates.empty()) staleness_ = std::max(staleness_, micro_batch / updates_.every - version);
}

CopyKey WeightVersions::key(const Op& op, TensorId t, PartId by, std::uint32_t micro_batch, CopyKey k) {
  if (!has(t)) return k;
  OfPart& part = parts_[by.index];
  if (op.phase != Phase::update) {
    if (!part.read[micro_batch]) read(part, micro_batch, part.newest);
    k.micro_batch = *part.read[micro_batch];
    return k;
  }
  k.micro_batch = part.newest;
  if (is_read(by)) return k;
  copies_.rename(k, next(k));
  return next(k);
}

void WeightVersions::end(PartId id, std::uint32_t micro_batch) {
  OfPart& part = parts_[id.index];
  ++part.ended[micro_batch / updates_.every];
  const std::optional<std::uint32_t> version = part.read[micro_batch];
  if (!version || --part.readers[*version] > 0 || *version == part.newest) return;
  for (const TensorId t : part.parameters) {
    CopyKey k = copies_.key(t, 0, copies_.memory_of(device_of(id)));
    k.micro_batch = *version;
    copies_.drop(k, device_of(id));
  }
}

bool WeightVersions::is_due(PartId id) const {
  const OfPart& part = parts_[id.index];
  return part.newest < part.ended.size() && part.ended[part.newest] == updates_.every;
}

void WeightVersions::updated(PartId id) {
  for (const TensorId t : parts_[id.index].gradients) {
    copies_.drop(copies_.key(t, 0, copies_.memory_of(device_of(id))), device_of(id));
  }
  ++parts_[id.index].newest;
}

}  // namespace plimsoll
