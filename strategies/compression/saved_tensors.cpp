#include "strategies/compression/saved_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

constexpr std::array layer_names{
    std::pair{Layer::conv, std::string_view("conv")},     std::pair{Layer::linear, std::string_view("linear")},
    std::pair{Layer::matmul, std::string_view("matmul")}, std::pair{Layer::bn, std::string_view("bn")},
    std::pair{Layer::ln, std::string_view("ln")},         std::pair{Layer::relu, std::string_view("relu")},
    std::pair{Layer::gelu, std::string_view("gelu")},     std::pair{Layer::softmax, std::string_view("softmax")},
    std::pair{Layer::pool, std::string_view("pool")},     std::pair{Layer::embedding, std::string_view("embedding")},
    std::pair{Layer::lstm, std::string_view("lstm")},     std::pair{Layer::loss, std::string_view("loss")},
    std::pair{Layer::stage, std::string_view("stage")},   std::pair{Layer::checkpoint, std::string_view("checkpoint")},
    std::pair{Layer::other, std::string_view("other")}};

/// The first that a kind of op begins with counts.
constexpr std::array kind_prefixes{std::pair{std::string_view("convolution"), Layer::conv},
                                   std::pair{std::string_view("native_batch_norm"), Layer::bn},
                                   std::pair{std::string_view("batch_norm"), Layer::bn},
                                   std::pair{std::string_view("native_layer_norm"), Layer::ln},
                                   std::pair{std::string_view("layer_norm"), Layer::ln},
                                   std::pair{std::string_view("relu"), Layer::relu},
                                   std::pair{std::string_view("threshold"), Layer::relu},
                                   std::pair{std::string_view("gelu"), Layer::gelu},
                                   std::pair{std::string_view("_softmax"), Layer::softmax},
                                   std::pair{std::string_view("softmax"), Layer::softmax},
                                   std::pair{std::string_view("max_pool"), Layer::pool},
                                   std::pair{std::string_view("average_pool"), Layer::pool},
                                   std::pair{std::string_view("avg_pool"), Layer::pool},
                                   std::pair{std::string_view("embedding"), Layer::embedding},
                                   std::pair{std::string_view("lstm"), Layer::lstm},
                                   std::pair{std::string_view("_log_softmax"), Layer::loss},
                                   std::pair{std::string_view("nll_loss"), Layer::loss},
                                   std::pair{std::string_view("cross_entropy"), Layer::loss},
                                   std::pair{std::string_view("linear"), Layer::linear},
                                   std::pair{std::string_view("addmm"), Layer::linear},
                                   std::pair{std::string_view("mm"), Layer::linear},
                                   std::pair{std::string_view("bmm"), Layer::matmul},
                                   std::pair{std::string_view("baddbmm"), Layer::matmul},
                                   std::pair{std::string_view("attention"), Layer::matmul},
                                   std::pair{std::string_view("stage"), Layer::stage}};

constexpr std::string_view of_input = ".input", of_result = ".output";

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

std::optional<Layer> layer_named(std::string_view name) {
  const auto* found = std::ranges::find(layer_names, name, &std::pair<Layer, std::string_view>::second);
  return found == layer_names.end() ? std::nullopt : std::optional(found->first);
}

}  // namespace

std::string_view name_of(Layer layer) {
  return layer_names[static_cast<std::size_t>(layer)].second;
}

Layer layer_of(const Op& op) {
  const auto* found =
      std::ranges::find_if(kind_prefixes, [&](const auto& row) { return op.kind.starts_with(row.first); });
  return found == kind_prefixes.end() ? Layer::other : found->second;
}

std::vector<SavedTensor> saved_tensors(const Graph& graph, const OffloadModel& model) {
  std::vector<SavedTensor> saved;
  const auto use_at = [&](std::uint32_t position, std::uint32_t made) {
    const Action& reader = model.computes[position];
    EXPECTS(reader.kind == ActionKind::run);
    const Op& op = graph[reader.op];
    if (op.phase == Phase::forward) return SavedUse{position, Layer::checkpoint, false};
    const Action& maker = model.computes[made];
    const Layer by = layer_of(op);
    return SavedUse{position, by, maker.kind == ActionKind::run && layer_of(graph[maker.op]) == by};
  };
  std::vector<std::size_t> open(graph.storages, 0);  // 1 + the saved tensor that lives in a storage
  for (const OffloadGap& gap : model.gaps) {         // by `from`
    if (gap.form != Form{}) continue;
    std::size_t& at = open[graph[gap.tensor].storage.index];
    if (gap.from < model.turn && model.turn <= gap.until) {
      saved.push_back({gap.tensor, gap.from, {use_at(gap.until, gap.made)}});
      at = saved.size();
    } else if (at > 0 && saved[at - 1].uses.back().position == gap.from) {
      saved[at - 1].uses.push_back(use_at(gap.until, gap.made));
    }
  }
  return saved;
}

std::string UsePattern::refusal(std::string_view text) {
  for (const std::string_view term : terms_of(text)) {
    const auto [name, which] = split(term);
    const bool is_layer = name == "all" || layer_named(name).has_value();
    if (is_layer && (which.empty() || which == of_input || which == of_result)) continue;
    return fmt::format("'{}' is neither a layer nor its .input or .output", term);
  }
  return {};
}

UsePattern::UsePattern(std::string_view text) {
  EXPECTS(refusal(text).empty());
  for (const std::string_view term : terms_of(text)) {
    const auto [name, which] = split(term);
    terms_.push_back({.all = name == "all",
                      .layer = layer_named(name).value_or(Layer::other),
                      .inputs = which != of_result,
                      .results = which != of_input});
  }
}

bool UsePattern::matches(const SavedUse& use) const {
  return std::ranges::any_of(terms_, [&](const Term& term) {
    return (term.all ? use.by != Layer::checkpoint : term.layer == use.by) &&
           (use.is_result ? term.results : term.inputs);
  });
}

bool UsePattern::names_all() const {
  return std::ranges::any_of(terms_, &Term::all);
}

bool UsePattern::names(Layer layer) const {
  return std::ranges::any_of(terms_, [&](const Term& term) { return !term.all && term.layer == layer; });
}

std::string written_uses(std::span<const SavedTensor> saved) {
  std::set<std::string> uses;
  for (const SavedTensor& tensor : saved) {
    for (const SavedUse& use : tensor.uses) {
      uses.insert(fmt::format("{}{}", name_of(use.by), use.is_result ? of_result : of_input));
    }
  }
  return fmt::format("{}", fmt::join(uses, ", "));
}

}  // namespace plimsoll
