#include "platforms/efficiency_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <utility>

#include "platforms/read_peak.h"
#include "sim/core/names.h"
#include "sim/io/fields.h"
#include "sim/io/quantity.h"
#include "sim/io/shipped.h"
#include "sim/io/text_file.h"
#include "sim/io/yaml_document.h"

namespace plimsoll {
namespace {

using enum Need;

constexpr ShippedFiles efficiency_files{"file of efficiencies", "platforms/efficiency", ".yaml"};
constexpr std::string_view efficiency_format = "plimsoll.efficiency.v1";

constexpr double least_share = 1e-6;
constexpr double largest_size = 1e9;
constexpr double most_sustained = 10;

void read_sizes(const YamlCursor& cursor, std::vector<double>& sizes) {
  for (const YamlCursor& element : cursor.elements()) {
    const double size = element.number(1, largest_size);
    if (!sizes.empty() && !(size > sizes.back())) {
      element.complain(fmt::format("sizes ascend, expected more than {}, {}", sizes.back(), element.found()));
    }
    sizes.push_back(size);
  }
  if (cursor.is_list() && sizes.empty()) cursor.complain("expected at least one size");
}

/// What the points of a grid say: a key and its values in (0, most].
struct GridValues {
  std::string_view key;
  double most = 0;
};
constexpr GridValues share_values{"share", largest_share}, time_values{"us", 1e9};

/// Keys `names`, and that of the values; nothing where something is wrong, which is complained about.
std::optional<SizeGrid> read_grid(const YamlCursor& cursor, const std::vector<std::string_view>& names,
                                  const GridValues& of = share_values) {
  std::vector<std::vector<double>> sizes(names.size());
  std::vector<bool> is_given(names.size());
  std::vector<double> logarithms;
  std::optional<YamlCursor> shares;
  cursor.object([&](std::string_view key, const YamlCursor& value) {
    const auto axis = std::ranges::find(names, key);
    if (axis != names.end()) {
      const auto at = static_cast<std::size_t>(axis - names.begin());
      is_given[at] = true;
      return read_sizes(value, sizes[at]);
    }
    if (key == of.key) {
      shares = value;
      return;
    }
    std::vector<std::string_view> known = names;
    known.push_back(of.key);
    value.complain_unknown_key(known);
  });
  if (!cursor.is_object()) return std::nullopt;
  std::size_t points = 1;
  for (std::size_t a = 0; a < names.size(); ++a) {
    if (!is_given[a]) cursor.complain_missing_key(names[a]);
    points *= sizes[a].size();
    for (std::size_t i = 1; i < sizes[a].size(); ++i) {
      if (!(sizes[a][i] > sizes[a][i - 1])) return std::nullopt;
    }
  }
  if (!shares) {
    cursor.complain_missing_key(of.key);
    return std::nullopt;
  }
  const std::vector<YamlCursor> elements = shares->elements();
  for (const YamlCursor& element : elements) {
    const double share = element.number(least_share, of.most);
    logarithms.push_back(std::log(std::max(share, least_share)));
  }
  if (!shares->is_list()) return std::nullopt;
  if (elements.size() != points) {
    shares->complain(
        fmt::format("expected a number for each of the {} combinations of sizes, found {}", points, elements.size()));
    return std::nullopt;
  }
  if (points == 0) return std::nullopt;
  return SizeGrid(std::move(sizes), std::move(logarithms));
}

const std::vector<std::string_view> product_sizes{"m", "n", "k"};
const std::vector<std::string_view> attention_sizes{"sequence", "heads"};

using ProductGrids = std::map<std::string, SizeGrid, std::less<>>;

template <ProductGrids Efficiency::*grids>
void read_products(Efficiency& e, const YamlCursor& cursor) {
  cursor.object([&](std::string_view dtype, const YamlCursor& grid) {
    if (std::optional<SizeGrid> read = read_grid(grid, product_sizes)) (e.*grids).emplace(dtype, *std::move(read));
  });
}

/// By dtype a list of grids, each with its head size.
void read_attention(Efficiency& e, const YamlCursor& cursor) {
  cursor.object([&](std::string_view dtype, const YamlCursor& of_sizes) {
    of_sizes.object([&](std::string_view head_size, const YamlCursor& grid) {
      const Parsed<std::int64_t> size = parse_integer(head_size);
      if (!size.fine() || size.value < 1 || size.value > 65536) {
        return grid.complain("expected a head size from 1 to 65536 as the key");
      }
      std::optional<SizeGrid> read = read_grid(grid, attention_sizes);
      if (read) e.attention[std::string(dtype)].emplace(static_cast<double>(size.value), *std::move(read));
    });
  });
}

/// Whose spread a file may state, and between which limits.
constexpr std::string_view spread_sorts[] = {"product",
                                             "unaligned_product",
                                             "product_without_table",
                                             "batched_product",
                                             "fp32_product",
                                             "attention",
                                             "fp32_batched_product",
                                             "fp8_product",
                                             "elementwise",
                                             "norm",
                                             "softmax",
                                             "optimizer",
                                             "convolution",
                                             "collectives"};
constexpr double least_spread = 0.01, most_spread = 100;

const std::vector<std::string_view> collective_sizes{"ranks", "bytes"};
constexpr double microsecond = 1e-6;

/// By operation, with times in microseconds; the network's share, and whether switches sum.
void read_collectives(Efficiency& e, const YamlCursor& cursor) {
  cursor.object([&](std::string_view key, const YamlCursor& value) {
    if (key == "network") {
      e.network_share = value.number(least_share, 1);
      return;
    }
    if (key == "nvls") {
      e.nvls = value.boolean();
      return;
    }
    const std::optional<CollectiveKind> kind = from_name<CollectiveKind>(key);
    if (!kind || *kind == CollectiveKind::broadcast) {
      return value.complain_unknown_key(
          std::vector<std::string_view>{"all_reduce", "reduce_scatter", "all_gather", "all_to_all", "network", "nvls"});
    }
    std::optional<SizeGrid> read = read_grid(value, collective_sizes, time_values);
    if (!read) return;
    std::vector<double> seconds = read->values();
    for (double& logarithm : seconds) logarithm += std::log(microsecond);
    e.collectives.emplace(*kind, SizeGrid(read->sizes(), std::move(seconds)));
  });
}

/// By sort `[low, high]`.
void read_spread(Efficiency& e, const YamlCursor& cursor) {
  cursor.object([&](std::string_view sort, const YamlCursor& value) {
    if (std::ranges::find(spread_sorts, sort) == std::end(spread_sorts)) {
      return value.complain_unknown_key({std::begin(spread_sorts), std::end(spread_sorts)});
    }
    const std::vector<YamlCursor> ends = value.elements();
    if (value.is_list() && ends.size() != 2)
      value.complain(fmt::format("expected [low, high], found {} numbers", ends.size()));
    if (ends.size() != 2) return;
    const Spread read{ends[0].number(least_spread, most_spread), ends[1].number(least_spread, most_spread)};
    if (read.high < read.low) ends[1].complain(fmt::format("expected {} at least, {}", read.low, ends[1].found()));
    e.spread.emplace(sort, read);
  });
}

double share_at(const YamlCursor& c) {
  return c.number(least_share, largest_share);
}

/// A share for each dtype.
void read_by_dtype(Efficiency::ByDtype& shares, const YamlCursor& cursor) {
  cursor.object([&](std::string_view dtype, const YamlCursor& value) { shares.emplace(dtype, share_at(value)); });
}

/// The shares by dtype, by their keys.
struct SharesByDtype {
  std::string_view key;
  Efficiency::ByDtype Efficiency::*of_dtype;
};
constexpr SharesByDtype shares_by_dtype[] = {
    {"product_without_table", &Efficiency::product_without_table},
    {"unaligned_product", &Efficiency::unaligned_product},
    {"convolution", &Efficiency::convolution},
    {"convolution_input_gradient", &Efficiency::convolution_input_gradient},
    {"convolution_weight_gradient", &Efficiency::convolution_weight_gradient},
    {"channels_last_convolution", &Efficiency::channels_last_convolution},
    {"channels_last_convolution_input_gradient", &Efficiency::channels_last_convolution_input_gradient},
    {"channels_last_convolution_weight_gradient", &Efficiency::channels_last_convolution_weight_gradient},
};

template <std::size_t at>
void read_shares_by_dtype(Efficiency& e, const YamlCursor& cursor) {
  read_by_dtype(e.*shares_by_dtype[at].of_dtype, cursor);
}

const Field<Efficiency, const YamlCursor&> efficiency_fields[] = {
    {"format", required,
     [](Efficiency&, const YamlCursor& c) {
       if (c.is_scalar() && c.string() != efficiency_format) {
         c.complain(fmt::format("expected {}, {}", efficiency_format, c.found()));
       }
     }},
    {"name", required, [](Efficiency& e, const YamlCursor& c) { e.name = c.string(); }},
    {"source", required, [](Efficiency&, const YamlCursor& c) { c.string(); }},
    {"model", required, [](Efficiency& e, const YamlCursor& c) { e.model = c.string(); }},
    {"peak", optional, [](Efficiency& e, const YamlCursor& c) { e.peak = read_peak(c); }},
    {"memory_bandwidth", optional, [](Efficiency& e, const YamlCursor& c) { e.memory_bandwidth = c.bandwidth(); }},
    {"kernel_floor", optional, [](Efficiency& e, const YamlCursor& c) { e.kernel_floor = c.seconds(); }},
    {"sustained", optional, [](Efficiency& e, const YamlCursor& c) { e.sustained = c.number(1, most_sustained); }},
    {"product", optional, read_products<&Efficiency::product>},
    {"batched_product_by_size", optional, read_products<&Efficiency::batched_product_by_size>},
    {"attention", optional, read_attention},
    {"collectives", optional, read_collectives},
    {"spread", optional, read_spread},
    {"attention_backward", optional, [](Efficiency& e, const YamlCursor& c) { e.attention_backward = share_at(c); }},
    {"batched_product", optional, [](Efficiency& e, const YamlCursor& c) { e.batched_product = share_at(c); }},
    {"elementwise", optional, [](Efficiency& e, const YamlCursor& c) { e.elementwise = share_at(c); }},
    {"norm", optional, [](Efficiency& e, const YamlCursor& c) { e.norm = share_at(c); }},
    {"softmax", optional, [](Efficiency& e, const YamlCursor& c) { e.softmax = share_at(c); }},
    {"optimizer", optional, [](Efficiency& e, const YamlCursor& c) { e.optimizer = share_at(c); }},
    {shares_by_dtype[0].key, optional, read_shares_by_dtype<0>},
    {shares_by_dtype[1].key, optional, read_shares_by_dtype<1>},
    {shares_by_dtype[2].key, optional, read_shares_by_dtype<2>},
    {shares_by_dtype[3].key, optional, read_shares_by_dtype<3>},
    {shares_by_dtype[4].key, optional, read_shares_by_dtype<4>},
    {shares_by_dtype[5].key, optional, read_shares_by_dtype<5>},
    {shares_by_dtype[6].key, optional, read_shares_by_dtype<6>},
    {shares_by_dtype[7].key, optional, read_shares_by_dtype<7>},
};

/// A list on lines of at most 110 columns.
std::string written_list(std::string_view key, const std::vector<std::string>& words, std::size_t indent) {
  std::string text, line = fmt::format("{:{}}{}: [", "", indent, key);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string word = words[i] + (i + 1 == words.size() ? "]" : ",");
    if (line.size() + 1 + word.size() > 110) {
      text += line + "\n";
      line = fmt::format("{:{}}", "", indent + 1);
    }
    line += (line.ends_with('[') ? "" : " ") + word;
  }
  return text + line + "\n";
}

std::string written_grid(const SizeGrid& grid, const std::vector<std::string_view>& names, std::size_t indent,
                         std::string_view key = share_values.key, double unit = 1) {
  std::string text;
  for (std::size_t a = 0; a < names.size(); ++a) {
    std::vector<std::string> sizes;
    for (const double size : grid.sizes()[a]) sizes.push_back(fmt::format("{}", size));
    text += written_list(names[a], sizes, indent);
  }
  std::vector<std::string> shares;
  for (const double value : grid.values()) shares.push_back(fmt::format("{:.4g}", std::exp(value) / unit));
  return text + written_list(key, shares, indent);
}

void write_products(std::string_view key, const ProductGrids& grids, std::string& text) {
  if (!grids.empty()) text += fmt::format("{}:\n", key);
  for (const auto& [dtype, grid] : grids) text += fmt::format("  {}:\n", dtype) + written_grid(grid, product_sizes, 4);
}

}  // namespace

Efficiency load_efficiency(std::string_view name_or_path, std::string_view also) {
  const std::vector<std::string> shipped = shipped_efficiencies();
  if (!std::filesystem::exists(name_or_path) && std::ranges::find(shipped, name_or_path) == shipped.end()) {
    std::vector<std::string_view> known(shipped.begin(), shipped.end());
    if (!also.empty()) known.push_back(also);
    const std::span<const std::string_view> names(known);
    throw InputError(fmt::format("efficiency: expected a file or {}, found '{}'{}", alternatives(names), name_or_path,
                                 suggestion(name_or_path, names)));
  }
  const std::filesystem::path path = find_file(name_or_path, efficiency_files);
  return parse_efficiency(read_text_file(path), path.string());
}

Efficiency parse_efficiency(const std::string& text, std::string file_name) {
  YamlDocument document(text, std::move(file_name));
  const YamlCursor root = document.root();
  std::optional<YamlCursor> of_platform;
  bool is_platform = false;
  if (root.is_object()) {
    root.object([&](std::string_view key, const YamlCursor& value) {
      is_platform = is_platform || (key == "format" && value.is_scalar() && value.string() == "plimsoll.platform.v1");
      if (key == "efficiency" && value.is_object()) of_platform = value;
    });
  }
  if (is_platform && !of_platform) {
    root.complain("a platform in which no efficiencies are written out");
    document.throw_if_any();
  }
  const Efficiency efficiency = efficiency_at(is_platform && of_platform ? *of_platform : root);
  document.throw_if_any();
  return efficiency;
}

Efficiency efficiency_at(const YamlCursor& cursor) {
  Efficiency efficiency;
  read_fields(cursor, efficiency_fields, efficiency);
  return efficiency;
}

std::string quoted_in_yaml(std::string_view text) {
  std::string made = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') made += '\\';
    made += c == '\n' ? ' ' : c;
  }
  return made + '"';
}

std::vector<std::string> shipped_efficiencies() {
  return shipped_names(efficiency_files);
}

std::string written_efficiency(const Efficiency& efficiency, const std::string& source) {
  std::string text =
      fmt::format("format: {}\nname: {}\nsource: {}\nmodel: {}\n", efficiency_format, quoted_in_yaml(efficiency.name),
                  quoted_in_yaml(source), quoted_in_yaml(efficiency.model));
  std::vector<std::string> peaks;
  for (const auto& [dtype, rate] : efficiency.peak)
    peaks.push_back(fmt::format("{}: {:.5g} TFLOPS", dtype, rate.value / 1e12));
  if (!peaks.empty()) text += fmt::format("peak: {{{}}}\n", fmt::join(peaks, ", "));
  if (efficiency.memory_bandwidth)
    text += fmt::format("memory_bandwidth: {:.5g} GBps\n", efficiency.memory_bandwidth->value / 1e9);
  if (efficiency.kernel_floor > Seconds{0}) {
    text += fmt::format("kernel_floor: {:.4g} us\n", 1e6 * efficiency.kernel_floor.value);
  }
  if (efficiency.sustained != 1) text += fmt::format("sustained: {:.4g}\n", efficiency.sustained);
  const std::pair<std::string_view, double> shares[] = {{"elementwise", efficiency.elementwise},
                                                        {"norm", efficiency.norm},
                                                        {"softmax", efficiency.softmax},
                                                        {"optimizer", efficiency.optimizer},
                                                        {"batched_product", efficiency.batched_product},
                                                        {"attention_backward", efficiency.attention_backward}};
  for (const auto& [key, share] : shares) {
    if (share != 1) text += fmt::format("{}: {:.4g}\n", key, share);
  }
  for (const auto& [key, of_dtype] : shares_by_dtype) {
    const Efficiency::ByDtype& by_dtype = efficiency.*of_dtype;
    std::vector<std::string> words;
    for (const auto& [dtype, share] : by_dtype) words.push_back(fmt::format("{}: {:.4g}", dtype, share));
    if (!words.empty()) text += fmt::format("{}: {{{}}}\n", key, fmt::join(words, ", "));
  }
  if (!efficiency.spread.empty()) text += "spread:\n";
  for (const auto& [sort, of] : efficiency.spread)
    text += fmt::format("  {}: [{:.3g}, {:.3g}]\n", sort, of.low, of.high);
  write_products("product", efficiency.product, text);
  write_products("batched_product_by_size", efficiency.batched_product_by_size, text);
  if (!efficiency.attention.empty()) text += "attention:\n";
  for (const auto& [dtype, of_sizes] : efficiency.attention) {
    text += fmt::format("  {}:\n", dtype);
    for (const auto& [size, grid] : of_sizes) {
      text += fmt::format("    {}:\n", size) + written_grid(grid, attention_sizes, 6);
    }
  }
  const bool has_collectives = efficiency.network_share != 1 || efficiency.nvls || !efficiency.collectives.empty();
  if (has_collectives) text += "collectives:\n";
  if (efficiency.network_share != 1) text += fmt::format("  network: {:.4g}\n", efficiency.network_share);
  if (efficiency.nvls) text += "  nvls: true\n";
  for (const auto& [kind, grid] : efficiency.collectives) {
    text +=
        fmt::format("  {}:\n", written(kind)) + written_grid(grid, collective_sizes, 4, time_values.key, microsecond);
  }
  return text;
}

}  // namespace plimsoll
