#include "experiments/report/gantt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "experiments/report/svg_text.h"
#include "sim/core/tolerance.h"
#include "sim/core/units.h"
#include "sim/io/quantity.h"

namespace plimsoll {
namespace {

struct Fill {
  std::string_view what, name, colour;
  bool is_dark = false;
};

// The colours of report_page/timeline.js, where it has them.
constexpr std::array<Fill, 11> fills{{{"forward", "forward", "#0072B2", true},
                                      {"backward", "backward", "#56B4E9"},
                                      {"weight_gradient", "weight gradients", "#F0E442"},
                                      {"recompute", "recompute", "#E69F00"},
                                      {"update", "update", "#009E73", true},
                                      {"activation", "sends activations", "#CC79A7"},
                                      {"gradient", "sends gradients", "#8C6BB1"},
                                      {"parameter", "copies parameters", "#D55E00"},
                                      {"parameter_gradient", "copies their gradients", "#F2A977"},
                                      {"collective", "collective", "#5b3a1e"},
                                      {"other", "other", "#5b6672"}}};

const Fill& fill_of(std::string_view what) {
  const auto* const found = std::ranges::find(fills, what, &Fill::what);
  return found == fills.end() ? fills.back() : *found;
}

std::string box(double x, double y, double width, double height) {
  return fmt::format("M{} {}h{}v{}h-{}z", svg_pixels(x), svg_pixels(y), svg_pixels(width), svg_pixels(height),
                     svg_pixels(width));
}

constexpr std::int64_t most_lines = 3;
constexpr double left = 56, right = 78, compute_height = 18, copy_height = 5, memory_height = 24, space = 9;

class Chart {
 public:
  Chart(const Json& timeline, std::string title)
      : timeline_(timeline), title_(std::move(title)), end_(std::max(timeline["makespan_s"].get<double>(), 1e-30)) {
    for (const Json& device : timeline_["devices"]) {
      for (const Json& row : device["memory"]) fullest_ = std::max(fullest_, row[1].get<double>());
    }
    width_ = std::clamp(end_ / median_forward() * 15, 620.0, 2600.0);
  }

  std::string svg() {
    y_ = title_.empty() ? 12 : 30;
    legend();
    for (const Json& device : timeline_["devices"]) draw(device);
    axis();
    return svg_page({left + width_ + right, y_}, left, title_, body_);
  }

 private:
  double at(double date) const { return left + std::clamp(date / end_, 0.0, 1.0) * width_; }

  double median_forward() const {
    std::vector<double> lengths;
    for (const Json& device : timeline_["devices"]) {
      for (const Json& lane : device["lanes"]) {
        for (const Json& span : lane["spans"]) {
          if (span[2] == "forward") lengths.push_back(span[1].get<double>() - span[0].get<double>());
        }
      }
    }
    std::ranges::sort(lengths);
    return lengths.empty() || lengths[lengths.size() / 2] <= 0 ? end_ : lengths[lengths.size() / 2];
  }

  void text(double x, double y, std::string_view anchor, std::string_view words) {
    body_ += fmt::format("<text x=\"{}\" y=\"{}\"{}>{}</text>\n", svg_pixels(x), svg_pixels(y),
                         anchor.empty() ? "" : fmt::format(" text-anchor=\"{}\"", anchor), svg_escaped(words));
  }

  /// What there is, in the order of `fills`.
  void legend() {
    std::set<std::string_view> used;
    bool has_parts = false;
    for (const Json& device : timeline_["devices"]) {
      for (const Json& lane : device["lanes"]) {
        for (const Json& span : lane["spans"]) {
          used.insert(fill_of(span[2].get_ref<const std::string&>()).what);
          has_parts = has_parts || span[4] > 0;
        }
      }
    }
    double x = left;
    const auto entry = [&](std::string_view colour, double height, std::string_view name) {
      const double width = 28 + 6.0 * static_cast<double>(name.size());
      if (x > left && x + width > left + width_ + right) {
        x = left;
        y_ += 14;
      }
      body_ += fmt::format("<path fill=\"{}\" d=\"{}\"/>", colour, box(x, y_ + 1 - height, 12, height));
      text(x + 16, y_, "", name);
      x += width;
    };
    for (const Fill& fill : fills) {
      if (used.contains(fill.what)) entry(fill.colour, 9, fill.name);
    }
    entry("#9ca3af", 9, "memory");
    if (has_parts) entry("#000", 1.2, "lines below: a device's further parts");
    y_ += 10;
  }

  void draw_lane(const Json& lane, double height, bool has_numbers) {
    std::map<std::string_view, std::string> outlines;  // one path a colour: the file stays small
    std::map<bool, std::string> numbers;
    std::string lines;
    for (const Json& span : lane["spans"]) {
      const Fill& fill = fill_of(span[2].get_ref<const std::string&>());
      const double from = at(span[0].get<double>()), length = at(span[1].get<double>()) - from;
      const double seen = length > 1.5 ? length - 0.6 : length;
      outlines[fill.what] += box(from, y_, seen, height);
      if (!has_numbers || fill.what == "update") continue;
      for (int line = 0; line < std::min(span[4].get<std::int64_t>(), most_lines); ++line) {
        lines += box(from, y_ + height - 1.2 - 2 * line, seen, 1.2);
      }
      const std::string number = std::to_string(span[3].get<std::int64_t>() + 1);
      if (length < 6.2 * static_cast<double>(number.size()) + 1.5) continue;
      numbers[fill.is_dark] += fmt::format("<text x=\"{}\" y=\"{}\">{}</text>", svg_pixels(from + seen / 2),
                                           svg_pixels(y_ + height - 5.6), number);
    }
    for (const auto& [what, outline] : outlines) {
      body_ += fmt::format("<path fill=\"{}\" d=\"{}\"><title>{}</title></path>\n", fill_of(what).colour, outline,
                           fill_of(what).name);
    }
    if (!lines.empty()) body_ += fmt::format("<path fill=\"#000\" d=\"{}\"/>\n", lines);
    for (const auto& [is_white, all] : numbers) {
      body_ += fmt::format("<g fill=\"{}\" text-anchor=\"middle\">{}</g>\n", is_white ? "#fff" : "#000", all);
    }
    y_ += height + 1;
  }

  void draw_memory(const Json& rows) {
    const double floor = y_ + memory_height;
    const double scale = fullest_ > 0 ? (memory_height - 2) / fullest_ : 0;
    std::string outline = fmt::format("M{} {}", svg_pixels(left), svg_pixels(floor));
    double most = 0;
    for (const Json& row : rows) {
      const double bytes = std::max(0.0, row[1].get<double>());
      most = std::max(most, bytes);
      outline += fmt::format("H{}V{}", svg_pixels(at(row[0].get<double>())), svg_pixels(floor - bytes * scale));
    }
    body_ += fmt::format("<path fill=\"#9ca3af\" d=\"{}H{}V{}z\"/>\n", outline, svg_pixels(left + width_),
                         svg_pixels(floor));
    text(left + width_ + 5, floor - 2, "", format_bytes(Bytes{static_cast<std::int64_t>(most)}));
    y_ = floor + space;
  }

  void draw(const Json& device) {
    text(left - 5, y_ + compute_height - 5, "end", device["name"].get_ref<const std::string&>());
    bool is_first = true;
    for (const Json& lane : device["lanes"]) {
      const bool computes = std::exchange(is_first, false) && lane["name"] == "compute";
      draw_lane(lane, computes ? compute_height : copy_height, computes);
    }
    draw_memory(device["memory"]);
  }

  /// Dates at round distances, at most ten.
  void axis() {
    const auto [unit, size] = end_ >= 1      ? std::pair("s", 1.0)
                              : end_ >= 1e-3 ? std::pair("ms", 1e-3)
                                             : std::pair("us", 1e-6);
    double step = std::pow(10, std::floor(std::log10(end_ / size)));
    while (end_ / size / step < 4) step /= step / std::pow(10, std::floor(std::log10(step))) < 1.5 ? 2 : 2.5;
    while (end_ / size / step > 10) step *= 2;
    for (double date = 0; date <= end_ / size * (1 + model_tolerance); date += step) {
      text(at(date * size), y_ + 4, "middle", fmt::format("{:.4g}{}", date, date > 0 ? "" : fmt::format(" {}", unit)));
    }
    y_ += 12;
  }

  const Json& timeline_;
  std::string title_, body_;
  double end_, fullest_ = 0, width_ = 0, y_ = 0;
};

}  // namespace

double idle_share(const Json& timeline) {
  double busy = 0, all = 0;
  for (const Json& device : timeline["devices"]) {
    all += timeline["makespan_s"].get<double>();
    for (const Json& lane : device["lanes"]) {
      if (lane["name"] != "compute") continue;
      for (const Json& span : lane["spans"]) busy += span[1].get<double>() - span[0].get<double>();
    }
  }
  return all > 0 ? std::clamp(1 - busy / all, 0.0, 1.0) : 0;
}

std::string gantt_svg(const Json& timeline, const std::string& title) {
  return Chart(timeline, title).svg();
}

}  // namespace plimsoll
