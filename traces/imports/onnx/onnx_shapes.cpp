#include "traces/imports/onnx/onnx_shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "sim/io/input_error.h"

namespace plimsoll {
namespace {

using R = OnnxRule;

constexpr std::array onnx_kinds{
    OnnxKind{"Conv", "convolution", R::convolution},
    OnnxKind{"Gemm", "addmm", R::product},
    OnnxKind{"ConvTranspose", "convolution", R::transposed_convolution},
    OnnxKind{"MatMul", "mm", R::product},
    OnnxKind{"linear", "addmm", R::product},
    OnnxKind{"scaled_dot_product_attention", "_scaled_dot_product_flash_attention", R::attention},
    OnnxKind{"BatchNormalization", "native_batch_norm", R::batch_norm},
    OnnxKind{"InstanceNormalization", "native_batch_norm", R::instance_norm},
    OnnxKind{"LayerNormalization", "native_layer_norm", R::layer_norm},
    OnnxKind{"Softmax", "_softmax", R::softmax},
    OnnxKind{"LogSoftmax", "_log_softmax", R::softmax},
    OnnxKind{"MaxPool", "max_pool2d_with_indices", R::max_pool},
    OnnxKind{"AveragePool", "avg_pool2d", R::unary},
    OnnxKind{"GlobalAveragePool", "mean", R::mean},
    OnnxKind{"ReduceMean", "mean", R::mean},
    OnnxKind{"ReduceSum", "sum", R::mean},
    OnnxKind{"ReduceMax", "amax", R::extreme},
    OnnxKind{"ReduceMin", "amin", R::extreme},
    OnnxKind{"ArgMax", "argmax", R::extreme},
    OnnxKind{"Relu", "relu", R::unary},
    OnnxKind{"Gelu", "gelu", R::unary},
    OnnxKind{"silu", "silu", R::unary},
    OnnxKind{"rsqrt", "rsqrt", R::unary},
    OnnxKind{"Sigmoid", "sigmoid", R::unary},
    OnnxKind{"Tanh", "tanh", R::unary},
    OnnxKind{"Erf", "erf", R::unary},
    OnnxKind{"Sqrt", "sqrt", R::unary},
    OnnxKind{"Exp", "exp", R::unary},
    OnnxKind{"Log", "log", R::unary},
    OnnxKind{"Neg", "neg", R::unary},
    OnnxKind{"Reciprocal", "reciprocal", R::unary},
    OnnxKind{"LeakyRelu", "leaky_relu", R::unary},
    OnnxKind{"HardSigmoid", "hardsigmoid", R::unary},
    OnnxKind{"HardSwish", "hardswish", R::unary},
    OnnxKind{"Clip", "clamp", R::unary},
    OnnxKind{"Abs", "abs", R::unary},
    OnnxKind{"Sin", "sin", R::unary},
    OnnxKind{"Cos", "cos", R::unary},
    OnnxKind{"Elu", "elu", R::unary},
    OnnxKind{"Softplus", "softplus", R::unary},
    OnnxKind{"Mish", "mish", R::unary},
    OnnxKind{"Not", "logical_not", R::unary},
    OnnxKind{"IsNaN", "isnan", R::unary},
    OnnxKind{"Floor", "floor", R::unary},
    OnnxKind{"Sign", "sign", R::unary},
    OnnxKind{"CumSum", "cumsum", R::moved},
    OnnxKind{"Trilu", "triu", R::moved},
    OnnxKind{"Pad", "constant_pad_nd", R::moved},
    OnnxKind{"Tile", "repeat", R::moved},
    OnnxKind{"Resize", "upsample", R::moved},
    OnnxKind{"DepthToSpace", "pixel_shuffle", R::moved},
    OnnxKind{"SpaceToDepth", "pixel_unshuffle", R::moved},
    OnnxKind{"Add", "add", R::binary},
    OnnxKind{"Sub", "sub", R::binary},
    OnnxKind{"Mul", "mul", R::binary},
    OnnxKind{"Div", "div", R::binary},
    OnnxKind{"Pow", "pow", R::binary},
    OnnxKind{"Equal", "eq", R::binary},
    OnnxKind{"Greater", "gt", R::binary},
    OnnxKind{"Less", "lt", R::binary},
    OnnxKind{"LessOrEqual", "le", R::binary},
    OnnxKind{"GreaterOrEqual", "ge", R::binary},
    OnnxKind{"And", "logical_and", R::binary},
    OnnxKind{"Or", "logical_or", R::binary},
    OnnxKind{"Xor", "logical_xor", R::binary},
    OnnxKind{"Min", "minimum", R::binary},
    OnnxKind{"Max", "maximum", R::binary},
    OnnxKind{"Mod", "remainder", R::binary},
    OnnxKind{"Where", "where", R::binary},
    OnnxKind{"Expand", "expand", R::view},
    OnnxKind{"Dropout", "native_dropout", R::dropout},
    OnnxKind{"Cast", "_to_copy", R::conversion},
    OnnxKind{"Gather", "embedding", R::lookup},
    OnnxKind{"GatherElements", "gather", R::picked},
    OnnxKind{"ScatterND", "index_put", R::scattered},
    OnnxKind{"ScatterElements", "scatter", R::scattered},
    OnnxKind{"Concat", "cat", R::concatenation},
    OnnxKind{"Reshape", "view", R::view},
    OnnxKind{"Flatten", "view", R::view},
    OnnxKind{"Transpose", "permute", R::view},
    OnnxKind{"Squeeze", "squeeze", R::view},
    OnnxKind{"Unsqueeze", "unsqueeze", R::view},
    OnnxKind{"Identity", "alias", R::view},
    OnnxKind{"Slice", "slice", R::view},
    OnnxKind{"Split", "split", R::view},
    OnnxKind{"Constant", "", R::made_of_nothing},
    OnnxKind{"ConstantOfShape", "full", R::made_of_nothing},
    OnnxKind{"Shape", "", R::made_of_nothing},
    OnnxKind{"Range", "arange", R::made_of_nothing},
};

constexpr int dtype_float = 1, dtype_int64 = 7, dtype_bool = 9;

constexpr std::array<std::string_view, 8> boolean_ops{"Equal",          "Greater", "Less", "LessOrEqual",
                                                      "GreaterOrEqual", "And",     "Or",   "Xor"};

/// Of one node.
class ShapeRules {
 public:
  ShapeRules(const OnnxNode& node, const std::vector<const OnnxValue*>& inputs, const std::string& file)
      : node_(node), inputs_(inputs), file_(file) {}

  std::vector<OnnxValue> results() const {
    const std::string_view op = node_.op;
    const OnnxRule rule = onnx_kind(op)->rule;
    if (op == "Constant") return {constant()};
    if (op == "ConstantOfShape") return {filled(numbers(0))};
    if (op == "Range") return {range()};
    if (op == "Shape") return {shape()};
    if (op == "Cast") return {cast()};
    if (op == "Expand") return {like(0, broadcast(in(0).shape, as_shape(numbers(1))))};
    if (rule == R::binary) return {binary()};
    if (rule == R::product) return {product()};
    if (rule == R::attention) return {attention()};
    if (rule == R::transposed_convolution) return {transposed_convolution()};
    if (op == "GatherElements") return {like(0, in(1).shape)};
    if (op == "ArgMax") return {place_of_extreme()};
    if (op == "Pad") return {pad()};
    if (op == "Tile") return {tile()};
    if (op == "Resize") return {resize()};
    if (op == "DepthToSpace" || op == "SpaceToDepth") return {shuffled()};
    if (op == "Not" || op == "IsNaN") return {{in(0).shape, dtype_bool, std::nullopt}};
    if (rule == R::convolution) return {convolution()};
    if (rule == R::max_pool || op == "AveragePool") return {pool()};
    if (op == "GlobalAveragePool") return {global_pool()};
    if (rule == R::mean || rule == R::extreme) return {reduction()};
    if (op == "Gather") return {gather()};
    if (op == "Concat") return {concatenation()};
    if (op == "Reshape") return {reshape()};
    if (op == "Flatten") return {flatten()};
    if (op == "Transpose") return {transpose()};
    if (op == "Squeeze" || op == "Unsqueeze") return {squeeze()};
    if (op == "Slice") return {slice()};
    if (op == "Split") return split();
    OnnxValue same = in(0);
    if (rule != R::view && rule != R::dropout) same.numbers.reset();
    return {same};
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { refuse_onnx_node(file_, node_, what); }

  const OnnxValue& in(std::size_t k) const {
    if (k >= inputs_.size() || inputs_[k] == nullptr) fail(fmt::format("needs an input {}", k));
    return *inputs_[k];
  }
  bool has(std::size_t k) const { return k < inputs_.size() && inputs_[k] != nullptr; }

  const std::vector<std::int64_t>& numbers(std::size_t k) const {
    if (!in(k).numbers) fail(fmt::format("its input '{}' is not known before it runs", node_.inputs[k]));
    return *in(k).numbers;
  }
  const OnnxAttribute* attribute(const std::string& name) const {
    const auto place = node_.attributes.find(name);
    return place == node_.attributes.end() ? nullptr : &place->second;
  }
  std::int64_t number(const std::string& name, std::int64_t otherwise) const {
    const OnnxAttribute* const found = attribute(name);
    return found == nullptr ? otherwise : found->i;
  }
  std::vector<std::int64_t> list(const std::string& name, std::vector<std::int64_t> otherwise) const {
    const OnnxAttribute* const found = attribute(name);
    return found == nullptr || found->ints.empty() ? std::move(otherwise) : found->ints;
  }
  std::size_t axis_of(std::int64_t axis, std::size_t rank) const {
    const auto ranks = static_cast<std::int64_t>(rank);
    if (axis < -ranks || axis >= ranks) fail(fmt::format("no axis {} in {} dimensions", axis, rank));
    return static_cast<std::size_t>(axis < 0 ? axis + ranks : axis);
  }
  OnnxValue like(std::size_t k, AtenShape shape) const { return {std::move(shape), in(k).dtype, std::nullopt}; }
  AtenShape as_shape(const std::vector<std::int64_t>& numbers) const {
    for (const std::int64_t n : numbers) {
      if (n < 0 || n > (std::int64_t{1} << 40)) fail(fmt::format("an extent of {}", n));
    }
    return numbers;
  }

  OnnxValue constant() const {
    const OnnxAttribute* const value = attribute("value");
    if (value != nullptr && value->tensor) {
      return {value->tensor->dims, value->tensor->dtype, value->tensor->numbers, value->tensor->scalar};
    }
    if (const OnnxAttribute* one = attribute("value_float")) return {{}, dtype_float, std::nullopt, one->f};
    if (const OnnxAttribute* one = attribute("value_int")) return {{}, dtype_int64, std::vector{one->i}};
    if (const OnnxAttribute* some = attribute("value_ints")) {
      return {{static_cast<std::int64_t>(some->ints.size())}, dtype_int64, some->ints};
    }
    return {{}, dtype_float, std::nullopt};
  }

  OnnxValue filled(const std::vector<std::int64_t>& extents) const {
    const OnnxAttribute* const value = attribute("value");
    const bool is_known =
        value != nullptr && value->tensor && value->tensor->numbers && !value->tensor->numbers->empty();
    OnnxValue made{as_shape(extents), value != nullptr && value->tensor ? value->tensor->dtype : dtype_float, {}};
    constexpr double most = 4096;
    double count = 1;
    for (const std::int64_t n : made.shape) count *= static_cast<double>(n);
    if (is_known && count <= most) {
      made.numbers = std::vector(static_cast<std::size_t>(element_count(made.shape)), value->tensor->numbers->front());
    }
    return made;
  }

  OnnxValue range() const {
    for (const std::size_t k : {0, 1, 2}) {
      if (numbers(k).size() != 1) fail("needs three numbers");
    }
    const std::int64_t from = numbers(0)[0], to = numbers(1)[0], step = numbers(2)[0];
    constexpr std::int64_t most = std::int64_t{1} << 40;
    if (step == 0 || std::max({from, to, step}) > most || std::min({from, to, step}) < -most) fail("absurd numbers");
    const std::int64_t count = std::max<std::int64_t>(0, (to - from + step - (step > 0 ? 1 : -1)) / step);
    return {{count}, in(0).dtype, std::nullopt};
  }

  OnnxValue shape() const {
    const AtenShape& of = in(0).shape;
    return {{static_cast<std::int64_t>(of.size())}, dtype_int64, of};
  }

  OnnxValue cast() const {
    OnnxValue made = in(0);
    made.dtype = static_cast<int>(number("to", dtype_float));
    return made;
  }

  AtenShape broadcast(const AtenShape& a, const AtenShape& b) const {
    AtenShape made(std::max(a.size(), b.size()), 1);
    for (std::size_t k = 0; k < made.size(); ++k) {
      const std::int64_t x = k < a.size() ? a[a.size() - 1 - k] : 1, y = k < b.size() ? b[b.size() - 1 - k] : 1;
      if (x != y && x != 1 && y != 1) fail(fmt::format("extents {} and {} do not fit", x, y));
      made[made.size() - 1 - k] = x == 1 ? y : x;
    }
    return made;
  }

  OnnxValue binary() const {
    OnnxValue made = like(node_.op == "Where" ? 1 : 0, broadcast(in(0).shape, in(1).shape));
    if (node_.op == "Where") made.shape = broadcast(made.shape, in(2).shape);
    if (std::ranges::find(boolean_ops, node_.op) != boolean_ops.end()) made.dtype = dtype_bool;
    if (in(0).numbers && in(1).numbers && (node_.op != "Where" || in(2).numbers)) made.numbers = computed(made);
    return made;
  }

  std::optional<std::vector<std::int64_t>> computed(const OnnxValue& made) const {
    constexpr std::int64_t most = 4096;
    if (element_count(made.shape) > most || made.shape.size() > 1) return std::nullopt;
    std::vector<std::int64_t> values;
    const auto at = [&](std::size_t k, std::size_t i) { return in(k).numbers->at(in(k).numbers->size() == 1 ? 0 : i); };
    for (std::size_t i = 0; i < static_cast<std::size_t>(element_count(made.shape)); ++i) {
      const std::int64_t a = at(0, i), b = at(1, i);
      constexpr std::int64_t large = std::int64_t{1} << 31;
      const bool is_large = std::max(a, b) > large || std::min(a, b) < -large;
      if (is_large || (b == 0 && (node_.op == "Div" || node_.op == "Mod"))) return std::nullopt;
      if (node_.op == "Add") values.push_back(a + b);
      if (node_.op == "Sub") values.push_back(a - b);
      if (node_.op == "Mul") values.push_back(a * b);
      if (node_.op == "Div") values.push_back(a / b);
      if (node_.op == "Mod") values.push_back(a % b);
      if (node_.op == "Equal") values.push_back(a == b ? 1 : 0);
      if (node_.op == "Greater") values.push_back(a > b ? 1 : 0);
      if (node_.op == "Less") values.push_back(a < b ? 1 : 0);
      if (node_.op == "Where") values.push_back(a != 0 ? b : at(2, i));
      if (values.size() != i + 1) return std::nullopt;
    }
    return values;
  }

  OnnxValue product() const {
    AtenShape a = in(0).shape, b = in(1).shape;
    if (node_.op == "Gemm") {
      if (a.size() != 2 || b.size() != 2) fail("needs two matrices");
      if (number("transA", 0) != 0) std::swap(a[0], a[1]);
      if (number("transB", 0) != 0) std::swap(b[0], b[1]);
    }
    if (a.size() < 2 || b.size() < 2) fail("products with vectors have no rule here");
    const std::int64_t rows = a[a.size() - 2], inner = a.back(), columns = b.back();
    if (inner != b[b.size() - 2]) fail(fmt::format("inner extents {} and {} differ", inner, b[b.size() - 2]));
    a.resize(a.size() - 2);
    b.resize(b.size() - 2);
    AtenShape made = broadcast(a, b);
    made.insert(made.end(), {rows, columns});
    return like(0, std::move(made));
  }

  OnnxValue attention() const {
    const AtenShape &query = in(0).shape, &key = in(1).shape, &value = in(2).shape;  // the key's axes are swapped
    if (query.size() < 3 || key.size() != query.size() || value.size() != query.size()) fail("needs heads of one rank");
    const std::size_t last = query.size() - 1;
    if (query[last] != key[last - 1] || key[last] != value[last - 1]) fail("heads whose extents do not fit");
    AtenShape made = query;
    made[last] = value[last];
    return like(0, std::move(made));
  }

  OnnxValue place_of_extreme() const {
    const AtenShape& of = in(0).shape;
    const std::size_t axis = axis_of(number("axis", 0), of.size());
    AtenShape made = of;
    made[axis] = 1;
    if (number("keepdims", 1) == 0) made.erase(made.begin() + static_cast<std::ptrdiff_t>(axis));
    return {made, dtype_int64, std::nullopt};
  }

  OnnxValue pad() const {
    const std::vector<std::int64_t> added = has(1) ? numbers(1) : list("pads", {});
    std::vector<std::int64_t> axes = has(3) ? numbers(3) : std::vector<std::int64_t>{};
    AtenShape made = in(0).shape;
    if (axes.empty()) {
      axes.resize(made.size());
      std::iota(axes.begin(), axes.end(), 0);
    }
    if (added.size() != 2 * axes.size()) fail("pads of another number of axes");
    for (std::size_t k = 0; k < axes.size(); ++k) {
      made[axis_of(axes[k], made.size())] += clamped(added[k]) + clamped(added[k + axes.size()]);
    }
    return like(0, as_shape(made));
  }

  std::int64_t clamped(std::int64_t n) const {
    constexpr std::int64_t most = std::int64_t{1} << 40;
    if (n < -most || n > most) fail(fmt::format("an extent of {}", n));
    return n;
  }

  OnnxValue tile() const {
    AtenShape made = in(0).shape;
    if (numbers(1).size() != made.size()) fail("repeats of another number of axes");
    for (std::size_t k = 0; k < made.size(); ++k) made[k] = times(made[k], numbers(1)[k]);
    return like(0, as_shape(made));
  }

  std::int64_t times(std::int64_t a, std::int64_t b) const {
    constexpr double most = 1e12;
    if (static_cast<double>(a) * static_cast<double>(b) > most || b < 0) fail(fmt::format("{} times {}", a, b));
    return a * b;
  }

  OnnxValue resize() const {
    if (has(3)) {
      if (numbers(3).size() != in(0).shape.size()) fail("sizes of another number of axes");
      return like(0, as_shape(numbers(3)));
    }
    fail("scales of floats have no rule here, expected sizes");
  }

  OnnxValue shuffled() const {
    AtenShape made = in(0).shape;
    const std::int64_t block = number("blocksize", 0);
    if (made.size() != 4 || block < 1 || block > 4096) fail("needs four axes and a block");
    const bool widens = node_.op == "DepthToSpace";
    if (widens ? made[1] % (block * block) != 0 : made[2] % block != 0 || made[3] % block != 0)
      fail(fmt::format("extents that blocks of {} do not divide", block));
    made[1] = widens ? made[1] / (block * block) : times(made[1], block * block);
    for (const std::size_t k : {2, 3}) made[k] = widens ? times(made[k], block) : made[k] / block;
    return like(0, std::move(made));
  }

  OnnxValue transposed_convolution() const {
    const AtenShape &of = in(0).shape, &filter = in(1).shape;
    if (filter.size() != of.size() || filter.size() < 3) fail("weights of other dimensions than the input");
    const std::size_t axes = of.size() - 2;
    const auto strides = list("strides", std::vector<std::int64_t>(axes, 1));
    const auto dilations = list("dilations", std::vector<std::int64_t>(axes, 1));
    const auto pads = list("pads", std::vector<std::int64_t>(2 * axes, 0));
    const auto more = list("output_padding", std::vector<std::int64_t>(axes, 0));
    if (strides.size() != axes || dilations.size() != axes || pads.size() != 2 * axes || more.size() != axes)
      fail("attributes of another number of axes");
    AtenShape made = of;
    made[1] = times(filter[1], number("group", 1));
    for (std::size_t k = 0; k < axes; ++k) {
      made[k + 2] = times(of[k + 2] - 1, clamped(strides[k])) + times(filter[k + 2] - 1, clamped(dilations[k])) + 1 +
                    clamped(more[k]) - clamped(pads[k]) - clamped(pads[k + axes]);
    }
    return like(0, as_shape(made));
  }

  /// Extents along the pictures' axes: of a window, its stride, what is added at both ends.
  std::int64_t windows(std::size_t axis, std::int64_t extent, const std::vector<std::int64_t>& kernel,
                       std::size_t axes) const {
    const auto strides = list("strides", std::vector<std::int64_t>(axes, 1));
    const auto dilations = list("dilations", std::vector<std::int64_t>(axes, 1));
    const auto pads = list("pads", std::vector<std::int64_t>(2 * axes, 0));
    if (kernel.size() != axes || strides.size() != axes || dilations.size() != axes || pads.size() != 2 * axes) {
      fail("attributes of another number of axes");
    }
    const OnnxAttribute* const padding = attribute("auto_pad");
    if (padding != nullptr && !padding->s.empty() && padding->s != "NOTSET")
      fail(fmt::format("auto_pad {} has no rule here", padding->s));
    if (strides[axis] < 1 || dilations[axis] < 1 || kernel[axis] < 1) fail("a stride, dilation or window below 1");
    constexpr std::int64_t most = std::int64_t{1} << 31;
    for (const std::int64_t n : {strides[axis], dilations[axis], kernel[axis], pads[axis], pads[axis + axes]}) {
      if (n < 0 || n > most) fail(fmt::format("a window with {}", n));
    }
    const std::int64_t room = extent + pads[axis] + pads[axis + axes] - dilations[axis] * (kernel[axis] - 1) - 1;
    const std::int64_t rounding = number("ceil_mode", 0) != 0 ? strides[axis] - 1 : 0;
    if (room < 0) fail("windows larger than the picture");
    return (room + rounding) / strides[axis] + 1;
  }

  OnnxValue windowed(std::int64_t channels, const std::vector<std::int64_t>& kernel) const {
    AtenShape made = in(0).shape;
    if (made.size() < 3) fail("needs samples, channels and axes of pictures");
    made[1] = channels;
    const std::size_t axes = made.size() - 2;
    for (std::size_t k = 0; k < axes; ++k) made[k + 2] = windows(k, in(0).shape[k + 2], kernel, axes);
    return like(0, std::move(made));
  }

  OnnxValue convolution() const {
    const AtenShape& filter = in(1).shape;
    if (filter.size() != in(0).shape.size() || filter.size() < 3) fail("weights of other dimensions than the input");
    return windowed(filter[0], {filter.begin() + 2, filter.end()});
  }
  OnnxValue pool() const { return windowed(in(0).shape.size() > 1 ? in(0).shape[1] : 0, list("kernel_shape", {})); }

  OnnxValue global_pool() const {
    AtenShape made = in(0).shape;
    for (std::size_t k = 2; k < made.size(); ++k) made[k] = 1;
    return like(0, std::move(made));
  }

  OnnxValue reduction() const {
    const AtenShape& of = in(0).shape;
    std::vector<std::int64_t> axes = has(1) ? numbers(1) : list("axes", {});
    if (axes.empty()) {
      axes.resize(of.size());
      std::iota(axes.begin(), axes.end(), 0);
    }
    std::vector<bool> is_gone(of.size(), false);
    for (const std::int64_t axis : axes) is_gone[axis_of(axis, of.size())] = true;
    AtenShape made;
    for (std::size_t k = 0; k < of.size(); ++k) {
      if (!is_gone[k]) made.push_back(of[k]);
      if (is_gone[k] && number("keepdims", 1) != 0) made.push_back(1);
    }
    return like(0, std::move(made));
  }

  OnnxValue gather() const {
    const AtenShape& of = in(0).shape;
    const std::size_t axis = axis_of(number("axis", 0), of.size());
    AtenShape made(of.begin(), of.begin() + static_cast<std::ptrdiff_t>(axis));
    made.insert(made.end(), in(1).shape.begin(), in(1).shape.end());
    made.insert(made.end(), of.begin() + static_cast<std::ptrdiff_t>(axis) + 1, of.end());
    OnnxValue value = like(0, std::move(made));
    if (!in(0).numbers || !in(1).numbers) return value;
    std::vector<std::int64_t> picked;
    for (const std::int64_t k : *in(1).numbers) picked.push_back(in(0).numbers->at(axis_of(k, in(0).numbers->size())));
    value.numbers = std::move(picked);
    return value;
  }

  OnnxValue concatenation() const {
    OnnxValue made = in(0);
    const std::size_t axis = axis_of(number("axis", 0), made.shape.size());
    for (std::size_t k = 1; k < inputs_.size(); ++k) {
      if (in(k).shape.size() != made.shape.size()) fail("parts of other dimensions");
      made.shape[axis] += in(k).shape[axis];
      if (made.numbers && in(k).numbers) {
        made.numbers->insert(made.numbers->end(), in(k).numbers->begin(), in(k).numbers->end());
      } else {
        made.numbers.reset();
      }
    }
    return made;
  }

  OnnxValue reshape() const {
    std::vector<std::int64_t> to = numbers(1);
    const std::int64_t count = element_count(in(0).shape);
    std::int64_t known = 1;
    std::optional<std::size_t> open;
    for (std::size_t k = 0; k < to.size(); ++k) {
      if (to[k] == 0 && number("allowzero", 0) == 0) {
        if (k >= in(0).shape.size()) fail("a 0 in its shape with nothing there to copy");
        to[k] = in(0).shape[k];
      }
      if (to[k] == -1 && open) fail("two extents of -1");
      if (to[k] == -1) open = k;
      if (to[k] < -1 || to[k] > (std::int64_t{1} << 40)) fail(fmt::format("an extent of {}", to[k]));
      if (to[k] != -1) known *= std::max<std::int64_t>(to[k], 1);
      if (known > (std::int64_t{1} << 50)) fail("absurdly large");
    }
    if (open) to[*open] = count / known;
    if (element_count(to) != count) fail(fmt::format("{} numbers do not fit {}", count, element_count(to)));
    OnnxValue made = like(0, std::move(to));
    made.numbers = in(0).numbers;
    return made;
  }

  OnnxValue flatten() const {
    const AtenShape& of = in(0).shape;
    const std::int64_t axis = number("axis", 1);
    const std::size_t at = axis == static_cast<std::int64_t>(of.size()) ? of.size() : axis_of(axis, of.size());
    const auto middle = of.begin() + static_cast<std::ptrdiff_t>(at);
    return like(0, {element_count({of.begin(), middle}), element_count({middle, of.end()})});
  }

  /// Those of a value whose axis becomes `length` long, from the places that `from` gives.
  template <class From>
  static std::vector<std::int64_t> rearranged(const OnnxValue& of, std::size_t axis, std::int64_t length,
                                              const From& from) {
    const std::int64_t outer = element_count({of.shape.begin(), of.shape.begin() + static_cast<std::ptrdiff_t>(axis)});
    const std::int64_t inner =
        element_count({of.shape.begin() + static_cast<std::ptrdiff_t>(axis) + 1, of.shape.end()});
    std::vector<std::int64_t> made;
    for (std::int64_t o = 0; o < outer; ++o) {
      for (std::int64_t i = 0; i < length; ++i) {
        for (std::int64_t k = 0; k < inner; ++k)
          made.push_back(of.numbers->at(static_cast<std::size_t>((o * of.shape[axis] + from(i)) * inner + k)));
      }
    }
    return made;
  }

  OnnxValue transpose() const {
    const AtenShape& of = in(0).shape;
    std::vector<std::int64_t> back(of.size());
    for (std::size_t k = 0; k < back.size(); ++k) back[k] = static_cast<std::int64_t>(of.size() - 1 - k);
    const std::vector<std::int64_t> order = list("perm", back);
    if (order.size() != of.size()) fail("an order of another number of axes");
    AtenShape made;
    for (const std::int64_t axis : order) made.push_back(of[axis_of(axis, of.size())]);
    if (element_count(made) != element_count(of)) fail("an order with an axis twice");
    OnnxValue value = like(0, std::move(made));
    if (in(0).numbers && of.size() == 2 && order[0] == 1) {  // a table of pads, say
      value.numbers.emplace();
      for (std::int64_t column = 0; column < of[1]; ++column) {
        for (std::int64_t row = 0; row < of[0]; ++row)
          value.numbers->push_back(in(0).numbers->at(static_cast<std::size_t>(row * of[1] + column)));
      }
    }
    return value;
  }

  OnnxValue squeeze() const {
    const bool adds = node_.op == "Unsqueeze";
    const std::vector<std::int64_t> axes = has(1) ? numbers(1) : list("axes", {});
    AtenShape made = in(0).shape;
    if (adds) {
      std::vector<std::size_t> places;
      for (const std::int64_t axis : axes) places.push_back(axis_of(axis, made.size() + axes.size()));
      std::ranges::sort(places);
      for (const std::size_t place : places) {
        made.insert(made.begin() + static_cast<std::ptrdiff_t>(std::min(place, made.size())), 1);
      }
    } else {
      std::vector<bool> is_gone(made.size(), axes.empty());
      for (const std::int64_t axis : axes) is_gone[axis_of(axis, made.size())] = true;
      AtenShape left;
      for (std::size_t k = 0; k < made.size(); ++k) {
        if (!is_gone[k] || made[k] != 1) left.push_back(made[k]);
      }
      made = std::move(left);
    }
    OnnxValue value = like(0, std::move(made));
    value.numbers = in(0).numbers;
    return value;
  }

  OnnxValue slice() const {
    OnnxValue made = in(0);
    const std::vector<std::int64_t> from = has(1) ? numbers(1) : list("starts", {}),
                                    to = has(2) ? numbers(2) : list("ends", {});
    std::vector<std::int64_t> axes = has(3) ? numbers(3) : list("axes", {});
    const std::vector<std::int64_t> steps = has(4) ? numbers(4) : std::vector<std::int64_t>(from.size(), 1);
    if (axes.empty()) {
      axes.resize(from.size());
      std::iota(axes.begin(), axes.end(), 0);
    }
    if (to.size() != from.size() || axes.size() != from.size() || steps.size() != from.size())
      fail("starts and ends of other numbers");
    for (std::size_t k = 0; k < from.size(); ++k) {
      std::int64_t& extent = made.shape[axis_of(axes[k], made.shape.size())];
      const std::int64_t step = clamped(steps[k]);
      if (step == 0) fail("a step of 0");
      const std::int64_t low = step > 0 ? 0 : -1, high = step > 0 ? extent : extent - 1;
      const auto within = [&](std::int64_t n) {
        n = std::clamp(n, -extent - 1, extent);
        return std::clamp<std::int64_t>(n < 0 ? n + extent : n, low, high);
      };
      const std::int64_t first = within(from[k]), last = within(to[k]);
      const std::int64_t span = step > 0 ? last - first : first - last;
      const std::int64_t length = span > 0 ? (span - 1) / std::abs(step) + 1 : 0;
      if (made.numbers) {
        made.numbers = rearranged(made, axis_of(axes[k], made.shape.size()), length,
                                  [&](std::int64_t i) { return first + i * step; });
      }
      extent = length;
    }
    return made;
  }

  std::vector<OnnxValue> split() const {
    const AtenShape& of = in(0).shape;
    const std::size_t axis = axis_of(number("axis", 0), of.size()), parts = node_.outputs.size();
    std::vector<std::int64_t> sizes = has(1) ? numbers(1) : list("split", {});
    if (sizes.empty()) {
      const std::int64_t each = (of[axis] + static_cast<std::int64_t>(parts) - 1) / static_cast<std::int64_t>(parts);
      for (std::int64_t left = of[axis]; sizes.size() < parts; left -= each)
        sizes.push_back(std::clamp<std::int64_t>(left, 0, each));
    }
    if (sizes.size() != parts) fail("sizes of another number of parts");
    std::vector<OnnxValue> made;
    for (const std::int64_t size : as_shape(sizes)) {
      made.push_back(like(0, of));
      made.back().shape[axis] = size;
    }
    return made;
  }

  const OnnxNode& node_;
  const std::vector<const OnnxValue*>& inputs_;
  const std::string& file_;
};

}  // namespace

const OnnxKind* onnx_kind(std::string_view op) {
  const auto found = std::ranges::find(onnx_kinds, op, &OnnxKind::op);
  return found == onnx_kinds.end() ? nullptr : &*found;
}

std::size_t onnx_settings_from(std::string_view op) {
  if (op == "BatchNormalization") return 3;
  const bool has_settings = op == "Dropout" || op == "Clip" || op == "Pad" || op == "Resize" || op == "Pow";
  return has_settings ? 1 : ~std::size_t{0};
}

void refuse_onnx_node(const std::string& file, const OnnxNode& node, const std::string& what) {
  throw InputError(located(file, {}, fmt::format("{} '{}'", node.op, node.name), what));
}

std::vector<OnnxValue> onnx_results(const OnnxNode& node, const std::vector<const OnnxValue*>& inputs,
                                    const std::string& file) {
  return ShapeRules(node, inputs, file).results();
}

std::optional<std::string_view> onnx_dtype(int dtype) {
  switch (dtype) {
    case 1:
      return "float32";
    case 2:
      return "uint8";
    case 3:
      return "int8";
    case 6:
      return "int32";
    case 7:
      return "int64";
    case 9:
      return "bool";
    case 10:
      return "float16";
    case 11:
      return "float64";
    case 16:
      return "bfloat16";
    default:
      return std::nullopt;
  }
}

}  // namespace plimsoll
