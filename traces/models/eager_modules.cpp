#include "traces/models/eager_modules.h"

#include <utility>

#include "sim/io/input_error.h"

namespace plimsoll {
namespace {

double numbers_of(const Tensor& tensor) {
  double numbers = 1;
  for (const std::int64_t extent : tensor.shape) numbers *= static_cast<double>(extent);
  return numbers;
}

std::string number_type(std::string_view precision) {
  return std::string(precision == "amp" ? "bf16" : precision);
}

/// "a e" of "b s a! e!".
std::string behind_tokens(std::string axes) {
  std::erase(axes, '!');
  return axes.substr(std::string_view("b s ").size());
}

constexpr std::string_view wide_axes = "b s f";

}  // namespace

EagerModules::EagerModules(std::string model, std::string_view precision, FlopsPerSecond rate, std::uint32_t lora)
    : FormulaGraph(std::move(model), number_type(precision), rate), lora_(lora), is_mixed_(precision == "amp") {
  if (is_frozen()) freeze();
  narrow_ = {element_, precision == "tf32" ? "fp32" : number_type(precision)};
  wide_ = is_mixed_ ? fp32_ : narrow_;
  if (is_mixed_)
    note("precision", "parameters and sums in fp32, products of copies in bf16, as torch.autocast has them");
}

EagerModules::Type EagerModules::type_of(TensorId id) const {
  const Tensor& of = (*this)[id];
  return {of.dtype == "fp32" ? 4 : element_, of.dtype};
}

EagerModules::Made EagerModules::converted(TensorId x, const Type& type, const std::string& name,
                                           const std::string& axes) {
  if (type_of(x) == type) return {x, [](TensorId d) { return d; }};
  const TensorId out = like(name + ".out", x, type);
  const std::string loop = axes + " -> " + axes;
  forward(name, {"to", loop}, {x}, {out});
  return {out, [=, this](TensorId d) {
            const TensorId dx = gradient(x);
            backward(name, "", {"to", loop}, {d}, {dx});
            return dx;
          }};
}

EagerModules::Products EagerModules::product(const std::string& name, const Product& of, TensorId x, TensorId weight,
                                             std::optional<TensorId> bias) {
  const Products plain = plain_product(name, of, x, weight, bias);
  if (!is_adapted(name)) return plain;
  const AdapterAxes axes{behind_tokens(of.x), behind_tokens(of.made), behind_tokens(of.joined.value_or(of.made))};
  const Adapted own = adapted(plain.outs, x, name, axes);
  return {own.outs, [=, this](TensorId d) {
            const auto [dmade, added] = own.backward(d);
            const TensorId through = plain.backward(dmade);
            const Type type = type_of(through);
            const TensorId sum = tensor((*this)[through].name + " (adapter)", TensorKind::gradient,
                                        (*this)[through].shape, type.bytes, type.name);
            const std::string in = "b s " + axes.input;
            backward(name, " (adapter)", {"add", in + ", " + in + " -> " + in}, {through, added}, {sum});
            return sum;
          }};
}

EagerModules::Products EagerModules::plain_product(const std::string& name, const Product& of, TensorId x,
                                                   TensorId weight, std::optional<TensorId> bias) {
  const Made w = converted(weight, narrow_, name + ".weight.to", of.weight);
  const Made input = converted(x, narrow_, name + ".input.to", of.x);
  std::optional<Made> b;
  if (bias) b = converted(*bias, narrow_, name + ".bias.to", of.bias);
  std::vector<TensorId> outs;
  std::string outputs;
  for (const std::string& each : of.outputs) {
    outs.push_back(made_value(each, of.shape, narrow_));
    outputs += (outputs.empty() ? "" : ", ") + of.made;
  }
  Ids inputs{input.out, w.out};
  std::string read = of.x + ", " + of.weight;
  if (b) {
    inputs.push_back(b->out);
    read += ", " + of.bias;
  }
  forward(name, {"linear", read + " -> " + outputs, of.flops}, std::move(inputs), outs);
  return {outs, [=, this](TensorId d) {
            const std::string made = of.joined.value_or(of.made);
            const TensorId dx = gradient(input.out), dw = gradient(w.out);
            backward(name, " (input)", {"linear", made + ", " + of.weight + " -> " + of.x, of.flops}, {d, w.out}, {dx});
            backward(name, " (weight)", {"linear", of.x + ", " + made + " -> " + of.weight, of.flops}, {input.out, d},
                     {dw});
            if (b) {
              const TensorId db = gradient(b->out);
              backward(name, " (bias)", {"sum", made + " -> " + of.bias}, {d}, {db});
              b->backward(db);
            }
            const TensorId whole = input.backward(dx);
            w.backward(dw);
            return whole;
          }};
}

EagerModules::Made EagerModules::layer_norm(TensorId x, const std::string& name, std::int64_t width) {
  const TensorId scale = weight(name + ".scale", {width}), shift = weight(name + ".shift", {width});
  const Shape by_token{(*this)[x].shape[0], (*this)[x].shape[1]};
  const TensorId mean = made_value(name + ".mean", by_token, fp32_), root = made_value(name + ".root", by_token, fp32_);
  const TensorId out = like(name + ".out", x, type_of(x));
  forward(name, {"layer_norm", "b s w!, w, w -> b s w, b s, b s"}, {x, scale, shift}, {out, mean, root});
  return {
      out, [=, this](TensorId d) {
        const TensorId dx = gradient(x);
        if (is_frozen()) {
          backward(name, "", {"layer_norm", "b s w!, b s w, b s, b s, w -> b s w"}, {d, x, mean, root, scale}, {dx});
          return dx;
        }
        // One kernel for the input, one for the parameters; both read the gradient and the input.
        const double moved = 5 * static_cast<double>((*this)[x].bytes.count);
        backward(name, "", {.kind = "layer_norm", .loop = "b s w!, b s w, b s, b s, w -> b s w, w, w", .moved = moved},
                 {d, x, mean, root, scale}, {dx, gradient(scale), gradient(shift)});
        return dx;
      }};
}

void EagerModules::keep(TensorId logits) {
  // The op that reads them last is that of the first table.
  if (is_frozen()) throw InputError(model() + ": lora: not with logits=end");
  kept_logits_ = logits;
}

EagerModules::Made EagerModules::gelu_of_kernels(TensorId x, const std::string& name) {
  const std::string axes(wide_axes), loop = axes + " -> " + axes, both = axes + ", " + axes + " -> " + axes;
  const TensorId half = like(name + ".half.out", x, narrow_);
  forward(name + ".half", {"mul", loop}, {x}, {half});
  const Made base = converted(x, is_mixed_ ? fp32_ : narrow_, name + ".pow.to", axes);
  const Type type = type_of(base.out);
  const auto step = [&](const char* what, const char* kind, TensorId from) {
    const TensorId out = like(name + what + ".out", x, type);
    forward(name + what, {kind, loop}, {from}, {out});
    return out;
  };
  const TensorId cube = step(".pow", "pow", base.out), share = step(".share", "mul", cube);
  const TensorId sum = like(name + ".add.out", x, type);
  forward(name + ".add", {"add", both}, {x, share}, {sum});
  const TensorId scaled = step(".scale", "mul", sum), bent = step(".tanh", "tanh", scaled),
                 raised = step(".one", "add", bent);
  const TensorId out = like(name + ".mul.out", x, type);
  forward(name + ".mul", {"mul", both}, {half, raised}, {out});
  return {out, [=, this](TensorId d) {
            const auto back = [&](const char* of, const char* part, const char* kind, Ids inputs, TensorId to) {
              const std::string& reads = inputs.size() == 1 ? loop : both;
              backward(name + of, part, {kind, reads}, std::move(inputs), {to});
              return to;
            };
            const auto gradient_as = [&](const char* what, const Type& as) {
              return tensor("gradient of " + name + what, TensorKind::gradient, (*this)[x].shape, as.bytes, as.name);
            };
            const auto narrowed = [&](const char* of, const char* part, TensorId from) {
              return is_mixed_ ? back(of, part, "to", {from}, gradient_as(of, narrow_)) : from;
            };
            const TensorId draised = back(".mul", " (raised)", "mul", {d, half}, gradient(raised));
            const TensorId dhalf = narrowed(
                ".mul", " (to)", back(".mul", " (half)", "mul", {d, raised}, gradient_as(".half, as made", type)));
            const TensorId dscaled = back(".tanh", "", "tanh_backward", {draised, bent}, gradient(scaled));
            const TensorId dsum = back(".scale", "", "mul", {dscaled}, gradient(sum));
            const TensorId first = narrowed(".add", " (to)", dsum);
            const TensorId dcube = back(".share", "", "mul", {dsum}, gradient(cube));
            const TensorId square = back(".pow", " (square)", "pow", {base.out}, gradient_as(".pow, square", type));
            const TensorId thrice = back(".pow", " (thrice)", "mul", {square}, gradient_as(".pow, thrice", type));
            const TensorId dpow = back(".pow", "", "mul", {dcube, thrice}, gradient_as(".pow", type));
            const TensorId second = base.backward(dpow);
            const TensorId two = back(".half", " (sum of two)", "add", {first, second}, gradient(x));
            const TensorId third = back(".half", "", "mul", {dhalf}, gradient(x));
            return back(".half", " (sum)", "add", {two, third}, gradient(x));
          }};
}

EagerModules::Made EagerModules::dropout(TensorId x, const std::string& name, const std::string& axes, bool is_wanted) {
  if (!is_wanted) return {x, [](TensorId d) { return d; }};
  const TensorId out = like(name + ".out", x, type_of(x));
  const TensorId mask = tensor(name + ".mask", TensorKind::activation, (*this)[x].shape, 1, "bool");
  forward(name, {"dropout", axes + " -> " + axes + ", " + axes}, {x}, {out, mask});
  return {out, [=, this](TensorId d) {
            const TensorId dx = gradient(x);
            backward(name, "", {"dropout", axes + ", " + axes + " -> " + axes}, {d, mask}, {dx});
            return dx;
          }};
}

EagerModules::Made EagerModules::past_block(TensorId y, TensorId x, const std::string& name) {
  const TensorId out = like(name + ".out", x, type_of(x));
  forward(name, {"add", "b s w, b s w -> b s w"}, {y, x}, {out});
  return {out, [=, this](TensorId d) {
            if (type_of(y) == type_of(x)) return d;
            const TensorId dy = gradient(y);
            backward(name, "", {"to", "b s w -> b s w"}, {d}, {dy});
            return dy;
          }};
}

TensorId EagerModules::both_ways(TensorId through, TensorId past, const std::string& of) {
  const TensorId sum = tensor((*this)[through].name + " (both ways)", TensorKind::gradient, (*this)[through].shape,
                              type_of(through).bytes, type_of(through).name);
  backward(of, " (both ways)", {"add", "b s w, b s w -> b s w"}, {through, past}, {sum});
  return sum;
}

void EagerModules::loss_of_rows(TensorId logits, const std::string& rows, const Type& computed, bool keeps_to_the_end) {
  const Shape shape = (*this)[logits].shape, by_row(shape.begin(), shape.end() - 1);
  const double each = numbers_of((*this)[logits]);
  const auto width = static_cast<double>(computed.bytes), given_width = static_cast<double>(type_of(logits).bytes);
  const bool is_converted = !(type_of(logits) == computed);
  const std::string words = rows + " v";
  if (keeps_to_the_end) keep(logits);
  TensorId read = logits;
  if (is_converted) {
    read = made_value("logits in " + computed.name, shape, computed);
    forward("to " + computed.name, {"to", words + " -> " + words}, {logits}, {read});
  }
  const TensorId labels = tensor("labels", TensorKind::input, by_row, 8, "int64");
  const TensorId losses = made_value("losses", by_row, computed),
                 logs = made_value("log-probabilities", shape, computed);
  // Ranks that share out the vocabulary exchange the maximum, the sum and the label's logit of each row.
  forward("loss", {"cross_entropy", words + ", " + rows + " -> " + rows + ", " + words, 5 * each, "v 3"},
          {read, labels}, {losses, logs});
  end_stage([=, this](TensorId) {
    const TensorId d = gradient(read);
    // Of the label's entry a gradient of all entries is made first.
    const TensorId picked =
        tensor("gradient of log-probabilities", TensorKind::gradient, shape, computed.bytes, computed.name);
    backward("loss", " (label)", {"nll_loss", rows + " -> " + words}, {labels}, {picked});
    // Logits of the type are those that the caller keeps.
    Ids inputs{logs, picked};
    if (!is_converted) inputs.push_back(logits);
    const std::string two = words + ", " + words, of_both = two + (is_converted ? "" : ", " + words);
    backward("loss", "",
             {.kind = "cross_entropy", .loop = of_both + " -> " + words, .flops = 3 * each, .moved = 3 * width * each},
             std::move(inputs), {d});
    if (!is_converted) return d;
    const TensorId narrow = gradient(logits);
    backward("to " + computed.name, "",
             {.kind = "to", .loop = two + " -> " + words, .moved = (width + given_width) * each}, {d, logits},
             {narrow});
    return narrow;
  });
}

TensorId EagerModules::given_gradient(TensorId logits, bool keeps_to_the_end) {
  if (keeps_to_the_end) keep(logits);
  const Type type = type_of(logits);
  return tensor("gradient of logits", TensorKind::input, (*this)[logits].shape, type.bytes, type.name);
}

void EagerModules::token_table_backward(const std::string& of, TensorId tokens, TensorId d, TensorId table, bool adds) {
  const TensorId dtable = gradient(table);
  double moved = static_cast<double>((*this)[tokens].bytes.count + (*this)[d].bytes.count) +
                 static_cast<double>((*this)[dtable].bytes.count);
  if (adds) moved += 3 * static_cast<double>((*this)[dtable].bytes.count);  // a whole table, added to the other one
  Ids inputs{tokens, d};
  std::string loop = "b s, b s w";
  if (kept_logits_) {
    inputs.push_back(*kept_logits_);
    loop += (*this)[*kept_logits_].shape.size() == 3 ? ", b s v" : ", b -";
  }
  backward(of, " (weight)", {.kind = "embedding", .loop = loop + " -> v w", .moved = moved}, std::move(inputs),
           {dtable});
}

}  // namespace plimsoll
