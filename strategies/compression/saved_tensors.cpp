#include "strategies/compression/saved_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "sim/core/expects.h"
#include "sim/ops/layers.h"

namespace plimsoll {
namespace {

/// What is recomputed and read so many positions later is not worth packing.
constexpr std::uint32_t soon = 2;

/// `conv.input` as `conv` and `.input`.
std::pair<std::string_view, std::string_view> split(std::string_view term) {
  const std::size_t dot = term.find('.');
  if (dot == std::string_view::npos) return {term, {}};
  return {term.substr(0, dot), term.substr(dot)};
}

std::vector<std::string_view> terms_of(std::string_view text) {
  std::vector<std::string_view> terms;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('+', begin), text.size());
    terms.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return terms;
}

}  // namespace

std::vector<SavedTensor> saved_tensors(const Graph& graph, const OffloadModel& model) {
  std::vector<SavedTensor> saved;
  const auto uses_at = [&](const OffloadGap& gap) {
    const Action& reader = model.computes[gap.until];
    EXPECTS(reader.kind == ActionKind::run);
    const Op& op = graph[reader.op];
    SavedUse use{gap.until, SavedBy::checkpoint, false, reader.op};
    if (op.phase == Phase::forward) return std::vector{use};
    std::vector<SavedUse> of_layers;
    for (const InputUse& each : op.uses) {
      if (graph[each.tensor].storage != graph[gap.tensor].storage) continue;
      of_layers.push_back(
          {gap.until, each.use.by, each.use.is_result, reader.op, each.use.kernel, each.use.shape_only});
    }
    if (!of_layers.empty()) return of_layers;
    const Action& maker = model.computes[gap.made];
    use.by = layer_of(op);
    use.is_result = maker.kind == ActionKind::run && layer_of(graph[maker.op]) == use.by;
    use.kernel = use.by == SavedBy::conv ? kernel_of(graph, op) : 0;
    return std::vector{use};
  };
  std::vector<std::uint32_t> backwards{0};  // before a position
  for (const Action& compute : model.computes) {
    const bool is_one = compute.kind == ActionKind::run && graph[compute.op].phase != Phase::forward;
    backwards.push_back(backwards.back() + (is_one ? 1 : 0));
  }
  const auto runs_forward = [&](std::uint32_t position) {
    const Action& compute = model.computes[position];
    return compute.kind == ActionKind::run && graph[compute.op].phase == Phase::forward;
  };
  /// Made by a forward, and read after or by a backward; made anew within the backward, some time after.
  const auto waits = [&](const OffloadGap& gap) {
    if (gap.from < model.turn) return model.turn <= gap.until;
    return gap.made >= model.turn && runs_forward(gap.from) && gap.until > gap.from + soon &&
           backwards[gap.until + 1] > backwards[gap.from];
  };
  std::vector<std::size_t> open(graph.storages, 0);  // 1 + the saved tensor that lives in a storage
  for (const OffloadGap& gap : model.gaps) {         // by `from`
    if (gap.form != Form{}) continue;
    std::size_t& at = open[graph[gap.tensor].storage.index];
    const bool goes_on = at > 0 && gap.made < gap.from && saved[at - 1].uses.back().position == gap.from;
    if (goes_on) {
      std::ranges::copy(uses_at(gap), std::back_inserter(saved[at - 1].uses));
    } else if (waits(gap)) {
      saved.push_back({gap.tensor, gap.from, uses_at(gap)});
      at = saved.size();
    }
  }
  return saved;
}

std::int64_t rows_of(const Tensor& tensor) {
  std::int64_t values = 1;
  for (const std::int64_t d : tensor.shape) values *= d;
  return tensor.shape.empty() || tensor.shape.back() == 0 ? 0 : values / tensor.shape.back();
}

bool sums_over_rows(const Graph& graph, const Op& op, const Tensor& value) {
  if (!reads_packed(op, {.kind = CodecKind::rows})) return false;
  const auto of_weight = [&](TensorId t) { return graph[t].kind == TensorKind::parameter_gradient; };
  const auto has_as_many = [&](TensorId t) {
    return graph[t].kind == TensorKind::gradient && rows_of(graph[t]) == rows_of(value);
  };
  return std::ranges::any_of(op.outputs, of_weight) && std::ranges::any_of(op.inputs, has_as_many);
}

std::string UsePattern::refusal(std::string_view text) {
  for (const std::string_view term : terms_of(text)) {
    const auto [name, which] = split(term);
    const bool is_layer = name == "all" || layer_with_kernel(name).has_value();
    if (is_layer && (which.empty() || which == use_as_input || which == use_as_result)) continue;
    return fmt::format("'{}' is neither a layer nor its .input or .output", term);
  }
  return {};
}

UsePattern::UsePattern(std::string_view text) {
  EXPECTS(refusal(text).empty());
  for (const std::string_view term : terms_of(text)) {
    const auto [name, which] = split(term);
    const auto [layer, kernel] = layer_with_kernel(name).value_or(std::pair{SavedBy::other, std::int64_t{0}});
    terms_.push_back({.all = name == "all",
                      .layer = layer,
                      .kernel = kernel,
                      .inputs = which != use_as_result,
                      .results = which != use_as_input});
  }
}

bool UsePattern::matches(const SavedUse& use) const {
  return std::ranges::any_of(terms_, [&](const Term& term) {
    return (term.all ? use.by != SavedBy::checkpoint : term.layer == use.by) &&
           (term.kernel == 0 || term.kernel == use.kernel) && (use.is_result ? term.results : term.inputs);
  });
}

bool UsePattern::names_all() const {
  return std::ranges::any_of(terms_, &Term::all);
}

bool UsePattern::names(SavedBy layer) const {
  return std::ranges::any_of(terms_, [&](const Term& term) { return !term.all && term.layer == layer; });
}

std::string written_uses(std::span<const SavedTensor> saved) {
  std::set<std::string> uses;
  for (const SavedTensor& tensor : saved) {
    for (const SavedUse& use : tensor.uses) {
      uses.insert(fmt::format("{}{}", name_of(use.by), use.is_result ? use_as_result : use_as_input));
    }
  }
  return fmt::format("{}", fmt::join(uses, ", "));
}

}  // namespace plimsoll
