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

constexpr std::array layer_names{std::pair{SavedBy::conv, std::string_view("conv")},
                                 std::pair{SavedBy::linear, std::string_view("linear")},
                                 std::pair{SavedBy::matmul, std::string_view("matmul")},
                                 std::pair{SavedBy::bn, std::string_view("bn")},
                                 std::pair{SavedBy::ln, std::string_view("ln")},
                                 std::pair{SavedBy::relu, std::string_view("relu")},
                                 std::pair{SavedBy::gelu, std::string_view("gelu")},
                                 std::pair{SavedBy::softmax, std::string_view("softmax")},
                                 std::pair{SavedBy::pool, std::string_view("pool")},
                                 std::pair{SavedBy::embedding, std::string_view("embedding")},
                                 std::pair{SavedBy::lstm, std::string_view("lstm")},
                                 std::pair{SavedBy::loss, std::string_view("loss")},
                                 std::pair{SavedBy::stage, std::string_view("stage")},
                                 std::pair{SavedBy::checkpoint, std::string_view("checkpoint")},
                                 std::pair{SavedBy::other, std::string_view("other")}};

/// The first that a kind of op begins with counts.
constexpr std::array kind_prefixes{std::pair{std::string_view("convolution"), SavedBy::conv},
                                   std::pair{std::string_view("native_batch_norm"), SavedBy::bn},
                                   std::pair{std::string_view("batch_norm"), SavedBy::bn},
                                   std::pair{std::string_view("native_layer_norm"), SavedBy::ln},
                                   std::pair{std::string_view("layer_norm"), SavedBy::ln},
                                   std::pair{std::string_view("relu"), SavedBy::relu},
                                   std::pair{std::string_view("threshold"), SavedBy::relu},
                                   std::pair{std::string_view("gelu"), SavedBy::gelu},
                                   std::pair{std::string_view("_softmax"), SavedBy::softmax},
                                   std::pair{std::string_view("softmax"), SavedBy::softmax},
                                   std::pair{std::string_view("max_pool"), SavedBy::pool},
                                   std::pair{std::string_view("average_pool"), SavedBy::pool},
                                   std::pair{std::string_view("avg_pool"), SavedBy::pool},
                                   std::pair{std::string_view("embedding"), SavedBy::embedding},
                                   std::pair{std::string_view("lstm"), SavedBy::lstm},
                                   std::pair{std::string_view("_log_softmax"), SavedBy::loss},
                                   std::pair{std::string_view("nll_loss"), SavedBy::loss},
                                   std::pair{std::string_view("cross_entropy"), SavedBy::loss},
                                   std::pair{std::string_view("linear"), SavedBy::linear},
                                   std::pair{std::string_view("addmm"), SavedBy::linear},
                                   std::pair{std::string_view("mm"), SavedBy::linear},
                                   std::pair{std::string_view("bmm"), SavedBy::matmul},
                                   std::pair{std::string_view("baddbmm"), SavedBy::matmul},
                                   std::pair{std::string_view("attention"), SavedBy::matmul},
                                   std::pair{std::string_view("stage"), SavedBy::stage}};

constexpr std::string_view of_input = ".input", of_result = ".output";

std::optional<SavedBy> layer_named(std::string_view name) {
  const auto* found = std::ranges::find(layer_names, name, &std::pair<SavedBy, std::string_view>::second);
  return found == layer_names.end() ? std::nullopt : std::optional(found->first);
}

/// Of the weight whose gradient a convolution makes, or that it reads.
std::int64_t kernel_of(const Graph& graph, const Op& op) {
  for (const auto* list : {&op.inputs, &op.outputs}) {
    for (const TensorId t : *list) {
      const Tensor& tensor = graph[t];
      const bool is_weight = tensor.kind == TensorKind::parameter || tensor.kind == TensorKind::parameter_gradient;
      if (!is_weight || tensor.shape.size() != 4) continue;
      return tensor.shape[2] == tensor.shape[3] ? tensor.shape[3]
                                                : tensor.shape[0];  // height first where channels last
    }
  }
  return 0;
}

/// `conv3x3` as its layer and 3; 0 where no size is named.
std::optional<std::pair<SavedBy, std::int64_t>> layer_with_kernel(std::string_view name) {
  if (const std::optional<SavedBy> layer = layer_named(name)) return std::pair{*layer, std::int64_t{0}};
  const std::string_view conv = name_of(SavedBy::conv);
  for (std::int64_t kernel = 1; kernel <= 99; ++kernel) {
    if (name == fmt::format("{}{}x{}", conv, kernel, kernel)) return std::pair{SavedBy::conv, kernel};
  }
  return std::nullopt;
}

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

std::string_view name_of(SavedBy layer) {
  return layer_names[static_cast<std::size_t>(layer)].second;
}

SavedBy layer_of(const Op& op) {
  const auto* found =
      std::ranges::find_if(kind_prefixes, [&](const auto& row) { return op.kind.starts_with(row.first); });
  return found == kind_prefixes.end() ? SavedBy::other : found->second;
}

std::vector<SavedTensor> saved_tensors(const Graph& graph, const OffloadModel& model) {
  std::vector<SavedTensor> saved;
  const auto use_at = [&](std::uint32_t position, std::uint32_t made) {
    const Action& reader = model.computes[position];
    EXPECTS(reader.kind == ActionKind::run);
    const Op& op = graph[reader.op];
    SavedUse use{position, SavedBy::checkpoint, false, reader.op};
    if (op.phase == Phase::forward) return use;
    const Action& maker = model.computes[made];
    use.by = layer_of(op);
    use.is_result = maker.kind == ActionKind::run && layer_of(graph[maker.op]) == use.by;
    use.kernel = use.by == SavedBy::conv ? kernel_of(graph, op) : 0;
    return use;
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
    const bool is_layer = name == "all" || layer_with_kernel(name).has_value();
    if (is_layer && (which.empty() || which == of_input || which == of_result)) continue;
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
                      .inputs = which != of_result,
                      .results = which != of_input});
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
      uses.insert(fmt::format("{}{}", name_of(use.by), use.is_result ? of_result : of_input));
    }
  }
  return fmt::format("{}", fmt::join(uses, ", "));
}

}  // namespace plimsoll
