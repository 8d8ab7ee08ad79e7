#include "strategies/api/strategy.h"

#include <limits>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

template <class Kind>
const Kind& as(const StrategyInfo& strategy) {
  const Kind* kind = std::get_if<Kind>(&strategy.kind);
  EXPECTS(kind != nullptr);
  return *kind;
}

TransformFunction transform_of(const StrategyInfo& strategy) {
  const auto found = [](const auto& kind) -> TransformFunction {
    if constexpr (requires { kind.transform; }) return kind.transform;
    return nullptr;
  };
  return std::visit(found, strategy.kind);
}

PartitionFunction partition_of(const StrategyInfo& strategy) {
  const auto found = [](const auto& kind) -> PartitionFunction {
    if constexpr (requires { kind.partition; }) return kind.partition;
    return nullptr;
  };
  return std::visit(found, strategy.kind);
}

}  // namespace

std::vector<TapeOutcome> StrategyInfo::tapes(const PartTask& task, const Options& given,
                                             std::span<const std::optional<Bytes>> budgets, const Tape* before) const {
  return as<TapeStrategy>(*this).tapes(task, given, budgets, before);
}

Asked StrategyInfo::asked(const PartTask& task, const Options& given, const Tape* before) const {
  const auto& kind = as<TapeStrategy>(*this);
  if (kind.asked != nullptr) return kind.asked(task, given, before);
  return [&task, given, before, tapes = kind.tapes](std::span<const std::optional<Bytes>> budgets) {
    return tapes(task, given, budgets, before);
  };
}

bool StrategyInfo::names_candidates() const {
  const TapeStrategy* tape = std::get_if<TapeStrategy>(&kind);
  return tape != nullptr && tape->candidates != nullptr;
}

std::vector<Bytes> StrategyInfo::candidates(const PartTask& task, const Options& given) const {
  return as<TapeStrategy>(*this).candidates(task, given);
}

bool StrategyInfo::partitions() const {
  return partition_of(*this) != nullptr;
}

std::vector<PartitionOutcome> StrategyInfo::partition(const Problem& problem, const Options& given,
                                                      std::span<const std::optional<Bytes>> budgets) const {
  return partition_of(*this)(problem, given, budgets);
}

bool StrategyInfo::transforms() const {
  return transform_of(*this) != nullptr;
}

std::variant<Problem, std::string> StrategyInfo::transform(const Problem& problem, const Options& given) const {
  return transform_of(*this)(problem, given);
}

bool StrategyInfo::decides() const {
  const SplitStrategy* split = std::get_if<SplitStrategy>(&kind);
  return split != nullptr && split->decide != nullptr;
}

bool StrategyInfo::is_cut_on() const {
  const SplitStrategy* split = std::get_if<SplitStrategy>(&kind);
  return split != nullptr && split->is_cut_on;
}

std::variant<Decisions, std::string> StrategyInfo::decide(const Problem& problem, const Options& given,
                                                          const Deadline& deadline) const {
  return as<SplitStrategy>(*this).decide(problem, given, deadline);
}

double StrategyInfo::seconds(const Options& given) const {
  const auto limit = as<SplitStrategy>(*this).seconds;
  return limit == nullptr ? std::numeric_limits<double>::infinity() : limit(given);
}

bool StrategyInfo::packs_stages() const {
  const TapeStrategy* tape = std::get_if<TapeStrategy>(&kind);
  return tape != nullptr && tape->packs_stages;
}

bool StrategyInfo::plans_parts() const {
  const TapeStrategy* tape = std::get_if<TapeStrategy>(&kind);
  return tape != nullptr && tape->plans_parts;
}

bool StrategyInfo::moves_parameters() const {
  const TapeStrategy* tape = std::get_if<TapeStrategy>(&kind);
  return tape != nullptr && tape->moves_parameters;
}

bool StrategyInfo::may_split_backward() const {
  const PartitionStrategy* partition = std::get_if<PartitionStrategy>(&kind);
  return partition != nullptr && partition->splits_backward != nullptr;
}

bool StrategyInfo::splits_backward(const Options& given) const {
  return may_split_backward() && as<PartitionStrategy>(*this).splits_backward(given);
}

std::uint32_t StrategyInfo::slices(const Options& given) const {
  const PartitionStrategy* partition = std::get_if<PartitionStrategy>(&kind);
  return partition == nullptr || partition->slices == nullptr ? 1 : partition->slices(given);
}

bool StrategyInfo::shares_micro_batches() const {
  const SplitStrategy* split = std::get_if<SplitStrategy>(&kind);
  return split != nullptr && split->shares_micro_batches;
}

std::uint32_t StrategyInfo::ranks(const Options& given, std::uint32_t devices) const {
  const SplitStrategy* split = std::get_if<SplitStrategy>(&kind);
  return split == nullptr || split->ranks == nullptr ? 1 : split->ranks(given, devices);
}

std::string_view name_of(Family family) {
  switch (family) {
    case Family::transform:
      return "transform";
    case Family::hybrid:
      return "hybrid";
    case Family::placement:
      return "placement";
    case Family::pipelining:
      return "pipelining";
    case Family::baseline:
      return "baseline";
    case Family::rematerialization:
      return "rematerialization";
    case Family::compression:
      return "compression";
    case Family::offloading:
      return "offloading";
  }
  return "unknown";
}

}  // namespace plimsoll
