#include "sim/model/repeated_layers.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>

namespace plimsoll {
namespace {

constexpr std::string_view layer_prefix = "layer";
constexpr std::uint32_t fewest_layers = 5;  // two ends, and three inner ones to compare

/// The number of a name's layer; nothing where it is of none.
std::optional<std::uint32_t> layer_of(std::string_view name) {
  if (!name.starts_with(layer_prefix)) return std::nullopt;
  const char* const begin = name.data() + layer_prefix.size();
  const char* const end = name.data() + name.size();
  std::uint32_t layer = 0;
  const auto [behind, error] = std::from_chars(begin, end, layer);
  if (error != std::errc{} || behind == end || *behind != '.') return std::nullopt;
  return layer;
}

std::string in_layer(std::string_view name, std::uint32_t layer) {
  return std::string(layer_prefix) + std::to_string(layer) + std::string(name.substr(name.find('.')));
}

class Layers {
 public:
  explicit Layers(const Chain& few) : few_(few), number_(few.parameters.size(), not_there) {}

  std::optional<RepeatedLayers> repeated(std::uint32_t layers) && {
    if (!find() || !are_alike() || layers < count_) return std::nullopt;
    for (std::size_t s = 0; s < first_; ++s) add(s, std::nullopt);
    for (std::uint32_t k = 0; k < layers; ++k) {
      const std::uint32_t like = k == 0 ? 0 : k + 1 == layers ? count_ - 1 : 1;
      for (std::size_t s = first_ + like * each_; s < first_ + (like + 1) * each_; ++s) add(s, k);
      for (std::uint32_t& number : of_layer_) number = not_there;
    }
    for (std::size_t s = first_ + count_ * each_; s < few_.stages.size(); ++s) add(s, std::nullopt);
    for (std::uint32_t p = 0; p < few_.parameters.size(); ++p) {
      if (number_[p] == not_there && !layer_of(few_.parameters[p].name)) add_parameter(p, std::nullopt);
    }
    made_.chain.name = few_.name;
    made_.chain.source = few_.source;
    made_.chain.input = few_.input;
    return std::move(made_);
  }

 private:
  static constexpr std::uint32_t not_there = UINT32_MAX;

  /// Where the layers are; false where they do not follow each other, or differ in their stages.
  bool find() {
    if (!few_.boundaries.empty() || !few_.tensors.empty() || !few_.shared.empty() || few_.plain) return false;
    const auto is_of_layer = [](const Stage& stage) { return layer_of(stage.name).has_value(); };
    const auto first = std::ranges::find_if(few_.stages, is_of_layer);
    const auto all = std::ranges::count_if(few_.stages, is_of_layer);
    if (all == 0) return false;
    first_ = static_cast<std::size_t>(first - few_.stages.begin());
    each_ = static_cast<std::size_t>(
        std::ranges::count_if(few_.stages, [](const Stage& stage) { return layer_of(stage.name) == 0U; }));
    if (each_ == 0 || static_cast<std::size_t>(all) % each_ != 0) return false;
    count_ = static_cast<std::uint32_t>(static_cast<std::size_t>(all) / each_);
    for (std::size_t k = 0; k < count_ * each_; ++k) {
      if (layer_of(few_.stages[first_ + k].name) != static_cast<std::uint32_t>(k / each_)) return false;
    }
    of_layer_.assign(few_.parameters.size(), not_there);
    return count_ >= fewest_layers;
  }

  bool are_alike() const {
    for (std::uint32_t k = 2; k + 1 < count_; ++k) {
      for (std::size_t s = 0; s < each_; ++s) {
        if (!are_alike(few_.stages[first_ + each_ + s], few_.stages[first_ + k * each_ + s], k)) return false;
      }
    }
    return true;
  }

  bool are_alike(Stage one, Stage other, std::uint32_t layer) const {
    const auto same = [&](std::uint32_t a, std::uint32_t b) {
      Parameter inner = few_.parameters[a];
      if (layer_of(inner.name)) inner.name = in_layer(inner.name, layer);
      return inner == few_.parameters[b];
    };
    if (!std::ranges::equal(one.parameters, other.parameters, same)) return false;
    one.name = in_layer(one.name, layer);
    one.parameters = other.parameters;
    return one == other;
  }

  void add(std::size_t s, std::optional<std::uint32_t> layer) {
    Stage stage = few_.stages[s];
    if (layer) stage.name = in_layer(stage.name, *layer);
    for (std::uint32_t& p : stage.parameters) p = add_parameter(p, layer);
    made_.chain.stages.push_back(std::move(stage));
    made_.stage_of.push_back(static_cast<std::uint32_t>(s));
  }

  /// Its number, new or not.
  std::uint32_t add_parameter(std::uint32_t p, std::optional<std::uint32_t> layer) {
    const bool is_own = layer && layer_of(few_.parameters[p].name);
    std::uint32_t& number = is_own ? of_layer_[p] : number_[p];
    if (number != not_there) return number;
    number = static_cast<std::uint32_t>(made_.chain.parameters.size());
    made_.chain.parameters.push_back(few_.parameters[p]);
    if (is_own) made_.chain.parameters.back().name = in_layer(few_.parameters[p].name, *layer);
    made_.parameter_of.push_back(p);
    return number;
  }

  const Chain& few_;
  std::size_t first_ = 0, each_ = 0;
  std::uint32_t count_ = 0;
  RepeatedLayers made_;
  std::vector<std::uint32_t> number_, of_layer_;  // by parameter: of all layers, and of the one at hand
};

}  // namespace

std::optional<RepeatedLayers> with_layers(const Chain& few, std::uint32_t layers) {
  return Layers(few).repeated(layers);
}

}  // namespace plimsoll
