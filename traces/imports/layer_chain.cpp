#include "traces/imports/layer_chain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <queue>

#include "sim/core/tolerance.h"
#include "sim/io/input_error.h"

namespace plimsoll {
namespace {

/// Layers in an order in which each comes behind those that it reads, else in the table's.
std::vector<std::uint32_t> order_of(const LayerTable& table) {
  std::vector<std::vector<std::uint32_t>> after(table.layers.size());
  std::vector<std::uint32_t> waiting(table.layers.size(), 0), order;
  for (const LayerEdge& edge : table.edges) {
    after[edge.from].push_back(edge.to);
    ++waiting[edge.to];
  }
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> ready;
  for (std::uint32_t l = 0; l < waiting.size(); ++l) {
    if (waiting[l] == 0) ready.push(l);
  }
  for (; !ready.empty();) {
    order.push_back(ready.top());
    ready.pop();
    for (const std::uint32_t to : after[order.back()]) {
      if (--waiting[to] == 0) ready.push(to);
    }
  }
  return order;
}

class LayerChain {
 public:
  LayerChain(const LayerTable& table, const LayerBytes& bytes)
      : table_(table), bytes_(bytes), order_(order_of(table)), read_(order_.size()), made_(order_.size()) {}

  Chain chain() && {
    chain_.name = table_.name;
    chain_.source.notes = table_.notes;
    add_machine();
    add_tensors();
    for (std::size_t i = 0; i < order_.size(); ++i) add_stage(i);
    note_left_out();
    return std::move(chain_);
  }

 private:
  using Tensors = std::vector<std::uint32_t>;

  void add_machine() {
    const auto note = [&](std::string_view key, const auto& value) {
      if (value) chain_.source.notes.emplace_back(key, fmt::format("{}", *value));
    };
    note("devices", table_.devices);
    note("micro_batches", table_.micro_batches);
    if (table_.memory) chain_.source.notes.emplace_back("memory_bytes", fmt::format("{}", table_.memory->count));
    if (table_.bandwidth) {
      chain_.source.notes.emplace_back("bandwidth_bytes_per_s", fmt::format("{}", table_.bandwidth->value));
    }
  }

  /// On each boundary from the stage that makes one to the last that reads it.
  void add_tensors() {
    std::vector<std::size_t> position(order_.size());
    for (std::size_t i = 0; i < order_.size(); ++i) position[order_[i]] = i;
    std::map<std::pair<std::size_t, Bytes>, std::size_t> last;  // by stage that makes it and bytes: stage that reads it
    for (const LayerEdge& edge : table_.edges) {
      std::size_t& reader = last[{position[edge.from], edge.bytes}];
      reader = std::max(reader, position[edge.to]);
    }
    std::map<std::pair<std::size_t, Bytes>, std::uint32_t> number;
    chain_.boundaries.resize(order_.size() + 1);
    for (const auto& [made, reader] : last) {
      const auto& [stage, bytes] = made;
      const auto t = static_cast<std::uint32_t>(chain_.tensors.size());
      number.emplace(made, t);
      const std::string& name = table_.layers[order_[stage]].name;
      chain_.tensors.push_back(
          {.name = made_[stage].empty() ? name : fmt::format("{}.{}", name, made_[stage].size()), .bytes = bytes});
      made_[stage].push_back(t);
      for (std::size_t j = stage + 1; j <= reader; ++j) chain_.boundaries[j].push_back(t);
    }
    for (const LayerEdge& edge : table_.edges) {
      read_[position[edge.to]].push_back(number.at({position[edge.from], edge.bytes}));
    }
    for (Tensors& tensors : read_) {
      std::ranges::sort(tensors);
      tensors.erase(std::unique(tensors.begin(), tensors.end()), tensors.end());
    }
  }

  void add_stage(std::size_t i) {
    const Layer& layer = table_.layers[order_[i]];
    const auto way = std::ranges::find(layer.options, 1U, &LayerOption::devices);
    if (way == layer.options.end()) {
      throw InputError(fmt::format("{}: layer '{}' has no way to run on one device", table_.name, layer.name));
    }
    Stage stage{.name = layer.name, .forward = way->forward, .backward = way->backward};
    stage.forward_nograd = stage.forward;
    stage.output = sum_of(chain_.boundaries[i + 1]);
    stage.input_gradient = sum_of(chain_.boundaries[i]);
    const Bytes read = sum_of(read_[i]), made = sum_of(made_[i]);
    StageTensors tensors{.kept = read_[i], .gradients = read_[i]};
    Bytes inner = way->kept;
    if (keeps_inputs_only(layer, *way, read)) {
      inner = std::max(Bytes{}, inner - read);
    } else if (inner >= made) {
      inner -= made;
      tensors.kept.insert(tensors.kept.end(), made_[i].begin(), made_[i].end());
    }
    stage.saved = added(stage.output, inner);
    stage.keeps_input = !read_[i].empty();
    stage.keeps_output = tensors.kept.size() > read_[i].size();
    stage.tensors = std::move(tensors);
    stage.recomputable = read > Bytes{} || read_[i].empty();
    add_parameters(stage, *way);
    chain_.stages.push_back(std::move(stage));
  }

  /// Whether this is recomputation as a stage's is: the forward again, from what it has read.
  bool is_forward_again(const LayerOption& way, const LayerOption& plain, Bytes read) const {
    const double longer = (way.forward + way.backward - plain.forward - plain.backward).value;
    return way.name == bytes_.recomputing && way.devices == 1 && way.kept == read &&
           std::abs(longer - plain.forward.value) <= model_tolerance * (plain.forward + plain.backward).value;
  }

  /// Whether one of the ways to run a layer is recomputation. Those that are neither this nor `plain` are left out.
  bool keeps_inputs_only(const Layer& layer, const LayerOption& plain, Bytes read) {
    bool any = false;
    for (const LayerOption& way : layer.options) {
      if (&way == &plain) continue;
      if (is_forward_again(way, plain, read)) {
        any = true;
      } else {
        ++left_out_[{way.devices, way.name}];
      }
    }
    return any;
  }

  void note_left_out() {
    if (left_out_.empty()) return;
    std::string text = "ways to run layers:";
    for (const auto& [way, layers] : left_out_) {
      text += fmt::format("{} '{}' on {} device{} (of {} layer{})", &way == &left_out_.begin()->first ? "" : ",",
                          way.second, way.first, way.first == 1 ? "" : "s", layers, layers == 1 ? "" : "s");
    }
    chain_.source.notes.emplace_back("left_out", std::move(text));
  }

  void add_parameters(Stage& stage, const LayerOption& way) {
    const Bytes trained = bytes_.trains ? way.parameters : Bytes{}, rest = way.fixed - 2 * trained;
    const auto add = [&](std::string name, Bytes bytes, bool is_trained) {
      if (bytes <= Bytes{}) return;
      stage.parameters.push_back(static_cast<std::uint32_t>(chain_.parameters.size()));
      chain_.parameters.push_back({.name = std::move(name), .bytes = bytes, .trained = is_trained});
      added({}, bytes);
    };
    add(stage.name, trained, true);
    add(stage.name + ".fixed", rest, false);
  }

  Bytes sum_of(const Tensors& tensors) {
    Bytes sum;
    for (const std::uint32_t t : tensors) sum = added(sum, chain_.tensors[t].bytes);
    return sum;
  }

  /// A trace's file states sums of at most `largest_bytes`, and all of them together fit 62 bits.
  Bytes added(Bytes a, Bytes b) {
    constexpr std::int64_t most_together = std::int64_t{1} << 58;
    all_ += b;
    if (a + b > largest_bytes || all_.count > most_together) {
      throw InputError(fmt::format("{}: absurdly large: sums of its sizes do not fit a trace", table_.name));
    }
    return a + b;
  }

  const LayerTable& table_;
  LayerBytes bytes_;
  std::vector<std::uint32_t> order_;
  std::vector<Tensors> read_, made_;  ///< by stage
  Bytes all_;
  std::map<std::pair<std::uint32_t, std::string>, std::size_t> left_out_;  ///< devices, name: of how many layers
  Chain chain_;
};

}  // namespace

Chain chain_of(const LayerTable& table, const LayerBytes& bytes) {
  return LayerChain(table, bytes).chain();
}

}  // namespace plimsoll
