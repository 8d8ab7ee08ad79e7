#include "validate/networks/networks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "sim/core/names.h"
#include "sim/io/input_error.h"
#include "sim/io/one_of.h"
#include "sim/io/reference_options.h"
#include "validate/networks/builders.h"
#include "validate/networks/narrow_values.h"

namespace plimsoll {
namespace {

struct NamedBuilder {
  std::string_view name;
  std::vector<ReferenceOption> options;
  std::function<Network()> make;
  std::string_view cannot_slice = {};                     ///< why there are no slices of its sequences; or:
  std::function<Network(SequenceSlice)> make_slice = {};  ///< what it runs on one,
  const std::uint32_t* sequence = nullptr;                ///< and how long they are
};

/// The defaults that a reference may change; builders refer to them.
struct Settings {
  MlpSizes mlp;
  ResnetSizes resnet;
  GptSizes gpt;
  DecoderSizes decoder;
  LstmSizes lstm;
  TrainingOptions training;
  std::uint32_t view = 0, kernels = 0, values = 0;
};

ReferenceOption optimizer_option(Optimizer& value) {
  return {"updates",
          [&value](std::string_view text) -> std::string {
            if (const std::optional<Optimizer> named = from_name<Optimizer>(text)) {
              value = *named;
              return "";
            }
            return fmt::format("expected {}, found '{}'", alternatives(names_of<Optimizer>()), text);
          },
          [&value] { return std::string(written(value)); }};
}

std::vector<ReferenceOption> with_common(std::vector<ReferenceOption> options, Settings& s) {
  options.push_back(word_option("view", s.view, {"chain", "graph"}));
  options.push_back(word_option("kernels", s.kernels, {"cpu", "cuda", "cuda_tf32"}));
  options.push_back(word_option("values", s.values, {"fp32", "bf16", "fp8"}));
  options.push_back(optimizer_option(s.training.updates));
  options.push_back(quantity_option("rate", s.training.rates.flops, parse_flops_rate, format_flops_rate));
  options.push_back(quantity_option("bandwidth", s.training.rates.bytes, parse_bandwidth, format_bandwidth));
  return options;
}

constexpr std::int64_t many = 4096, wide = 1 << 14;

/// Of a number that is 0 where none is given: what that means is `shown`.
ReferenceOption open_option(std::string_view name, std::uint32_t& value, std::int64_t most, std::string_view shown) {
  ReferenceOption option = whole_option(name, value, 1, most);
  option.shown = [&value, shown] { return value == 0 ? std::string(shown) : std::to_string(value); };
  return option;
}

std::vector<ReferenceOption> decoder_options(Settings& s) {
  DecoderSizes& d = s.decoder;
  const auto show = [](double number) { return fmt::format("{}", number); };
  return with_common(
      {whole_option("layers", d.layers, 1, 512), whole_option("width", d.width, 1, wide),
       whole_option("heads", d.heads, 1, 256), whole_option("kv_heads", d.kv_heads, 1, 256),
       open_option("inner", d.inner, 1 << 16, "8/3 width"), whole_option("sequence", d.sequence, 1, many),
       whole_option("batch", d.batch, 1, 1024), whole_option("vocabulary", d.vocabulary, 2, 1 << 18),
       whole_option("base", d.base, 1, 1 << 30), word_option("tied", d.tied, {"no", "yes"}),
       open_option("experts", d.experts, 1 << 10, "none"), whole_option("top_k", d.top_k, 1, 64),
       quantity_option("capacity", d.capacity, parse_number, show),
       quantity_option("balance", d.balance, parse_number, show)},
      s);
}

std::vector<NamedBuilder> builders(Settings& s) {
  return {{"mlp",
           with_common({whole_option("layers", s.mlp.layers, 1, many), whole_option("width", s.mlp.width, 1, wide),
                        whole_option("batch", s.mlp.batch, 1, wide), whole_option("classes", s.mlp.classes, 1, wide)},
                       s),
           [&s] { return mlp(s.mlp, s.training); }, "its inputs are rows of numbers"},
          {"resnet",
           with_common(
               {whole_option("blocks", s.resnet.blocks, 1, 64), whole_option("channels", s.resnet.channels, 1, 1024),
                whole_option("picture", s.resnet.picture, 8, 1024), whole_option("batch", s.resnet.batch, 1, 1024),
                whole_option("classes", s.resnet.classes, 1, wide), whole_option("colors", s.resnet.colors, 1, 1024),
                word_option("block", s.resnet.block, {"basic", "bottleneck"})},
               s),
           [&s] { return resnet(s.resnet, s.training); }, "its inputs are pictures"},
          {"gpt",
           with_common(
               {whole_option("layers", s.gpt.layers, 1, 512), whole_option("width", s.gpt.width, 1, wide),
                whole_option("heads", s.gpt.heads, 1, 256), whole_option("sequence", s.gpt.sequence, 1, many),
                whole_option("batch", s.gpt.batch, 1, 1024), whole_option("vocabulary", s.gpt.vocabulary, 2, 1 << 18),
                word_option("attention", s.gpt.attention, {"eager", "fused"})},
               s),
           [&s] { return gpt(s.gpt, s.training); },
           {},
           [&s](SequenceSlice slice) { return gpt(s.gpt, s.training, slice); },
           &s.gpt.sequence},
          {"decoder", decoder_options(s), [&s] { return decoder(s.decoder, s.training); },
           "its kernels count positions from the first row of a sequence"},
          {"lstm",
           with_common({whole_option("steps", s.lstm.steps, 1, many), whole_option("width", s.lstm.width, 1, wide),
                        whole_option("batch", s.lstm.batch, 1, wide), whole_option("classes", s.lstm.classes, 1, wide)},
                       s),
           [&s] { return lstm(s.lstm, s.training); }, "its steps are its stages, each with one state as its input"}};
}

bool has_narrow_values(const Settings& s) {
  return s.values != 0;
}

void take_updates_of(const Optimizers& optimizers, TrainingOptions& training) {
  training.updates = optimizers.rest;
  training.groups = optimizers.groups;
}

void check_decoder(std::string_view reference, const DecoderSizes& d) {
  const auto complain = [&](std::string_view option, std::string what) {
    throw InputError(located(reference, {}, option, std::move(what)));
  };
  if (d.width % d.heads != 0) complain("heads", fmt::format("must divide width {}, found {}", d.width, d.heads));
  if (const std::uint32_t size = d.width / d.heads; size % 2 != 0) {
    complain("heads", fmt::format("a head's numbers are turned in pairs, and width {} leaves it {}", d.width, size));
  }
  if (d.heads % d.kv_heads != 0) {
    complain("kv_heads", fmt::format("must divide heads {}, found {}", d.heads, d.kv_heads));
  }
  if (d.experts > 0 && d.top_k > d.experts) {
    complain("top_k", fmt::format("a token goes to at most the {} experts there are, found {}", d.experts, d.top_k));
  }
  if (!(d.capacity > 0) || !std::isfinite(d.capacity)) {
    complain("capacity", fmt::format("must be above 0, found {}", d.capacity));
  }
  if (d.balance < 0) complain("balance", fmt::format("must be at least 0, found {}", d.balance));
  if (d.balance > 0 && d.experts == 0) complain("balance", "only of experts: experts=8 has some");
}

void check_combination(std::string_view reference, const Settings& s) {
  if (s.gpt.width % s.gpt.heads != 0) {
    throw InputError(
        located(reference, {}, "heads", fmt::format("must divide width {}, found {}", s.gpt.width, s.gpt.heads)));
  }
  check_decoder(reference, s.decoder);
  if (s.view == 0 && s.training.updates != Optimizer::none) {
    throw InputError(located(reference, {}, "updates", "only of view=graph; a chain's updates follow --optimizer"));
  }
}

void take_values(std::string_view reference, const Settings& s, Network& network) {
  if (!has_narrow_values(s)) return;
  if (const Op* op = op_without_bf16(network)) {
    throw InputError(located(reference, {}, "values",
                             fmt::format("'{}' has no kernel in bf16, nor has any op of kind "
                                         "'{}'; values=fp32 has",
                                         op->name, op->kind)));
  }
  narrow_values(network, s.training.rates);
  if (s.values != 2) return;
  if (const std::optional<std::string> why = products_in_fp8(network, s.training.rates)) {
    throw InputError(located(reference, {}, "values", *why));
  }
}

}  // namespace

const std::vector<std::string>& network_names() {
  static const std::vector<std::string> names = [] {
    Settings settings;
    std::vector<std::string> all;
    for (const NamedBuilder& each : builders(settings)) all.emplace_back(each.name);
    return all;
  }();
  return names;
}

bool is_network(std::string_view reference) {
  return std::ranges::find(network_names(), reference_name(reference)) != network_names().end();
}

NamedNetwork named_network(std::string_view reference, std::optional<Optimizers> updates) {
  Settings settings;
  for (const NamedBuilder& builder : builders(settings)) {
    if (builder.name != reference_name(reference)) continue;
    set_reference_options(reference, builder.options);
    check_combination(reference, settings);
    if (updates) take_updates_of(*updates, settings.training);
    NamedNetwork named{builder.make(), static_cast<View>(settings.view), static_cast<KernelSet>(settings.kernels)};
    take_values(reference, settings, named.network);
    named.network.graph.name = reference;
    named.network.graph.source.notes = {{"network", std::string(reference)},
                                        {"times", fmt::format("the slower of operations at {} and traffic at {}",
                                                              format_flops_rate(settings.training.rates.flops),
                                                              format_bandwidth(settings.training.rates.bytes))}};
    return named;
  }
  throw InputError(located(reference, {}, "", "no such network"));
}

std::vector<std::shared_ptr<const Network>> network_in_slices(std::string_view reference,
                                                              std::optional<Optimizers> updates, std::uint32_t slices) {
  Settings settings;
  std::vector<std::shared_ptr<const Network>> made;
  for (const NamedBuilder& builder : builders(settings)) {
    if (builder.name != reference_name(reference)) continue;
    if (!builder.make_slice) {
      throw InputError(located(reference, {}, "", fmt::format("has no sequence to slice: {}", builder.cannot_slice)));
    }
    set_reference_options(reference, builder.options);
    check_combination(reference, settings);
    if (settings.gpt.attention == static_cast<std::uint32_t>(GptAttention::fused)) {
      throw InputError(located(reference, {}, "attention",
                               "fused attention has no kernels for slices of a sequence; attention=eager has"));
    }
    if (has_narrow_values(settings)) {
      throw InputError(located(reference, {}, "values", "slices of a sequence have kernels in fp32 only"));
    }
    if (*builder.sequence % slices != 0) {
      throw InputError(
          located(reference, {}, "sequence",
                  fmt::format("{} positions cannot be cut into {} equal slices", *builder.sequence, slices)));
    }
    if (updates) take_updates_of(*updates, settings.training);
    for (std::uint32_t j = 0; j < slices; ++j) {
      made.push_back(std::make_shared<const Network>(builder.make_slice({j, slices})));
    }
  }
  return made;
}

KernelSet kernels_of(std::string_view reference) {
  return named_network(reference).kernels;
}

std::optional<std::string> network_reference(const Source& source) {
  const auto found = std::ranges::find(source.notes, "network", [](const auto& note) { return note.first; });
  if (found == source.notes.end()) return std::nullopt;
  return found->second;
}

std::vector<ReferenceNumber> network_numbers(std::string_view reference) {
  Settings settings;
  for (const NamedBuilder& builder : builders(settings)) {
    if (builder.name == reference_name(reference)) return numbers_in(reference, builder.options);
  }
  return {};
}

std::vector<std::string> network_help() {
  Settings settings;
  std::vector<std::string> lines;
  for (const NamedBuilder& builder : builders(settings)) {
    lines.push_back(reference_help(builder.name, builder.options));
  }
  return lines;
}

}  // namespace plimsoll
