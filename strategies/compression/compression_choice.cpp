#include "strategies/compression/compression_choice.h"

#include <algorithm>

#include "sim/core/layers.h"

namespace plimsoll {
namespace {

constexpr Codec signs_of_relu{.kind = CodecKind::mask, .bits = 1};

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
  FormsChooser(const CompressionMenu& menu, const OffloadModel& model, double largest_square, double price)
      : menu_(menu), memory_(model.memory), forms_(menu.size(), 0), largest_square_(largest_square), price_(price) {}

  Bytes most() const { return memory_.most(); }

  /// As far down as that, or as it goes.
  void reach(Bytes level) {
    while (memory_.most() > level) {
      const std::uint32_t fullest = memory_.where();
      std::optional<std::pair<std::size_t, std::uint32_t>> best;
      double least = 0;
      for (std::size_t i = 0; i < menu_.size(); ++i) {
        for (std::uint32_t form = forms_[i] + 1; form < menu_[i].forms.size(); ++form) {  // never back: it ends
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
    std::vector<std::size_t> order(menu_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return form_of(a).time > form_of(b).time; });
    for (const std::size_t i : order) {
      for (std::uint32_t form = 0; form < menu_[i].forms.size(); ++form) {
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
  const KeptForm& form_of(std::size_t i) const { return menu_[i].forms[forms_[i]]; }
  Seconds more_time(std::size_t i, std::uint32_t form) const { return menu_[i].forms[form].time - form_of(i).time; }
  double more_square(std::size_t i, std::uint32_t form) const {
    return menu_[i].forms[form].square - form_of(i).square;
  }

  Bytes freed_at(std::size_t i, std::uint32_t form, std::uint32_t position) const {
    Bytes freed;
    for (const FreedRange& range : menu_[i].freed[form]) {
      if (range.begin <= position && position < range.end) freed += range.bytes;
    }
    return freed;
  }

  void take(std::size_t i, std::uint32_t form) {
    square_ += more_square(i, form);
    for (const FreedRange& range : menu_[i].freed[forms_[i]]) memory_.add(range.begin, range.end, range.bytes);
    forms_[i] = form;
    for (const FreedRange& range : menu_[i].freed[form]) {
      memory_.add(range.begin, range.end, Bytes{0} - range.bytes);
    }
  }

  const CompressionMenu& menu_;
  RangeMaximum memory_;  // by position
  std::vector<std::uint32_t> forms_;
  double largest_square_, price_, square_ = 0;
};

}  // namespace

CompressionMenu::CompressionMenu(const Graph& graph, std::span<const SavedTensor> saved, std::span<const Codec> codecs,
                                 const Device& device)
    : saved_(saved) {
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
    Dish& dish = dishes_.emplace_back();
    for (const SavedUse& use : tensor.uses) {
      const Op& op = graph[use.op];
      dish.takes_signs.push_back(op.uses.empty() ? reads_packed(op, signs_of_relu)
                                                 : serves(signs_of_relu, use.layer_use()));
    }
    const bool any_signs = std::ranges::find(dish.takes_signs, true) != dish.takes_signs.end();
    const bool all_signs = std::ranges::find(dish.takes_signs, false) == dish.takes_signs.end();
    dish.forms.emplace_back();
    if (any_signs && !cannot_pack(signs_of_relu, graph, value)) dish.forms.push_back({.signs = true});
    for (const Codec& codec : codecs) {
      if (all_signs || starts_again || cannot_pack(codec, graph, value)) continue;
      if (packed_bytes(codec, graph, value) >= value.bytes) continue;
      const double lost = codec_error(codec, rectified[value.storage.index] ? Noise::rectified : Noise::normal);
      KeptForm form{.codec = codec, .signs = any_signs, .time = pack_time(codec, graph, value, device)};
      for (std::size_t u = 0; u < tensor.uses.size(); ++u) {
        if (dish.takes_signs[u]) continue;
        form.time += unpack_time(codec, graph, value, device);
        form.square += shares.of(tensor.uses[u].op, tensor.tensor, lost * lost);
      }
      dish.forms.push_back(form);
    }
    for (const KeptForm& form : dish.forms) dish.freed.push_back(freed_by(form, dish, tensor, graph));
  }
}

/// Against the value itself, which is there from its last use in the forward to its last use at all.
std::vector<FreedRange> CompressionMenu::freed_by(const KeptForm& form, const Dish& dish, const SavedTensor& tensor,
                                                  const Graph& graph) {
  std::vector<FreedRange> freed;
  if (!form.codec && !form.signs) return freed;
  const Tensor& value = graph[tensor.tensor];
  std::uint32_t plain = tensor.from, packed = tensor.from, signs = tensor.from;  // positions of their last uses
  for (std::size_t u = 0; u < tensor.uses.size(); ++u) {
    (form.signs && dish.takes_signs[u] ? signs : form.codec ? packed : plain) = tensor.uses[u].position;
  }
  const std::uint32_t last = tensor.uses.back().position;
  freed.push_back({plain + 1, last + 1, value.bytes});
  if (packed > tensor.from)
    freed.push_back({tensor.from + 1, packed, Bytes{0} - packed_bytes(*form.codec, graph, value)});
  if (signs > tensor.from) {
    freed.push_back({tensor.from + 1, signs + 1, Bytes{0} - packed_bytes(signs_of_relu, graph, value)});
  }
  for (std::size_t u = 0; form.codec && u < tensor.uses.size(); ++u) {  // restored for these
    if (form.signs && dish.takes_signs[u]) continue;
    freed.push_back({tensor.uses[u].position, tensor.uses[u].position + 1, Bytes{0} - value.bytes});
  }
  return freed;
}

CodecChoice CompressionMenu::choice(std::vector<std::uint32_t> forms) const {
  return [this, forms = std::move(forms)](const SavedTensor& tensor, const SavedUse& use) -> std::optional<Codec> {
    const auto i = static_cast<std::size_t>(&tensor - saved_.data());
    const auto u = static_cast<std::size_t>(&use - tensor.uses.data());
    const KeptForm& form = dishes_[i].forms[forms[i]];
    return form.signs && dishes_[i].takes_signs[u] ? std::optional(signs_of_relu) : form.codec;
  };
}

std::vector<std::vector<std::uint32_t>> forms_of_levels(const CompressionMenu& menu, const OffloadModel& model,
                                                        std::uint32_t levels, double largest_square, double price) {
  FormsChooser chooser(menu, model, largest_square, price);
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
