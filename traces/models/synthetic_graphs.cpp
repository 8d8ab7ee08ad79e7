#include "traces/models/synthetic_graphs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "sim/io/input_error.h"
#include "sim/io/reference_options.h"
#include "traces/imports/graph_proportions.h"
#include "traces/models/op_networks.h"

namespace plimsoll {
namespace {

/// A network of ParDNN's: its sizes, and what the paper's tables 3 and 5 say of the graph.
struct PublishedNetwork {
  std::string_view name, first_size, second_size;
  std::uint32_t first, second;
  double parallelism, communication;
  std::uint32_t ops;  ///< of ours, with these sizes and any seed
  ProportionedGraph (*make)(std::uint32_t, std::uint32_t, std::uint64_t seed);
};

constexpr std::array published_networks{
    PublishedNetwork{"rnn", "layers", "steps", 8, 28, 10.45, 14.5, 10'368, rnn_graph},
    PublishedNetwork{"crn", "filters", "words", 12, 8, 49, 57, 23'172, crn_graph},
    PublishedNetwork{"wrn", "units", "slices", 101, 51, 1.16, 13.02, 186'961, wrn_graph},
    PublishedNetwork{"trn", "layers", "heads", 52, 60, 2, 13.7, 203'280, trn_graph},
    PublishedNetwork{"e3d", "steps", "layers", 19, 4, 3.3, 1.12, 54'646, e3d_graph}};

struct NetworkOptions {
  std::uint32_t first = 0, second = 0;  ///< 0: not given
  std::uint32_t ops = 0;                ///< as above
  double parallelism = 0, communication = 0;
  bool gives_parallelism = false;
  std::uint64_t seed = 1;
};

constexpr std::uint32_t largest_size = 100'000, most_ops = 2'000'000;

ReferenceOption size_option(std::string_view name, std::uint32_t& size, std::uint32_t shown) {
  ReferenceOption option = whole_option(name, size, 1, largest_size);
  option.shown = [shown] { return std::to_string(shown); };
  return option;
}

/// A number from 0.001 to 10,000.
ReferenceOption ratio_option(std::string_view name, double& ratio, bool* given) {
  return {name,
          [&ratio, given](std::string_view text) -> std::string {
            constexpr double least = 0.001, most = 10'000;
            const Parsed<double> parsed = parse_number(text);
            if (!parsed.fine() || !(parsed.value >= least && parsed.value <= most)) {
              return fmt::format("expected a number from 0.001 to 10000, found '{}'", text);
            }
            ratio = parsed.value;
            if (given != nullptr) *given = true;
            return "";
          },
          [&ratio] { return fmt::format("{}", ratio); }};
}

std::vector<ReferenceOption> options_of(const PublishedNetwork& network, NetworkOptions& options) {
  options.parallelism = network.parallelism;
  options.communication = network.communication;
  ReferenceOption ops = whole_option("ops", options.ops, 100, most_ops);
  ops.shown = [] { return "free"; };
  return {size_option(network.first_size, options.first, network.first),
          size_option(network.second_size, options.second, network.second),
          ops,
          ratio_option("dop", options.parallelism, &options.gives_parallelism),
          ratio_option("ccr", options.communication, nullptr),
          quantity_option(
              "seed", options.seed,
              [](std::string_view text) {
                const Parsed<std::int64_t> parsed = parse_integer(text);
                return Parsed<std::uint64_t>{static_cast<std::uint64_t>(parsed.value), parsed.complaint};
              },
              [](std::uint64_t seed) { return std::to_string(seed); })};
}

struct NetworkSizes {
  std::uint32_t first = 0, second = 0;
};

[[noreturn]] void refuse(std::string_view reference, std::string_view key, std::string_view what) {
  throw InputError(located(reference, {}, key, what));
}

/// How often `ops` holds so many ops, at least once.
std::uint32_t times_in(std::uint32_t ops, double each) {
  return static_cast<std::uint32_t>(std::clamp(std::round(ops / each), 1.0, static_cast<double>(largest_size)));
}

/// So that there are about as many ops as asked for: the size that is not given follows; of two first the
/// first, then the second makes up for what that was rounded.
NetworkSizes sizes_for(const PublishedNetwork& network, const NetworkOptions& options, std::string_view reference) {
  NetworkSizes sizes{options.first > 0 ? options.first : network.first,
                     options.second > 0 ? options.second : network.second};
  double of_pair = static_cast<double>(network.ops) / (static_cast<double>(network.first) * network.second);
  const double ops = of_pair * sizes.first * sizes.second;
  if (options.ops == 0) {
    if (ops <= most_ops) return sizes;
    refuse(reference, "", fmt::format("about {:.0f} ops, expected at most {}", ops, most_ops));
  }
  if (options.first > 0 && options.second > 0) {
    refuse(reference, "ops",
           fmt::format("given together with '{}' and '{}', which already determine it", network.first_size,
                       network.second_size));
  }
  constexpr int rounds = 3;  // ops at the borders of a network are not in proportion to its sizes
  for (int round = 0; round < rounds; ++round) {
    const NetworkSizes before = sizes;
    if (options.first > 0) {
      sizes.second = times_in(options.ops, of_pair * sizes.first);
    } else {
      sizes.second = options.second > 0 ? options.second : network.second;
      sizes.first = times_in(options.ops, of_pair * sizes.second);
      if (options.second == 0) sizes.second = times_in(options.ops, of_pair * sizes.first);
    }
    if (sizes.first == before.first && sizes.second == before.second) break;
    const std::size_t made = network.make(sizes.first, sizes.second, options.seed).graph.ops.size();
    of_pair = static_cast<double>(made) / (static_cast<double>(sizes.first) * sizes.second);
  }
  return sizes;
}

}  // namespace

bool is_synthetic_graph(std::string_view reference) {
  return std::ranges::count(published_networks, reference_name(reference), &PublishedNetwork::name) > 0;
}

Graph synthetic_graph(std::string_view reference) {
  const auto network = std::ranges::find(published_networks, reference_name(reference), &PublishedNetwork::name);
  if (network == published_networks.end()) throw InputError(located(reference, {}, "", "no such network"));
  NetworkOptions options;
  set_reference_options(reference, options_of(*network, options));
  const NetworkSizes sizes = sizes_for(*network, options, reference);
  Graph graph =
      scaled_to(network->make(sizes.first, sizes.second, options.seed), options.parallelism, options.communication);
  const GraphProportions made = proportions_of(graph);
  constexpr double tolerance = 0.01;
  if (options.gives_parallelism &&
      !(std::abs(made.parallelism() - options.parallelism) <= tolerance * options.parallelism)) {
    refuse(reference, "dop",
           fmt::format("these sizes allow no {} than {:.4g}, found {:g}",
                       made.parallelism() < options.parallelism ? "more" : "less", made.parallelism(),
                       options.parallelism));
  }
  graph.name = reference;
  graph.source.device = "Tesla V100-SXM3-32GB";
  graph.source.notes = {
      {"synthetic",
       "nothing was measured: dependences of the network that the name says, times and bytes drawn and "
       "scaled to the two ratios; the device is the one whose times these are taken for"},
      {std::string(network->first_size), std::to_string(sizes.first)},
      {std::string(network->second_size), std::to_string(sizes.second)},
      {"dop", fmt::format("{:.4g}", made.parallelism())},
      {"ccr", fmt::format("{:.4g}", made.communication())},
      {"sending", "25 us and bytes at 130 GB/s for each value that an op reads of another"},
      {"seed", std::to_string(options.seed)}};
  return graph;
}

std::vector<ReferenceNumber> synthetic_graph_numbers(std::string_view reference) {
  for (const PublishedNetwork& network : published_networks) {
    NetworkOptions options;
    if (network.name == reference_name(reference)) return numbers_in(reference, options_of(network, options));
  }
  return {};
}

std::vector<std::string> synthetic_graph_names() {
  std::vector<std::string> names;
  for (const PublishedNetwork& network : published_networks) names.emplace_back(network.name);
  return names;
}

std::vector<std::string> synthetic_graph_help() {
  std::vector<std::string> lines;
  for (const PublishedNetwork& network : published_networks) {
    NetworkOptions options;
    lines.push_back(reference_help(network.name, options_of(network, options)));
  }
  return lines;
}

}  // namespace plimsoll
