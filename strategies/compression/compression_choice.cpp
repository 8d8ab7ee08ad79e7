#include "strategies/compression/compression_choice.h"

#include <algorithm>
#include <map>

#include "sim/ops/layers.h"
#include "strategies/models/recompute_order.h"

namespace plimsoll {
namespace {

constexpr Codec signs_of_relu{.kind = CodecKind::mask, .bits = 1};

bool does_with_signs(const Graph& graph, const SavedUse& use) {
  const Op& op = graph[use.op];
  return op.uses.empty() ? reads_packed(op, signs_of_relu) : serves(signs_of_relu, use.layer_use());
}

/// What runs again for a value, while all values that wait for the backward wait on: its maker, and what makes those
/// of its inputs that died before.
class TimesAgain {
 public:
  TimesAgain(const OffloadModel& model, const OpModel& ops)
      : ops_(ops), position_(ops.ops.size(), 0), last_(ops.values.size(), 0), met_(ops.ops.size(), 0) {
    std::map<OpId, std::uint32_t> positions;
    for (std::uint32_t p = 0; p < model.positions(); ++p) positions[model.computes[p].op] = p;
    for (std::size_t o = 0; o < ops.ops.size(); ++o) position_[o] = positions.at(ops.ops[o].id);
    for (std::size_t v = 0; v < ops.values.size(); ++v) {
      for (const std::uint32_t reader : ops.values[v].readers) last_[v] = std::max(last_[v], position_[reader]);
    }
  }

  /// For a use at that position.
  Seconds of(std::uint32_t value, std::uint32_t use) {
    ++walks_;
    Seconds time;
    std::vector<std::uint32_t> open{*ops_.values[value].maker};
    while (!open.empty()) {
      const std::uint32_t o = open.back();
      open.pop_back();
      if (met_[o] == walks_) continue;
      met_[o] = walks_;
      time += ops_.ops[o].ways.back().time;
      for (const std::uint32_t v : ops_.ops[o].reads) {
        if (ops_.values[v].maker && last_[v] < use) open.push_back(*ops_.values[v].maker);
      }
    }
    return time;
  }

 private:
  const OpModel& ops_;
  std::vector<std::uint32_t> position_, last_;  // by op; by value: of its last use
  std::vector<std::uint64_t> met_;              // by op: the last walk
  std::uint64_t walks_ = 0;
};

/// The largest of many numbers of which ranges rise and fall: all of it in the logarithm of how many there are.
class RangeMaximum {
 public:
  explicit RangeMaximum(std::span<const Bytes> values) {
    while (leaves_ < values.size()) leaves_ *= 2;
    most_.assign(2 * leaves_, Bytes{0});
    added_.assign(2 * leaves_, Bytes{0});
    std::ranges::copy(values, most_.begin() + static_cast<std::ptrdiff_t>(leaves_));
    for (std::size_t node = leaves_; node-- > 1;) most_[node] = std::max(most_[2 * node], most_[2 * node + 1]);
  }

  Bytes most() const { return most_[1]; }

  std::uint32_t where() const {
    std::size_t node = 1;
    while (node < leaves_) node = 2 * node + (most_[2 * node] >= most_[2 * node + 1] ? 0 : 1);
    return static_cast<std::uint32_t>(node - leaves_);
  }

  void add(std::uint32_t begin, std::uint32_t end, Bytes bytes) { add(1, 0, leaves_, begin, end, bytes); }

 private:
  void add(std::size_t node, std::size_t first, std::size_t last, std::size_t begin, std::size_t end, Bytes bytes) {
    if (end <= first || last <= begin) return;
    if (begin <= first && last <= end) {
      most_[node] += bytes;
      added_[node] += bytes;
      return;
    }
    const std::size_t middle = (first + last) / 2;
    add(2 * node, first, middle, begin, end, bytes);
    add(2 * node + 1, middle, last, begin, end, bytes);
    most_[node] = std::max(most_[2 * node], most_[2 * node + 1]) + added_[node];
  }

  std::size_t leaves_ = 1;
  std::vector<Bytes> most_, added_;
};

class FormsChooser {
 public:
  FormsChooser(const KeptForms& kept_forms, const OffloadModel& model, double largest_square, double price)
      : kept_forms_(kept_forms),
        memory_(model.memory),
        forms_(kept_forms.size(), 0),
        largest_square_(largest_square),
        price_(price) {}

  Bytes most() const { return memory_.most(); }

  /// As far down as that, or as it goes.
  void reach(Bytes level) {
    while (memory_.most() > level) {
      const std::uint32_t fullest = memory_.where();
      std::optional<std::pair<std::size_t, std::uint32_t>> best;
      double least = 0;
      for (std::size_t i = 0; i < kept_forms_.size(); ++i) {
        for (std::uint32_t form = forms_[i] + 1; form < kept_forms_[i].forms.size(); ++form) {  // never back: it ends
          const Bytes gain = freed_at(i, form, fullest) - freed_at(i, forms_[i], fullest);
          if (gain <= Bytes{0} || square_ + more_square(i, form) > largest_square_) continue;
          const double cost =
              (more_time(i, form).value + price_ * more_square(i, form)) / static_cast<double>(gain.count);
          if (!best || cost < least) {
            best = {i, form};
            least = cost;
          }
        }
      }
      if (!best) return;
      take(best->first, best->second);
    }
  }

  /// Those that take the most time first.
  void relax(Bytes level) {
    std::vector<std::size_t> order(kept_forms_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return form_of(a).time > form_of(b).time; });
    for (const std::size_t i : order) {
      for (std::uint32_t form = 0; form < kept_forms_[i].forms.size(); ++form) {
        const std::uint32_t before = forms_[i];
        if (form == before || more_time(i, form) > Seconds{0}) continue;
        if (more_time(i, form) == Seconds{0} && more_square(i, form) >= 0) continue;
        if (square_ + more_square(i, form) > largest_square_) continue;
        take(i, form);
        if (memory_.most() <= level) break;
        take(i, before);
      }
    }
  }

  std::vector<std::uint32_t> forms() && { return std::move(forms_); }

 private:
  const KeptForm& form_of(std::size_t i) const { return kept_forms_[i].forms[forms_[i]]; }
  Seconds more_time(std::size_t i, std::uint32_t form) const {
    return kept_forms_[i].forms[form].time - form_of(i).time;
  }
  double more_square(std::size_t i, std::uint32_t form) const {
    return kept_forms_[i].forms[form].square - form_of(i).square;
  }

  Bytes freed_at(std::size_t i, std::uint32_t form, std::uint32_t position) const {
    Bytes freed;
    for (const FreedRange& range : kept_forms_[i].freed[form]) {
      if (range.begin <= position && position < range.end) freed += range.bytes;
    }
    return freed;
  }

  void take(std::size_t i, std::uint32_t form) {
    square_ += more_square(i, form);
    for (const FreedRange& range : kept_forms_[i].freed[forms_[i]]) memory_.add(range.begin, range.end, range.bytes);
    forms_[i] = form;
    for (const FreedRange& range : kept_forms_[i].freed[form]) {
      memory_.add(range.begin, range.end, Bytes{0} - range.bytes);
    }
  }

  const KeptForms& kept_forms_;
  RangeMaximum memory_;  // by position
  std::vector<std::uint32_t> forms_;
  double largest_square_, price_, square_ = 0;
};

}  // namespace

KeptForms::KeptForms(const Graph& graph, std::span<const SavedTensor> saved, std::span<const Codec> codecs,
                     const Device& device)
    : graph_(graph), saved_(saved), first_of_(graph.storages) {
  const ErrorShares shares(graph);
  std::vector<bool> rectified(graph.storages, false);
  for (const Op& op : graph.ops) {
    if (op.phase != Phase::forward || layer_of(op) != SavedBy::relu) continue;
    for (const TensorId t : op.outputs) rectified[graph[t].storage.index] = true;
  }
  for (const SavedTensor& tensor : saved) {
    const Tensor& value = graph[tensor.tensor];
    const bool starts_again =
        std::ranges::any_of(tensor.uses, [](const SavedUse& use) { return use.by == SavedBy::checkpoint; });
    Value& kept = values_.emplace_back();
    kept.tensor = tensor.tensor;
    std::optional<std::size_t>& first = first_of_[value.storage.index];
    if (!first) first = values_.size() - 1;
    for (const SavedUse& use : tensor.uses) kept.takes_signs.push_back(does_with_signs(graph, use));
    const bool any_signs = std::ranges::find(kept.takes_signs, true) != kept.takes_signs.end();
    const bool all_signs = std::ranges::find(kept.takes_signs, false) == kept.takes_signs.end();
    kept.forms.emplace_back();
    if (any_signs && !cannot_pack(signs_of_relu, graph, value)) kept.forms.push_back({.signs = true});
    for (const Codec& codec : codecs) {
      if (all_signs || starts_again || cannot_pack(codec, graph, value)) continue;
      if (packed_bytes(codec, graph, value) >= value.bytes) continue;
      const double lost = codec_error(codec, rectified[value.storage.index] ? Noise::rectified : Noise::normal);
      KeptForm form{.codec = codec, .signs = any_signs, .time = pack_time(codec, graph, value, device)};
      std::optional<std::uint32_t> restored;  // the last position where it is, once for all uses of a stage
      for (std::size_t u = 0; u < tensor.uses.size(); ++u) {
        if (kept.takes_signs[u] || restored == tensor.uses[u].position) continue;
        restored = tensor.uses[u].position;
        form.time += unpack_time(codec, graph, value, device);
        form.square += shares.of(tensor.uses[u].op, tensor.tensor, lost * lost);
      }
      kept.forms.push_back(form);
    }
    for (const KeptForm& form : kept.forms) kept.freed.push_back(freed_by(form, kept, tensor, graph));
  }
}

/// Against the value itself, which is there from its last use in the forward to its last use at all.
std::vector<FreedRange> KeptForms::freed_by(const KeptForm& form, const Value& kept, const SavedTensor& tensor,
                                            const Graph& graph) {
  std::vector<FreedRange> freed;
  if (!form.codec && !form.signs) return freed;
  const Tensor& value = graph[tensor.tensor];
  std::uint32_t plain = tensor.from, packed = tensor.from, signs = tensor.from;  // positions of their last uses
  for (std::size_t u = 0; u < tensor.uses.size(); ++u) {
    (form.signs && kept.takes_signs[u] ? signs : form.codec ? packed : plain) = tensor.uses[u].position;
  }
  const std::uint32_t last = tensor.uses.back().position;
  freed.push_back({plain + 1, last + 1, value.bytes});
  if (packed > tensor.from)
    freed.push_back({tensor.from + 1, packed, Bytes{0} - packed_bytes(*form.codec, graph, value)});
  if (signs > tensor.from) {
    freed.push_back({tensor.from + 1, signs + 1, Bytes{0} - packed_bytes(signs_of_relu, graph, value)});
  }
  std::optional<std::uint32_t> restored;
  for (std::size_t u = 0; form.codec && u < tensor.uses.size(); ++u) {  // restored for these
    const std::uint32_t position = tensor.uses[u].position;
    if ((form.signs && kept.takes_signs[u]) || restored == position) continue;
    restored = position;
    freed.push_back({position, position + 1, Bytes{0} - value.bytes});
  }
  return freed;
}

void KeptForms::offer_recomputation(const OffloadModel& model, const OpModel& ops) {
  TimesAgain times(model, ops);
  std::map<std::uint32_t, std::uint32_t> value_in;  // by storage of the graph
  for (std::uint32_t v = 0; v < ops.values.size(); ++v) {
    const bool alone = ops.in_storage[ops.values[v].storage].size() == 1;
    if (alone && can_evict(ops, v)) value_in[graph_[ops.values[v].tensor].storage.index] = v;
  }
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const auto found = value_in.find(graph_[values_[i].tensor].storage.index);
    if (found == value_in.end()) continue;
    const std::uint32_t first = saved_[i].uses.front().position;
    values_[i].forms.push_back({.again = true, .time = times.of(found->second, first)});
    values_[i].freed.push_back({{saved_[i].from + 1, first, graph_[values_[i].tensor].bytes}});
  }
}

std::uint32_t KeptForms::form_of(std::size_t i, const std::optional<Codec>& codec) const {
  const std::vector<KeptForm>& forms = values_[i].forms;
  for (std::uint32_t f = 0; codec && f < forms.size(); ++f) {
    if (forms[f].codec == codec) return f;
  }
  return forms.size() > 1 && forms[1].signs && !forms[1].codec ? 1 : 0;
}

std::optional<Codec> KeptForms::codec_of(const KeptForm& form, const SavedUse& use) const {
  if (use.by == SavedBy::checkpoint) return std::nullopt;
  return form.signs && does_with_signs(graph_, use) ? std::optional(signs_of_relu) : form.codec;
}

CodecChoice KeptForms::choice(std::vector<std::uint32_t> forms) const {
  return [this, forms = std::move(forms)](const SavedTensor& tensor, const SavedUse& use) -> std::optional<Codec> {
    const auto i = static_cast<std::size_t>(&tensor - saved_.data());
    return codec_of(values_[i].forms[forms[i]], use);
  };
}

CodecChoice KeptForms::choice_elsewhere(std::vector<std::uint32_t> forms) const {
  return [this, forms = std::move(forms)](const SavedTensor& tensor, const SavedUse& use) -> std::optional<Codec> {
    const std::optional<std::size_t> i = value_of(tensor.tensor);
    return i ? codec_of(values_[*i].forms[forms[*i]], use) : std::nullopt;
  };
}

std::vector<std::vector<std::uint32_t>> forms_of_levels(const KeptForms& kept_forms, const OffloadModel& model,
                                                        std::uint32_t levels, double largest_square, double price) {
  FormsChooser chooser(kept_forms, model, largest_square, price);
  const Bytes most = chooser.most();
  FormsChooser lowest = chooser;
  lowest.reach(Bytes{0});
  const Bytes least = lowest.most();
  std::vector<std::vector<std::uint32_t>> chosen;
  for (std::uint32_t down = 1; down <= levels; ++down) {
    const Bytes level = most - range_of(most - least, {down, levels}).offset;
    chooser.reach(level);
    FormsChooser relaxed = chooser;
    relaxed.relax(std::max(level, chooser.most()));
    chosen.push_back(std::move(relaxed).forms());
  }
  return chosen;
}

}  // namespace plimsoll
