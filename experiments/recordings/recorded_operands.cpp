#include "experiments/recordings/recorded_operands.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>

#include "sim/io/input_error.h"
#include "sim/io/json/json_cursor.h"

namespace plimsoll {
namespace {

bool is_one_of_words(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

/// The elements of a JSON list.
std::vector<std::string> texts_in(const std::string& list, const char* name) {
  std::vector<std::string> made;
  if (!list.starts_with('[')) return made;
  JsonDocument document(list, name);
  document.read([&](JsonCursor root) {
    root.array([&](JsonCursor one) { made.push_back(one.is_word() ? one.string() : one.compact()); });
  });
  document.throw_if_any();
  return made;
}

/// Of a list of whole numbers; what is none ends it.
std::vector<std::int64_t> numbers_of(std::string_view list) {
  std::vector<std::int64_t> made;
  for (std::size_t at = 1; list.starts_with('[') && at < list.size();) {
    if (list[at] == ' ') {
      ++at;
      continue;
    }
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(list.data() + at, list.data() + list.size(), value);
    if (error != std::errc()) break;
    made.push_back(value);
    at = static_cast<std::size_t>(end - list.data()) + 1;
  }
  return made;
}

/// The argument as a whole number.
std::optional<std::int64_t> number_at(const RecordedCall& call, std::size_t argument) {
  if (argument >= call.values.size()) return std::nullopt;
  const std::string& text = call.values[argument];
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

/// `[8, 1024]`; without extents below 0.
AtenShape recorded_shape(std::string_view text) {
  AtenShape made;
  double numbers = 1;
  for (const std::int64_t extent : numbers_of(text)) {
    if (extent < 0) break;
    numbers *= static_cast<double>(extent);
    constexpr double most = 1e13;
    if (numbers > most) throw InputError(fmt::format("Input Dims: absurdly large: {}", text));
    made.push_back(extent);
  }
  return made;
}

/// `[[8, 2], [4]]` as its lists, `[8, 2]` as itself.
std::vector<std::string_view> lists_in(std::string_view text) {
  if (!text.starts_with("[[")) return {text};
  std::vector<std::string_view> made;
  for (std::size_t at = 1; at < text.size(); at = text.find(']', at) + 2) made.push_back(text.substr(at));
  return made;
}

/// As many numbers as there are, without strides or with strides that are none.
RecordedSpan span_of(const AtenShape& shape, const std::vector<std::int64_t>& strides) {
  RecordedSpan dense{element_count(shape), 0};
  if (strides.size() != shape.size() || dense.numbers == 0) return dense;
  RecordedSpan made{1, 0};
  for (std::size_t k = 0; k < shape.size(); ++k) {
    constexpr std::int64_t most = std::int64_t{1} << 40;
    if (strides[k] < 0 || strides[k] > most) return dense;
    const double further = static_cast<double>(shape[k] - 1) * static_cast<double>(strides[k]);
    if (further + static_cast<double>(made.numbers) > static_cast<double>(most)) return dense;
    made.numbers += (shape[k] - 1) * strides[k];
    if (shape[k] > 1) made.stride = std::max(made.stride, strides[k]);
  }
  return made;
}

/// Where along an axis that counts from the end when below 0.
std::optional<std::size_t> axis_at(std::int64_t axis, std::size_t axes) {
  if (axis < 0) axis += static_cast<std::int64_t>(axes);
  return axis >= 0 && static_cast<std::size_t>(axis) < axes ? std::optional(static_cast<std::size_t>(axis))
                                                            : std::nullopt;
}

/// Of tensors along an axis; nothing where they do not fit.
std::vector<RecordedOperand> joined_along_axis(const RecordedCall& call, const std::vector<RecordedOperand>& tensors,
                                               bool is_new_axis) {
  RecordedOperand made = tensors[0];
  const std::optional<std::size_t> axis =
      axis_at(number_at(call, 1).value_or(0), made.shape.size() + (is_new_axis ? 1 : 0));
  if (!axis) return {};
  if (is_new_axis) {
    made.shape.insert(made.shape.begin() + static_cast<std::ptrdiff_t>(*axis),
                      static_cast<std::int64_t>(tensors.size()));
    return {made};
  }
  made.shape[*axis] = 0;
  for (const RecordedOperand& each : tensors) {
    if (each.shape.size() != made.shape.size()) return {};
    made.shape[*axis] += each.shape[*axis];
  }
  return {made};
}

}  // namespace

RecordedCall recorded_call(std::string kind, const RecordedTexts& texts) {
  RecordedCall made{.kind = std::move(kind), .values = texts_in(texts.values, "Concrete Inputs")};
  const std::vector<std::string> words = texts_in(texts.types, "Input type"),
                                 strides = texts_in(texts.strides, "Input Strides");
  const std::vector<std::string> shapes = texts_in(texts.shapes, "Input Dims");
  for (std::size_t k = 0; k < shapes.size(); ++k) {
    const std::string& word = k < words.size() ? words[k] : "";
    const std::vector<std::string_view> tensors = lists_in(shapes[k]);
    const std::vector<std::string_view> steps = lists_in(k < strides.size() ? strides[k] : "");
    const bool is_list = shapes[k].starts_with("[[");
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      const std::string_view dtype = is_list ? unknown_dtype : element_bytes(word) ? long_dtype(word) : "";
      made.operands.push_back({recorded_shape(tensors[t]), std::string(dtype)});
      const std::vector<std::int64_t> step = t < steps.size() ? numbers_of(steps[t]) : std::vector<std::int64_t>();
      if (!strides.empty()) made.spans.push_back(span_of(made.operands.back().shape, step));
    }
  }
  return made;
}

bool is_compiled_kernel(std::string_view name) {
  return name.starts_with("triton_");
}

bool is_parameter_place(std::string_view kind, std::size_t operand) {
  if (is_one_of_words(kind, {"addmm"})) return operand == 0 || operand == 2;
  if (is_one_of_words(kind, {"linear", "convolution", "cudnn_convolution", "conv2d", "miopen_convolution"}))
    return operand >= 1;
  if (is_one_of_words(kind, {"native_layer_norm"})) return operand == 2 || operand == 3;
  if (kind.find("batch_norm") != std::string_view::npos) return operand >= 1 && operand <= 4;
  return is_one_of_words(kind, {"embedding"}) && operand == 0;
}

std::optional<AtenShape> convolved_shape(const RecordedCall& call) {
  const std::vector<RecordedOperand>& operands = call.operands;
  const std::vector<std::string>& words = call.values;
  const bool is_library = is_one_of_words(call.kind, {"cudnn_convolution", "miopen_convolution"});
  if (!is_library && !is_one_of_words(call.kind, {"convolution", "_convolution"})) return std::nullopt;
  constexpr std::size_t transposed_at = 6, stride_at = 3;
  const std::size_t padding_at = is_library ? 2 : 4, dilation_at = is_library ? 4 : 5;
  if (words.size() <= transposed_at || operands.size() < 2) return std::nullopt;
  const auto strides = numbers_of(words[stride_at]), paddings = numbers_of(words[padding_at]),
             dilations = numbers_of(words[dilation_at]);
  const AtenShape &x = operands[0].shape, &weight = operands[1].shape;
  const std::size_t axes = x.size() < 3 ? 0 : x.size() - 2;
  const bool says_all = axes > 0 && weight.size() == x.size() && strides.size() == axes && paddings.size() == axes &&
                        dilations.size() == axes;
  if (!says_all || (!is_library && words[transposed_at] != "False")) return std::nullopt;
  AtenShape made{x[0], weight[0]};
  for (std::size_t k = 0; k < axes; ++k) {
    constexpr std::int64_t most = std::int64_t{1} << 31;
    const std::int64_t stride = strides[k], padding = paddings[k], dilation = dilations[k];
    if (stride < 1 || std::max({stride, padding, dilation}) > most || std::min(padding, dilation) < 0)
      return std::nullopt;
    made.push_back((x[k + 2] + 2 * padding - dilation * (weight[k + 2] - 1) - 1) / stride + 1);
    if (made.back() < 1) return std::nullopt;
  }
  return made;
}

std::vector<RecordedOperand> results_of(const RecordedCall& call) {
  const std::string_view kind = call.kind;
  const std::vector<RecordedOperand>& operands = call.operands;
  std::vector<RecordedOperand> tensors;
  std::ranges::copy_if(operands, std::back_inserter(tensors),
                       [](const RecordedOperand& operand) { return !operand.dtype.empty(); });
  if (tensors.empty()) return {};
  const auto product = [&](std::size_t a, std::size_t b) -> std::vector<RecordedOperand> {
    if (b >= operands.size() || operands[a].shape.size() < 2 || operands[b].shape.size() < 2) return {tensors[0]};
    RecordedOperand made = operands[a];
    made.shape.back() = operands[b].shape.back();
    return {made};
  };
  if (is_compiled_kernel(kind)) return {tensors.back()};
  if (is_one_of_words(kind, {"mm", "bmm"})) return product(0, 1);
  if (is_one_of_words(kind, {"addmm", "baddbmm"})) return product(1, 2);
  if (is_one_of_words(kind, {"cat", "concat"})) {
    std::erase_if(tensors, [](const RecordedOperand& each) { return each.shape == AtenShape{0}; });  // as PyTorch does
    return tensors.empty() ? tensors : joined_along_axis(call, tensors, false);
  }
  if (kind == "stack") return joined_along_axis(call, tensors, true);
  if (kind.starts_with("_foreach_")) {
    std::erase_if(tensors, [&](const RecordedOperand& each) { return each.dtype != tensors[0].dtype; });
    if (kind == "_foreach_norm" || kind == "_foreach_max") {
      for (RecordedOperand& each : tensors) each.shape.clear();
    }
    return tensors;
  }
  if (kind == "embedding" && operands.size() > 1 && !operands[0].shape.empty()) {
    RecordedOperand made{operands[1].shape, operands[0].dtype};
    made.shape.push_back(operands[0].shape.back());
    return {made};
  }
  if (kind == "embedding_dense_backward") {
    const std::optional<std::int64_t> rows = number_at(call, 2);
    constexpr std::int64_t most = std::int64_t{1} << 31;
    if (!rows || *rows < 1 || *rows > most || operands[0].shape.empty()) return {};
    return {{{*rows, operands[0].shape.back()}, operands[0].dtype}};
  }
  const auto gradients_of = [&](std::initializer_list<std::size_t> places) {
    std::vector<RecordedOperand> made;
    for (const std::size_t k : places) {
      if (k < operands.size() && !operands[k].dtype.empty()) made.push_back(operands[k]);
    }
    return made;
  };
  if (kind == "convolution_backward") return gradients_of({1, 2});
  if (kind == "native_layer_norm_backward") return gradients_of({0, 5, 6});
  if (kind.ends_with("batch_norm_backward")) return gradients_of({0, 2, 2});
  if (kind.ends_with("attention_backward")) return gradients_of({1, 2, 3});
  RecordedOperand most = tensors[0];
  for (const RecordedOperand& each : tensors) {
    const bool is_larger = element_count(each.shape) > element_count(most.shape);
    if (is_larger && each.dtype == most.dtype) most = each;
  }
  if (is_one_of_words(kind, {"sum", "mean", "var_mean", "nll_loss_forward", "amax"})) most.shape.clear();
  return {most};
}

}  // namespace plimsoll
