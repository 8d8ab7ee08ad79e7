#include "experiments/report/mesh_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <vector>

#include "experiments/report/svg_text.h"
#include "sim/core/units.h"
#include "sim/io/quantity.h"

namespace plimsoll {
namespace {

// Light enough for black text: those of Okabe and Ito, and two more.
constexpr std::array<std::string_view, 8> dimension_fills{"#56B4E9", "#E69F00", "#5fcfaf", "#F0E442",
                                                          "#CC79A7", "#F2A977", "#b9a3e3", "#b7c4a1"};

constexpr std::size_t most_rows = 60;
constexpr double names_width = 370, row_height = 17, bar_width = 220, edge = 12;

/// Axes in a row along which all operators lie alike.
struct AxisColumn {
  std::size_t first = 0, last = 0;
};

class MeshPicture {
 public:
  MeshPicture(const Json& mesh, std::string title) : mesh_(mesh), title_(std::move(title)) {
    const std::size_t axes = mesh_["axes"].size();
    for (std::size_t a = 0; a < axes; ++a) {
      if (a > 0 && is_alike(a - 1, a)) {
        columns_.back().last = a;
      } else {
        columns_.push_back({a, a});
      }
    }
    column_width_ = std::clamp(800.0 / static_cast<double>(columns_.size()), 90.0, 190.0);
    width_ = edge + names_width + column_width_ * static_cast<double>(columns_.size()) + edge;
    width_ = std::max(width_, edge + names_width + bar_width + 260 + edge);
  }

  std::string svg() {
    y_ = title_.empty() ? 16 : 36;
    operators();
    exchanges();
    return svg_page({width_, y_ + edge}, edge, title_, body_);
  }

 private:
  bool is_alike(std::size_t a, std::size_t b) const {
    const Json& axes = mesh_["axes"];
    if (axes[a]["own_micro_batches"] != axes[b]["own_micro_batches"]) return false;
    return std::ranges::all_of(mesh_["operators"], [&](const Json& op) {
      return op["cuts"][a] == op["cuts"][b] && op["results"][a] == op["results"][b];
    });
  }

  double x_of(std::size_t column) const { return edge + names_width + column_width_ * static_cast<double>(column); }

  void text(double x, std::string_view words, std::string_view more = "") {
    body_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y_, more, svg_escaped(words));
  }

  std::string header_of(const AxisColumn& column) const {
    const Json &first = mesh_["axes"][column.first], &last = mesh_["axes"][column.last];
    std::int64_t ranks = 1;
    for (std::size_t a = column.first; a <= column.last; ++a) ranks *= mesh_["axes"][a]["ranks"].get<std::int64_t>();
    std::string name = first["name"].get<std::string>();
    if (column.first != column.last) name += " to " + last["name"].get<std::string>();
    return fmt::format("{}: {} ranks", name, ranks);
  }

  std::string_view fill_of_dimension(const std::string& dimension) {
    const auto [place, fresh] = fills_.try_emplace(dimension, fills_.size());
    return dimension_fills[place->second % dimension_fills.size()];
  }

  void operators() {
    text(edge, "operators (how many)", bold);
    for (std::size_t c = 0; c < columns_.size(); ++c) text(x_of(c) + 4, header_of(columns_[c]), bold);
    y_ += row_height;
    std::size_t row = 0;
    for (const Json& op : mesh_["operators"]) {
      if (row++ == most_rows) break;
      text(edge, fmt::format("{} ({})", op["name"].get<std::string>(), op["count"].get<std::int64_t>()));
      for (std::size_t c = 0; c < columns_.size(); ++c) cell(op, c);
      y_ += row_height;
    }
    if (mesh_["operators"].size() > most_rows) {
      text(edge, fmt::format("and {} more groups of operators", mesh_["operators"].size() - most_rows));
      y_ += row_height;
    }
  }

  void cell(const Json& op, std::size_t c) {
    const Json& cut = op["cuts"][columns_[c].first];
    if (!cut.is_string()) {
      const bool own = mesh_["axes"][columns_[c].first]["own_micro_batches"].get<bool>();
      text(x_of(c) + 4, own ? "own micro-batches" : "whole", " opacity=\"0.55\"");
      return;
    }
    const std::string dimension = cut.get<std::string>();
    body_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>", x_of(c),
                         y_ - 12, column_width_ - 2, row_height - 2, fill_of_dimension(dimension));
    const Json& result = op["results"][columns_[c].first];
    text(x_of(c) + 4,
         dimension + (result == "sum"     ? ": parts of a sum"
                      : result == "whole" ? ": result whole"
                                          : ""),
         " fill=\"#111\"");
  }

  void exchanges() {
    y_ += row_height;
    text(edge, "a rank exchanges in an iteration", bold);
    y_ += row_height;
    double most = 1;
    for (const Json& each : mesh_["exchanges"]) most = std::max(most, each["bytes"].get<double>());
    if (mesh_["exchanges"].empty()) text(edge, "nothing between ops");
    for (const Json& each : mesh_["exchanges"]) {
      text(edge, fmt::format("{} over {}, {}", each["kind"].get<std::string>(), each["axes"].get<std::string>(),
                             each["phase"].get<std::string>()));
      const double length = bar_width * each["bytes"].get<double>() / most, x = edge + names_width;
      const bool beside = each["beside"].get<bool>();
      body_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"9\" fill=\"{}\"/>", x, y_ - 9,
                           std::max(length, 0.5), beside ? "#56B4E9" : "#0072B2");
      text(x + bar_width + 8, fmt::format("{} x, {}, {}{}", each["count"].get<std::int64_t>(),
                                          format_bytes(Bytes{each["bytes"].get<std::int64_t>()}),
                                          format_seconds(Seconds{each["seconds"].get<double>()}),
                                          beside ? ", overlapped with computation" : ""));
      y_ += row_height;
    }
  }

  static constexpr std::string_view bold = " font-weight=\"bold\"";

  const Json& mesh_;
  std::string title_;
  std::vector<AxisColumn> columns_;
  double column_width_ = 0, width_ = 0, y_ = 0;
  std::string body_;
  std::map<std::string, std::size_t> fills_;  // by dimension, in the order of rows
};

}  // namespace

std::string mesh_svg(const Json& mesh, const std::string& title) {
  return MeshPicture(mesh, title).svg();
}

}  // namespace plimsoll
