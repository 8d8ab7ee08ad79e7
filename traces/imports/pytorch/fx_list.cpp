// Lists of the operators of a torch.fx graph (forward only) with measured times, as NeuSight's authors publish them
// (sitar-lab/NeuSight, 2024): one line an op with the time of its forward, of its backward, and of adding the gradient
// to the one that exists. An op that launches no kernel shows what events take, which is subtracted from all others.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <unordered_map>

#include "sim/io/json/json_cursor.h"
#include "sim/io/quantity.h"
#include "traces/imports/pytorch/aten_work.h"
#include "traces/imports/pytorch/fx_graph.h"
#include "traces/trace_parts.h"

namespace plimsoll {
namespace {

constexpr std::array<std::string_view, 10> list_columns{"name",         "kind",         "inputs",   "input_shapes",
                                                        "output_shape", "dtype",        "in_layer", "forward_us",
                                                        "backward_us",  "accumulate_us"};

struct ListedRow {
  std::string name, kind;
  std::vector<std::uint32_t> inputs;  ///< rows
  AtenShape shape;
  std::string dtype;  ///< empty: no tensor
  bool in_layer = false;
  double forward = 0, backward = 0, accumulate = 0;  ///< us
  std::uint32_t line = 0;

  bool is_float() const { return dtype.find("float") != std::string::npos; }
  bool is_given() const { return inputs.empty() && forward == 0; }
};

class FxListReader {
 public:
  FxListReader(std::string_view text, Complaints& complaints) : rest_(text), complaints_(complaints) {}

  std::vector<ListedRow> rows() && {
    next_line();
    std::vector<std::string_view> head = cells();
    if (!std::ranges::equal(head, list_columns)) {
      complaints_.add({1, 1}, "", fmt::format("expected the columns {}", fmt::join(list_columns, ",")));
      complaints_.throw_now();
    }
    while (next_line()) {
      if (!line_.empty()) row();
    }
    if (rows_.empty()) complaints_.add({number_, 1}, "", "expected at least one op");
    complaints_.throw_if_any();
    return std::move(rows_);
  }

 private:
  bool next_line() {
    if (rest_.empty()) return false;
    line_ = rest_.substr(0, rest_.find('\n'));
    rest_.remove_prefix(std::min(rest_.size(), line_.size() + 1));
    if (line_.ends_with('\r')) line_.remove_suffix(1);
    ++number_;
    return true;
  }

  std::vector<std::string_view> cells() const {
    std::vector<std::string_view> made;
    std::string_view line = line_;
    for (;;) {
      const bool is_quoted = line.starts_with('"');
      const std::size_t end = is_quoted ? line.find('"', 1) : line.find(',');
      made.push_back(is_quoted ? line.substr(1, end == std::string_view::npos ? end : end - 1) : line.substr(0, end));
      const std::size_t comma = is_quoted && end != std::string_view::npos ? line.find(',', end) : end;
      if (comma == std::string_view::npos) return made;
      line.remove_prefix(comma + 1);
    }
  }

  void complain(std::size_t column, std::string_view what) {
    complaints_.add({number_, 1}, list_columns.at(column), what);
  }

  void row() {
    const std::vector<std::string_view> cell = cells();
    if (cell.size() != list_columns.size()) {
      complaints_.add({number_, 1}, "", fmt::format("expected {} columns, found {}", list_columns.size(), cell.size()));
      return;
    }
    ListedRow row{
        .name = std::string(cell[0]), .kind = std::string(cell[1]), .dtype = std::string(cell[5]), .line = number_};
    std::string_view names = cell[2];
    while (!names.empty()) {
      const std::string_view name = names.substr(0, names.find(' '));
      names.remove_prefix(std::min(names.size(), name.size() + 1));
      if (name.empty()) continue;
      const auto known = numbers_.find(std::string(name));
      if (known == numbers_.end()) complain(2, fmt::format("no such op before this one: '{}'", name));
      if (known != numbers_.end()) row.inputs.push_back(known->second);
    }
    row.shape = shape(cell[4]);
    if (!row.dtype.empty() && !element_bytes(row.dtype))
      complain(5, fmt::format("unknown type of numbers '{}'", row.dtype));
    if (cell[6] != "0" && cell[6] != "1") complain(6, fmt::format("expected 0 or 1, found '{}'", cell[6]));
    row.in_layer = cell[6] == "1";
    row.forward = microseconds(cell[7], 7);
    row.backward = microseconds(cell[8], 8);
    row.accumulate = microseconds(cell[9], 9);
    if (!numbers_.emplace(row.name, static_cast<std::uint32_t>(rows_.size())).second) {
      complain(0, fmt::format("'{}' a second time", row.name));
    }
    rows_.push_back(std::move(row));
  }

  AtenShape shape(std::string_view text) {
    AtenShape made;
    std::string_view rest = text;
    if (!rest.starts_with('(') || !rest.ends_with(')')) {
      complain(4, fmt::format("expected a shape such as (8,16), found '{}'", text));
      return made;
    }
    rest = rest.substr(1, rest.size() - 2);
    while (!rest.empty()) {
      constexpr std::int64_t most = std::int64_t{1} << 30;
      const std::string_view part = rest.substr(0, rest.find(','));
      rest.remove_prefix(std::min(rest.size(), part.size() + 1));
      std::int64_t value = 0;
      const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
      const bool fine = error == std::errc() && end == part.data() + part.size() && value >= 0 && value <= most;
      if (!fine) complain(4, fmt::format("expected whole numbers up to {}, found '{}'", most, part));
      made.push_back(fine ? value : 0);
    }
    double numbers = 1;
    for (const std::int64_t n : made) numbers *= static_cast<double>(n);
    if (numbers > static_cast<double>(std::int64_t{1} << 40)) {
      complain(4, "absurdly large");
      made.clear();
    }
    return made;
  }

  double microseconds(std::string_view text, std::size_t column) {
    constexpr double most = 1e9;
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool fine = error == std::errc() && end == text.data() + text.size() && value >= 0 && value <= most;
    if (!fine) complain(column, fmt::format("expected microseconds from 0 to {:.0f}, found '{}'", most, text));
    return fine ? value : 0;
  }

  std::string_view rest_, line_;
  std::uint32_t number_ = 0;
  Complaints& complaints_;
  std::vector<ListedRow> rows_;
  std::unordered_map<std::string, std::uint32_t> numbers_;
};

constexpr double listed_microsecond = 1e-6;

/// What events take where no kernel runs: the middle of the ops that make no tensor.
double floor_of(const std::vector<ListedRow>& rows) {
  std::vector<double> times;
  for (const ListedRow& row : rows) {
    if (row.dtype.empty() && row.forward > 0) times.push_back(row.forward);
  }
  if (times.empty()) return 0;
  std::ranges::sort(times);
  return times[times.size() / 2];
}

/// The layer written out as often as it comes: each one reads what the one before it made.
class LayerRepeater {
 public:
  explicit LayerRepeater(const std::vector<ListedRow>& rows) : rows_(rows) {}

  /// The row before the layer and the row in it that are the same value, of one layer and the next.
  std::optional<std::pair<std::uint32_t, std::uint32_t>> boundary() const {
    std::optional<std::uint32_t> made;
    for (const ListedRow& row : rows_) {
      if (row.in_layer) continue;
      for (const std::uint32_t k : row.inputs) {
        if (rows_[k].in_layer && rows_[k].is_float() && !made) made = k;
      }
    }
    std::optional<std::uint32_t> read;
    for (const ListedRow& row : rows_) {
      if (!row.in_layer || !made) continue;
      for (const std::uint32_t k : row.inputs) {
        const bool fits = !rows_[k].in_layer && !rows_[k].is_given() && rows_[k].is_float() &&
                          element_count(rows_[k].shape) == element_count(rows_[*made].shape);
        if (fits && (!read || k > *read)) read = k;
      }
    }
    if (!read) return std::nullopt;
    return std::pair(*read, *made);
  }

  std::vector<ListedRow> repeated(std::int64_t layers, std::pair<std::uint32_t, std::uint32_t> boundary) {
    const auto [read, made] = boundary;
    std::vector<ListedRow> out;
    std::vector<std::uint32_t> place(rows_.size());
    const auto is_layer = [](const ListedRow& row) { return row.in_layer; };
    const auto first = static_cast<std::uint32_t>(std::ranges::find_if(rows_, is_layer) - rows_.begin());
    const auto add = [&](std::uint32_t k, std::string prefix) {
      ListedRow row = rows_[k];
      row.name = prefix + row.name;
      for (std::uint32_t& input : row.inputs) input = place[input];
      place[k] = static_cast<std::uint32_t>(out.size());
      out.push_back(std::move(row));
    };
    for (std::uint32_t k = 0; k < first; ++k) add(k, "");
    for (std::uint32_t k = first; k < rows_.size(); ++k) {  // what stands among the layer's rows, too
      if (!rows_[k].in_layer && k < last_of_layer()) add(k, "");
    }
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      if (layer > 0) place[read] = place[made];
      for (std::uint32_t k = first; k < rows_.size(); ++k) {
        if (rows_[k].in_layer) add(k, layers > 1 ? fmt::format("layer {}: ", layer) : "");
      }
    }
    for (std::uint32_t k = last_of_layer(); k < rows_.size(); ++k) {
      if (!rows_[k].in_layer) add(k, "");
    }
    return out;
  }

 private:
  std::uint32_t last_of_layer() const {
    for (std::uint32_t k = static_cast<std::uint32_t>(rows_.size()); k-- > 0;) {
      if (rows_[k].in_layer) return k;
    }
    return 0;
  }

  const std::vector<ListedRow>& rows_;
};

/// What the backward reads of the forward, by kind: PyTorch's derivatives.yaml.
enum class ListedKept : std::uint8_t { nothing, inputs, result, mask, statistics };

struct KeptRow {
  std::string_view kind;
  ListedKept kept;
};
constexpr std::array kept_rows{
    KeptRow{"Linear", ListedKept::inputs},        KeptRow{"Conv1D", ListedKept::inputs},
    KeptRow{"addmm", ListedKept::inputs},         KeptRow{"matmul", ListedKept::inputs},
    KeptRow{"bmm", ListedKept::inputs},           KeptRow{"mul", ListedKept::inputs},
    KeptRow{"pow", ListedKept::inputs},           KeptRow{"gelu", ListedKept::inputs},
    KeptRow{"GELU", ListedKept::inputs},          KeptRow{"GELUActivation", ListedKept::inputs},
    KeptRow{"max", ListedKept::inputs},           KeptRow{"where", ListedKept::nothing},
    KeptRow{"softmax", ListedKept::result},       KeptRow{"Softmax", ListedKept::result},
    KeptRow{"tanh", ListedKept::result},          KeptRow{"Tanh", ListedKept::result},
    KeptRow{"ReLU", ListedKept::result},          KeptRow{"relu", ListedKept::result},
    KeptRow{"Dropout", ListedKept::mask},         KeptRow{"dropout", ListedKept::mask},
    KeptRow{"LayerNorm", ListedKept::statistics}, KeptRow{"layer_norm", ListedKept::statistics}};

ListedKept kept_by(std::string_view kind) {
  const auto found = std::ranges::find(kept_rows, kind, &KeptRow::kind);
  return found == kept_rows.end() ? ListedKept::nothing : found->kept;
}

bool only_names(const ListedRow& row) {
  constexpr std::array<std::string_view, 10> kinds{"to",    "type",   "contiguous", "type_as", "getitem",
                                                   "float", "expand", "long",       "bool",    "half"};
  if (is_aten_view(row.kind) && row.kind != "reshape") return true;
  return std::ranges::find(kinds, row.kind) != kinds.end();
}

class ListedIteration {
 public:
  ListedIteration(std::vector<ListedRow> rows, double floor) : rows_(std::move(rows)), floor_(floor) {}

  Graph graph(std::string name) && {
    made_.name = std::move(name);
    made_.source.kind = Source::Kind::measured;
    made_.source.device = "unknown, of a list of operators";
    values_.resize(rows_.size());
    gradients_.resize(rows_.size());
    own_.resize(rows_.size());
    needs_.resize(rows_.size());
    for (std::uint32_t r = 0; r < rows_.size(); ++r) {
      name_parts(r);
      forward(r);
      needs_[r] = needs_gradient(r);
    }
    begin_backward();
    for (std::uint32_t r = static_cast<std::uint32_t>(rows_.size()); r-- > 0;) backward(r);
    write_source();
    return std::move(made_);
  }

 private:
  struct Own {  ///< of a row: parameters, and what is made for its backward alone
    std::vector<TensorId> parameters;
    std::optional<TensorId> marks;
  };

  Seconds net(double us) const { return {std::max(0.0, us - floor_) * listed_microsecond}; }
  bool launches(double us) const { return us > 1.4 * floor_; }

  TensorId tensor(std::string name, TensorKind kind, AtenShape shape, std::string_view dtype,
                  std::optional<StorageId> storage = {}) {
    double numbers = 1;
    for (const std::int64_t n : shape) numbers *= static_cast<double>(n);
    constexpr double most = 1e13, most_together = 4e17;  // so that bytes stay below 2^62
    numbers_made_ += numbers;
    if (numbers > most || numbers_made_ > most_together) throw InputError(name + ": absurdly large");
    const Bytes own{element_count(shape) * element_bytes(dtype).value_or(4)};
    if (!storage || bytes_of_[storage->index] < own) {
      storage = id_at<StorageId>(made_.storages++);
      bytes_of_.push_back(own);
    }
    made_.tensors.push_back({.name = std::move(name),
                             .kind = kind,
                             .bytes = bytes_of_[storage->index],
                             .storage = *storage,
                             .shape = std::move(shape),
                             .dtype = std::string(long_dtype(dtype))});
    return id_at<TensorId>(made_.tensors.size() - 1);
  }

  void add_op(Op op, Seconds time, bool is_view) {
    std::int64_t bytes = 0;
    for (const auto* list : {&op.inputs, &op.outputs}) {
      for (const TensorId t : *list) bytes += made_[t].bytes.count;
    }
    op.bytes_moved = Bytes{is_view ? 0 : bytes};
    if (!op.flops) op.flops = Flops{0};
    op.duration = is_view ? Seconds{0} : time;
    sum_ += op.duration->value;
    made_.ops.push_back(std::move(op));
  }

  /// The list says nothing of several values at once: they are the value that they are parts of.
  void name_parts(std::uint32_t r) {
    ListedRow& row = rows_[r];
    if (!row.dtype.empty() || row.inputs.empty() || (row.kind != "split" && row.kind != "chunk")) return;
    row.dtype = rows_[row.inputs[0]].dtype;
    row.shape = rows_[row.inputs[0]].shape;
  }

  void forward(std::uint32_t r) {
    const ListedRow& row = rows_[r];
    if (row.kind == "output") return;
    if (row.dtype.empty()) {
      ++numbers_;
      return;
    }
    if (row.is_given()) {
      const bool of_batch = row.kind == row.name;  // `input_ids`; others are the model's: `transformer.h.0.ln.weight`
      values_[r] = tensor(row.name, of_batch ? TensorKind::input : TensorKind::parameter, row.shape, row.dtype);
      return;
    }
    Op op{.name = row.name, .kind = row.kind};
    for (const std::uint32_t k : row.inputs) {
      if (values_[k] && std::ranges::find(op.inputs, *values_[k]) == op.inputs.end()) op.inputs.push_back(*values_[k]);
    }
    const bool is_view = only_names(row) && !launches(row.forward) && !op.inputs.empty();
    add_parameters(r, op);
    values_[r] = is_view ? tensor(row.name, TensorKind::activation, row.shape, row.dtype, made_[op.inputs[0]].storage)
                         : tensor(row.name, TensorKind::activation, row.shape, row.dtype);
    op.outputs = {*values_[r]};
    const bool shares = is_view && made_[*values_[r]].storage == made_[op.inputs[0]].storage;
    if (row.backward > 0) add_marks(r, op);
    op.flops = flops(r);
    add_op(std::move(op), net(row.forward), shares);
  }

  /// Of modules, whose parameters the list does not have: what their shapes say.
  void add_parameters(std::uint32_t r, Op& op) {
    const ListedRow& row = rows_[r];
    const auto add = [&](std::string_view what, AtenShape shape) {
      own_[r].parameters.push_back(
          tensor(fmt::format("{}.{}", row.name, what), TensorKind::parameter, std::move(shape), row.dtype));
      op.inputs.push_back(own_[r].parameters.back());
    };
    if (row.kind == "Linear" && !op.inputs.empty() && !row.shape.empty() && !made_[op.inputs[0]].shape.empty()) {
      add("weight", {row.shape.back(), made_[op.inputs[0]].shape.back()});
      add("bias", {row.shape.back()});
    } else if ((row.kind == "LayerNorm" || row.kind == "layer_norm") && !row.shape.empty()) {
      add("weight", {row.shape.back()});
      add("bias", {row.shape.back()});
    } else if (row.kind == "Embedding") {
      ++tables_;
    }
  }

  void add_marks(std::uint32_t r, Op& op) {
    const ListedRow& row = rows_[r];
    const ListedKept kept = kept_by(row.kind);
    if (kept == ListedKept::mask && launches(row.backward)) {
      own_[r].marks = tensor(row.name + " mask", TensorKind::activation, row.shape, "bool");
    } else if (kept == ListedKept::statistics) {
      AtenShape rows{2};
      rows.insert(rows.end(), row.shape.begin(), row.shape.end() - (row.shape.empty() ? 0 : 1));
      own_[r].marks = tensor(row.name + " statistics", TensorKind::activation, std::move(rows), "float32");
    }
    if (!own_[r].marks) return;
    op.outputs.push_back(*own_[r].marks);
    op.saved.push_back(*own_[r].marks);
  }

  std::optional<Flops> flops(std::uint32_t r) const {
    const ListedRow& row = rows_[r];
    std::vector<AtenShape> shapes;
    for (const std::uint32_t k : row.inputs) shapes.push_back(rows_[k].shape);
    if (row.kind == "Linear" && !shapes.empty() && !own_[r].parameters.empty()) {
      const AtenShape& weight = made_[own_[r].parameters[0]].shape;
      return Flops{2.0 * static_cast<double>(element_count(shapes[0])) * static_cast<double>(weight[0])};
    }
    if (row.kind == "matmul" || row.kind == "bmm" || row.kind == "addmm") {
      return aten_flops({.op = row.kind, .arguments = shapes, .result = row.shape});
    }
    return Flops{0};
  }

  /// What leaves the network and nobody else reads, and the first that leaves it, have gradients from outside: ones.
  void begin_backward() {
    std::vector<std::uint32_t> readers(rows_.size(), 0);
    for (const ListedRow& row : rows_) {
      for (const std::uint32_t k : row.inputs) readers[k] += row.kind == "output" ? 0 : 1;
    }
    for (const ListedRow& row : rows_) {
      if (row.kind != "output") continue;
      for (std::size_t k = 0; k < row.inputs.size(); ++k) {
        const std::uint32_t result = row.inputs[k];
        if (values_[result] && rows_[result].is_float() && (k == 0 || readers[result] == 0)) outside(result);
      }
    }
  }

  void outside(std::uint32_t r) {
    gradients_[r] = tensor("gradient of " + rows_[r].name, TensorKind::gradient, rows_[r].shape, rows_[r].dtype);
    add_op({.name = "gradient from outside: " + rows_[r].name,
            .kind = "ones_like",
            .phase = Phase::backward,
            .outputs = {*gradients_[r]}},
           {0}, false);
  }

  /// Whether a parameter lies behind it.
  bool needs_gradient(std::uint32_t r) const {
    const ListedRow& row = rows_[r];
    const bool has_parameter = row.kind == "Embedding" || !own_[r].parameters.empty();
    return values_[r] && row.is_float() && !row.is_given() &&
           (has_parameter || std::ranges::any_of(row.inputs, [&](std::uint32_t k) {
              return needs_[k] || (rows_[k].is_given() && rows_[k].is_float());
            }));
  }

  void backward(std::uint32_t r) {
    const ListedRow& row = rows_[r];
    if (!gradients_[r] || !values_[r] || row.is_given()) return;
    const TensorId gradient = *gradients_[r];
    Op op{
        .name = row.name + " backward", .kind = row.kind + "_backward", .phase = Phase::backward, .inputs = {gradient}};
    const bool passes_on = !launches(row.backward);
    std::vector<std::pair<std::uint32_t, TensorId>> made;
    for (const std::uint32_t k : row.inputs) {
      if (!needs_[k] || std::ranges::count(made, k, &std::pair<std::uint32_t, TensorId>::first) > 0) continue;
      if (!gradients_[k] && passes_on && element_count(rows_[k].shape) == element_count(row.shape)) {
        gradients_[k] = gradient;
        continue;
      }
      if (gradients_[k]) op.inputs.push_back(*gradients_[k]);  // the sum of both
      made.emplace_back(k,
                        tensor("gradient of " + rows_[k].name, TensorKind::gradient, rows_[k].shape, rows_[k].dtype));
      op.outputs.push_back(made.back().second);
    }
    read_kept(r, op);
    const std::vector<TensorId> of_parameters = parameter_gradients(r, op);
    for (const auto& [k, t] : made) gradients_[k] = t;
    if (op.outputs.empty() && (passes_on || row.backward == 0)) return;
    op.flops = Flops{static_cast<double>(op.outputs.size() > 1 ? 2 : 1) * flops(r).value_or(Flops{0}).count};
    add_op(std::move(op), net(row.backward), false);
    accumulate(r, of_parameters);
  }

  void read_kept(std::uint32_t r, Op& op) {
    const ListedKept kept = kept_by(rows_[r].kind);
    const auto read = [&](TensorId t) {
      if (std::ranges::find(op.inputs, t) == op.inputs.end()) op.inputs.push_back(t);
    };
    const bool by_number =
        rows_[r].kind == "mul" && rows_[r].inputs.size() == 1;  // its derivative reads the number alone
    if ((kept == ListedKept::inputs && !by_number) || kept == ListedKept::statistics) {
      for (const std::uint32_t k : rows_[r].inputs) {
        if (values_[k] && (kept != ListedKept::statistics || rows_[k].is_float())) read(*values_[k]);
      }
    }
    if (kept == ListedKept::result) read(*values_[r]);
    if (own_[r].marks) read(*own_[r].marks);
    for (const TensorId t : own_[r].parameters) {
      if (made_[t].shape.size() > 1 || kept == ListedKept::statistics) read(t);
    }
  }

  /// Of own parameters and of listed ones; tensors that are added to the gradients afterwards where that was measured.
  std::vector<TensorId> parameter_gradients(std::uint32_t r, Op& op) {
    std::vector<TensorId> owners = own_[r].parameters;
    for (const std::uint32_t k : rows_[r].inputs) {
      if (rows_[k].is_given() && rows_[k].is_float() && values_[k]) owners.push_back(*values_[k]);
    }
    std::vector<TensorId> fresh;
    for (const TensorId owner : owners) {
      const bool accumulates = rows_[r].accumulate > 0;
      const TensorId made = tensor((accumulates ? "new gradient of " : "gradient of ") + made_[owner].name,
                                   accumulates ? TensorKind::gradient : TensorKind::parameter_gradient,
                                   made_[owner].shape, made_[owner].dtype);
      if (!accumulates) made_.tensors[made.index].gradient_of = owner;
      op.outputs.push_back(made);
      if (accumulates) fresh.push_back(made);
    }
    owners_ = std::move(owners);
    return fresh;
  }

  void accumulate(std::uint32_t r, const std::vector<TensorId>& fresh) {
    if (rows_[r].accumulate == 0) return;
    Op op{.name = rows_[r].name + " accumulate", .kind = "add_", .phase = Phase::backward, .inputs = fresh};
    for (std::size_t k = 0; k < fresh.size(); ++k) {
      op.outputs.push_back(tensor("gradient of " + made_[owners_[k]].name, TensorKind::parameter_gradient,
                                  made_[owners_[k]].shape, made_[owners_[k]].dtype));
      made_.tensors[op.outputs.back().index].gradient_of = owners_[k];
    }
    add_op(std::move(op), net(rows_[r].accumulate), false);
  }

  void write_source() {
    auto& notes = made_.source.notes;
    notes.emplace_back("imported_from", "a list of a torch.fx graph's operators with measured times");
    notes.emplace_back("floor_us",
                       fmt::format("{:.2f}: what events take without a kernel, subtracted from each time; ops "
                                   "that only name a value take none",
                                   floor_));
    notes.emplace_back("backward",
                       "derived: reverse order, gradients by shapes, kept values by kind as PyTorch's "
                       "derivatives.yaml; Linear and LayerNorm with weight and bias; gradients exist already");
    notes.emplace_back("sum_of_operation_times_s", fmt::format("{:.9f}", sum_));
    notes.emplace_back("left_out", fmt::format("{} tables of embeddings, whose sizes the list does not have; {} ops on "
                                               "numbers outside of tensors; the loss",
                                               tables_, numbers_));
  }

  std::vector<ListedRow> rows_;
  double floor_ = 0, sum_ = 0, numbers_made_ = 0;
  Graph made_;
  std::vector<Bytes> bytes_of_;                     // by storage
  std::vector<std::optional<TensorId>> values_;     // by row
  std::vector<std::optional<TensorId>> gradients_;  // by row
  std::vector<Own> own_;                            // by row
  std::vector<bool> needs_;                         // by row: a gradient
  std::vector<TensorId> owners_;                    // of the gradients that the last backward made
  std::size_t tables_ = 0, numbers_ = 0;
};

}  // namespace

Graph parse_fx_list(const std::string& text, const std::string& file_name, ImportNumbers& numbers) {
  Complaints complaints(file_name, text);
  std::vector<ListedRow> rows = FxListReader(text, complaints).rows();
  const double floor = floor_of(rows);
  LayerRepeater repeater(rows);
  const auto boundary = repeater.boundary();
  constexpr std::int64_t most = 10'000;
  if (boundary) {
    const std::int64_t layers = numbers.asked("layers").value_or(1);
    if (layers > most) throw InputError(fmt::format("--set: layers: expected at most {}, found {}", most, layers));
    if (layers > 1) rows = repeater.repeated(layers, *boundary);
  }
  Graph graph = ListedIteration(std::move(rows), floor).graph(std::filesystem::path(file_name).stem().string());
  JsonDocument document("{}", file_name);
  check_graph(document, graph);
  document.throw_if_any();
  return graph;
}

}  // namespace plimsoll
