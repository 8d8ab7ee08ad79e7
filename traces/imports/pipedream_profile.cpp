#include "traces/imports/pipedream_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <unordered_map>

#include "sim/io/input_error.h"
#include "sim/io/quantity.h"
#include "sim/io/text_file.h"
#include "traces/imports/layer_chain.h"

namespace plimsoll {
namespace {

constexpr std::string_view separator = " -- ";

struct ProfileNode {
  Layer layer;
  Position place;
  bool is_input = false, is_item = false;
  std::size_t readers = 0;
};

class ProfileReader {
 public:
  ProfileReader(const std::string& text, const std::string& file) : text_(text), file_(file), complaints_(file, text) {}

  LayerTable read() {
    for (std::size_t at = 0; at < text_.size();) {
      const std::size_t end = std::min(text_.find('\n', at), text_.size());
      std::string_view line(text_.data() + at, end - at);
      if (line.ends_with('\r')) line.remove_suffix(1);
      ++number_;
      at = end + 1;
      if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
      if (line.front() == '\t') {
        read_edge(line);
      } else {
        read_node(line);
      }
    }
    complaints_.throw_if_any();
    return table();
  }

 private:
  void complain(std::string_view line, std::string_view at, std::string_view key, std::string_view what) {
    const Position in_line = position_of(line, static_cast<std::size_t>(at.data() - line.data()));
    complaints_.add({number_, in_line.column}, key, what);
  }

  void read_edge(std::string_view line) {
    const std::size_t middle = line.find(separator);
    if (middle == std::string_view::npos) {
      complain(line, line.substr(1), "", "expected an edge, 'node1 -- node2'");
      return;
    }
    edges_.push_back({line.substr(1, middle - 1), line.substr(middle + separator.size()), number_});
  }

  /// `name -- description -- key=value, ...`; the description is free text.
  void read_node(std::string_view line) {
    const std::size_t first = line.find(separator), last = line.rfind(separator);
    if (first == std::string_view::npos || first == last) {
      complain(line, line, "", "expected a node, 'name -- description -- forward_compute_time=..., ...'");
      return;
    }
    ProfileNode node;
    node.place = {number_, 1};
    const std::string name(line.substr(0, first));
    const std::string_view description =
        line.substr(first + separator.size(), last - std::min(last, first + separator.size()));
    node.is_input = description.starts_with("Input");
    node.is_item = description.starts_with("__getitem__");
    node.layer.name = fmt::format("{} {}", name, description);
    LayerOption& option = node.layer.options.emplace_back();
    option.name = "profiled";
    std::string_view rest = line.substr(last + separator.size());
    option.forward = milliseconds(line, rest, "forward_compute_time");
    option.backward = milliseconds(line, rest, "backward_compute_time");
    option.kept = bytes(line, rest, "activation_size");
    option.parameters = bytes(line, rest, "parameter_size");
    if (!rest.empty()) complain(line, rest, "", "expected the end of the line");
    option.fixed = 2 * option.parameters;  // and their gradients
    if (!named_.emplace(name, nodes_.size()).second) complain(line, line, name, "a second node of this name");
    nodes_.push_back(std::move(node));
  }

  /// The word of `key=word` at the beginning of `rest`, which goes on after it.
  std::string_view word(std::string_view line, std::string_view& rest, std::string_view key) {
    if (!rest.starts_with(key) || !rest.substr(key.size()).starts_with('=')) {
      if (!complained_in_line()) complain(line, rest, key, "missing, expected the keys in their order");
      return {};
    }
    rest.remove_prefix(key.size() + 1);
    const std::string_view value = rest.substr(0, rest.find(", "));
    rest.remove_prefix(std::min(rest.size(), value.size() + 2));
    return value;
  }

  double number(std::string_view line, std::string_view value, std::string_view key, double most) {
    double parsed = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
    const bool fine = error == std::errc{} && end == value.data() + value.size() && parsed >= 0 && parsed <= most;
    if (!fine) complain(line, value, key, fmt::format("expected a number from 0 to {:.0f}, found '{}'", most, value));
    return fine ? parsed : 0;
  }

  Seconds milliseconds(std::string_view line, std::string_view& rest, std::string_view key) {
    const std::string_view value = word(line, rest, key);
    if (value.data() == nullptr) return {};
    return {number(line, value, key, longest_seconds.value * 1000) / 1000};
  }

  /// A size, or the sizes of several tensors: `[1.0; 2.0]`.
  Bytes bytes(std::string_view line, std::string_view& rest, std::string_view key) {
    std::string_view value = word(line, rest, key);
    if (value.data() == nullptr) return {};
    constexpr auto most = static_cast<double>(largest_bytes.count);
    if (!value.starts_with('[')) return {std::llround(number(line, value, key, most))};
    if (!value.ends_with(']')) {
      complain(line, value, key, "a list without its end");
      return {};
    }
    value = value.substr(1, value.size() - 2);
    double sum = 0;
    while (true) {
      const std::size_t end = std::min(value.find("; "), value.size());
      sum += number(line, value.substr(0, end), key, most);
      if (end == value.size()) break;
      value.remove_prefix(end + 2);
    }
    if (sum > most) complain(line, value, key, fmt::format("sizes of {:.0f} together", sum));
    return {std::llround(std::min(sum, most))};
  }

  bool complained_in_line() {
    const bool before = complained_ == number_;
    complained_ = number_;
    return before;
  }

  struct WrittenEdge {
    std::string_view from, to;
    std::uint32_t line = 0;
  };

  std::optional<std::size_t> known(const WrittenEdge& edge, std::string_view name, std::uint32_t column) {
    const auto found = named_.find(std::string(name));
    if (found != named_.end()) return found->second;
    complaints_.add({edge.line, column}, "", fmt::format("no node '{}'", name));
    return std::nullopt;
  }

  LayerTable table() {
    LayerTable made;
    made.name = std::filesystem::path(file_).stem().string();
    made.notes = {
        {"imported_from", "a profile of PipeDream; a node's activation is what its edges carry"},
        {"assumed",
         "fp32, which the file does not say; each backward reads what its node has read and made; no workspaces; "
         "the network's input takes no memory"}};
    std::set<std::pair<std::size_t, std::size_t>> ends;
    for (const WrittenEdge& edge : edges_) {
      const auto from = known(edge, edge.from, 2);
      const auto to = known(edge, edge.to, static_cast<std::uint32_t>(2 + edge.from.size() + separator.size()));
      if (!from || !to) continue;
      if (!ends.emplace(*from, *to).second) {
        complaints_.add({edge.line, 2}, "", fmt::format("a second edge from '{}' to '{}'", edge.from, edge.to));
      }
      ++nodes_[*from].readers;
    }
    complaints_.throw_if_any();
    std::vector<std::optional<std::uint32_t>> number(nodes_.size());
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      if (nodes_[n].is_input || (nodes_[n].is_item && nodes_[n].readers == 0)) continue;
      number[n] = static_cast<std::uint32_t>(made.layers.size());
      made.layers.push_back(nodes_[n].layer);
    }
    for (const WrittenEdge& edge : edges_) {
      const std::size_t from = named_.at(std::string(edge.from)), to = named_.at(std::string(edge.to));
      if (!number[from] || !number[to]) continue;
      made.edges.push_back(
          {.from = *number[from], .to = *number[to], .bytes = nodes_[from].layer.options[0].kept, .time = {}});
    }
    if (made.layers.empty()) throw InputError(located(file_, {}, "", "no node that computes"));
    if (has_circle(made)) throw InputError(located(file_, {}, "", "edges form a circle"));
    return made;
  }

  const std::string& text_;
  const std::string& file_;
  Complaints complaints_;
  std::uint32_t number_ = 0, complained_ = 0;  // lines
  std::vector<ProfileNode> nodes_;
  std::unordered_map<std::string, std::size_t> named_;
  std::vector<WrittenEdge> edges_;
};

}  // namespace

Chain parse_pipedream_profile(const std::string& text, const std::string& file_name) {
  return chain_of(ProfileReader(text, file_name).read(), {});
}

Chain read_pipedream_profile(const std::filesystem::path& path) {
  return parse_pipedream_profile(read_text_file(path), path.string());
}

}  // namespace plimsoll
