#include "traces/imports/pytorch/aten_work.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

namespace plimsoll {
namespace {

struct ElementType {
  std::string_view brief, full, cpp;
  std::int64_t bytes;
};
constexpr std::array element_types{
    ElementType{"f32", "float32", "float", 4},
    ElementType{"bf16", "bfloat16", "c10::BFloat16", 2},
    ElementType{"f16", "float16", "c10::Half", 2},
    ElementType{"f64", "float64", "double", 8},
    ElementType{"i64", "int64", "long int", 8},
    ElementType{"i32", "int32", "int", 4},
    ElementType{"i16", "int16", "short int", 2},
    ElementType{"i8", "int8", "signed char", 1},
    ElementType{"u8", "uint8", "unsigned char", 1},
    ElementType{"b8", "bool", "bool", 1},
    ElementType{"f8e4m3fn", "float8_e4m3fn", "c10::Float8_e4m3fn", 1},
    ElementType{"f8e5m2", "float8_e5m2", "c10::Float8_e5m2", 1},
    ElementType{"c64", "complex64", "c10::complex<float>", 8},
    ElementType{"c128", "complex128", "c10::complex<double>", 16},
};

const ElementType* element_type(std::string_view word) {
  if (word == "long") word = "int64";  // as of PyTorch 2.1
  if (word == "short") word = "int16";
  const auto found = std::ranges::find_if(
      element_types, [&](const ElementType& t) { return word == t.brief || word == t.full || word == t.cpp; });
  return found == element_types.end() ? nullptr : &*found;
}

constexpr std::array<std::string_view, 32> views{
    "view",       "permute",  "transpose",      "t",          "expand",     "unsqueeze",    "squeeze",
    "slice",      "select",   "detach",         "alias",      "as_strided", "split",        "split_with_sizes",
    "unbind",     "diagonal", "_unsafe_view",   "reshape",    "chunk",      "view_as_real", "view_as_complex",
    "narrow",     "unfold",   "swapaxes",       "movedim",    "view_as",    "expand_as",    "flatten",
    "lift_fresh", "numpy_T",  "_reshape_alias", "wait_tensor"};

constexpr std::array<std::string_view, 5> allocations{"empty", "empty_like", "new_empty", "empty_strided",
                                                      "new_empty_strided"};
constexpr std::array<std::string_view, 3> lookups{"embedding", "index_select", "gather"};
constexpr std::array<std::string_view, 8> convolutions{
    "convolution",        "_convolution",         "cudnn_convolution", "mkldnn_convolution",
    "miopen_convolution", "_slow_conv2d_forward", "thnn_conv2d",       "_conv_depthwise2d"};
constexpr std::array<std::string_view, 10> heavy_words{"rnn",    "lstm",   "gru",    "attention", "convolution",
                                                       "conv2d", "conv3d", "linear", "scaled_mm", "grouped_mm"};

bool is_among(std::string_view word, const auto& words) {
  return std::ranges::find(words, word) != words.end();
}

class AtenWork {
 public:
  explicit AtenWork(const AtenCall& call) : call_(call) {}

  std::optional<double> flops() const {
    const std::string_view op = call_.op;
    if (op == "mm" || op == "bmm" || op == "matmul") return product(0, 1);
    if (op == "addmm" || op == "baddbmm" || op == "addbmm") return product(1, 2);
    if (op == "mv" || op == "dot") return has(0) ? std::optional(2 * count(0)) : std::nullopt;
    if (op == "addmv") return has(1) ? std::optional(2 * count(1)) : std::nullopt;
    if (is_among(op, convolutions)) return convolution(call_.result, 1, 0);
    if (op == "convolution_backward") return convolution_backward();
    const auto says = [&](std::string_view part) { return op.find(part) != std::string_view::npos; };
    if (says("scaled_dot_product") || says("_cudnn_attention")) return attention(2);
    if (says("_flash_attention") || says("_efficient_attention")) return attention(3);  // heads behind the rows
    const bool is_heavy =
        std::ranges::any_of(heavy_words, [&](std::string_view w) { return op.find(w) != std::string_view::npos; });
    return is_heavy ? std::nullopt : std::optional(0.0);
  }

 private:
  bool has(std::size_t k) const { return k < call_.arguments.size() && !call_.arguments[k].empty(); }
  const AtenShape& shape(std::size_t k) const { return call_.arguments[k]; }
  double count(std::size_t k) const { return static_cast<double>(element_count(shape(k))); }

  std::optional<double> product(std::size_t a, std::size_t b) const {
    if (!has(a) || !has(b)) return std::nullopt;
    const double columns = shape(b).size() < 2 ? 1 : static_cast<double>(shape(b).back());
    return 2 * count(a) * columns;
  }

  /// Each number of the result, of the input where it is transposed, meets one filter.
  std::optional<double> convolution(const AtenShape& result, std::size_t weight, std::size_t input) const {
    if (!has(weight) || !has(input)) return std::nullopt;
    const double filter = count(weight) / static_cast<double>(std::max<std::int64_t>(1, shape(weight).front()));
    return 2 * (call_.transposed ? count(input) : static_cast<double>(element_count(result))) * filter;
  }

  std::optional<double> convolution_backward() const {
    if (!has(0)) return std::nullopt;
    const std::optional<double> once = convolution(shape(0), 2, 1);
    return once ? std::optional(*once * call_.gradients) : std::nullopt;
  }

  /// Scores and values; in the backward scores again, then the gradients of values, scores, queries and keys.
  /// `rows_at`: of keys, from the end; tokens of several sequences in one row of three extents do not say their
  /// lengths.
  std::optional<double> attention(std::size_t rows_at) const {
    const bool is_backward = call_.op.find("backward") != std::string_view::npos;
    const std::size_t q = is_backward ? 1 : 0;
    for (const std::size_t k : {q, q + 1, q + 2}) {
      if (!has(k) || shape(k).size() < rows_at + 1) return std::nullopt;
    }
    const auto width = [&](std::size_t k) { return static_cast<double>(shape(k).back()); };
    const double pairs = count(q) / width(q) * static_cast<double>(shape(q + 1)[shape(q + 1).size() - rows_at]);
    return 2 * pairs * ((is_backward ? 3 : 1) * width(q + 1) + (is_backward ? 2 : 1) * width(q + 2));
  }

  const AtenCall& call_;
};

}  // namespace

std::int64_t element_count(const AtenShape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::optional<std::int64_t> element_bytes(std::string_view dtype) {
  const ElementType* const type = element_type(dtype);
  return type == nullptr ? std::nullopt : std::optional(type->bytes);
}

std::string_view long_dtype(std::string_view dtype) {
  const ElementType* const type = element_type(dtype);
  return type == nullptr ? dtype : type->full;
}

bool is_aten_view(std::string_view op) {
  return is_among(op, views);
}

bool reads_no_numbers(std::string_view op) {
  return is_among(op, allocations) || op.ends_with("_like") || op.starts_with("new_");
}

bool is_aten_lookup(std::string_view op) {
  return is_among(op, lookups);
}

std::int64_t aten_traffic(std::string_view op, std::span<const std::int64_t> read, std::int64_t written) {
  std::int64_t bytes = written;
  for (std::size_t k = 0; k < read.size(); ++k) {
    bytes += k == 0 && is_aten_lookup(op) ? std::min(read[k], written) : read[k];
  }
  return bytes;
}

std::optional<Flops> aten_flops(const AtenCall& call) {
  const std::optional<double> flops = AtenWork(call).flops();
  return flops ? std::optional(Flops{*flops}) : std::nullopt;
}

}  // namespace plimsoll
