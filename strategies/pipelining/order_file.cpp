#include "strategies/pipelining/order_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "sim/io/input_error.h"
#include "sim/io/printable.h"
#include "sim/io/text_file.h"
#include "strategies/pipelining/order_times.h"

namespace plimsoll {
namespace {

constexpr std::uint32_t most_parts = 4096, most_micro_batches = 1'000'000;

/// An action of the file.
struct Action {
  std::uint32_t part = 0, micro_batch = 0;
  char kind = 'F';  // F, B, I or W
  std::uint32_t rank = 0;
  Position position;

  std::string text() const { return fmt::format("{}{}{}", part, kind, micro_batch); }
};

std::optional<Action> parse_action(std::string_view cell) {
  Action action;
  const char* const end = cell.data() + cell.size();
  const auto [letter, wrong] = std::from_chars(cell.data(), end, action.part);
  if (wrong != std::errc{} || letter == end || std::string_view("FBIW").find(*letter) == std::string_view::npos) {
    return std::nullopt;
  }
  action.kind = *letter;
  const auto [last, wrong_too] = std::from_chars(letter + 1, end, action.micro_batch);
  if (wrong_too != std::errc{} || last != end) return std::nullopt;
  return action;
}

std::string_view trimmed(std::string_view cell) {
  while (!cell.empty() && (cell.front() == ' ' || cell.front() == '\t')) cell.remove_prefix(1);
  while (!cell.empty() && (cell.back() == ' ' || cell.back() == '\t' || cell.back() == '\r')) cell.remove_suffix(1);
  return cell;
}

class OrderReader {
 public:
  OrderReader(std::string name, std::string_view text) : text_(text), complaints_(std::move(name), text) {}

  OrderFile read() {
    read_lines();
    if (actions_.empty() && !complaints_.any()) complaints_.add({}, "", "no actions; a cell is such as 0F1");
    complaints_.throw_if_any();
    index_parts();
    complaints_.throw_if_any();
    ask_for_all();
    complaints_.throw_if_any();
    return {order(), micro_batches_};
  }

 private:
  void complain(const Action& action, const std::string& what) {
    complaints_.add(action.position, action.text(), what);
  }

  void read_lines() {
    std::uint32_t line = 1;
    for (std::size_t begin = 0; begin < text_.size(); ++line) {
      const std::size_t end = std::min(text_.find('\n', begin), text_.size());
      const std::string_view row = text_.substr(begin, end - begin);
      if (trimmed(row).empty() && end == text_.size()) break;
      read_line(row, begin);
      ++ranks_;
      begin = end + 1;
    }
  }

  void read_line(std::string_view row, std::size_t offset) {
    for (std::size_t begin = 0; begin <= row.size();) {
      const std::size_t end = std::min(row.find(',', begin), row.size());
      const std::string_view cell = trimmed(row.substr(begin, end - begin));
      const auto here = offset + static_cast<std::size_t>(cell.data() - row.data());
      if (!cell.empty()) read_cell(cell, position_of(text_, here));
      begin = end + 1;
    }
  }

  void read_cell(std::string_view cell, Position position) {
    std::optional<Action> action = parse_action(cell);
    if (!action) {
      return complaints_.add(position, "",
                             fmt::format("expected an action such as 0F1, 0B1, 0I1 or 0W1 (part, kind, "
                                         "micro-batch), found '{}'",
                                         printable(std::string(cell))));
    }
    action->rank = ranks_;
    action->position = position;
    if (action->part >= most_parts || action->micro_batch >= most_micro_batches) {
      return complain(*action, fmt::format("at most {} parts and {} micro-batches", most_parts, most_micro_batches));
    }
    actions_.push_back(*action);
  }

  /// Which rank has which part; every part from 0 on has one.
  void index_parts() {
    for (const Action& action : actions_) {
      parts_ = std::max(parts_, action.part + 1);
      micro_batches_ = std::max(micro_batches_, action.micro_batch + 1);
      weights_apart_ = weights_apart_ || action.kind == 'I' || action.kind == 'W';
      const auto [of, is_new] = rank_of_.emplace(action.part, action.rank);
      if (!is_new && of->second != action.rank) {
        complain(action, fmt::format("part {} is on rank {} already", action.part, of->second));
      }
    }
    for (std::uint32_t g = 0; g < parts_; ++g) {
      if (rank_of_.contains(g)) continue;
      complaints_.add({}, "", fmt::format("no action of part {}, and one of part {}", g, parts_ - 1));
    }
  }

  /// Every part's passes of every micro-batch, once and in an order that can be.
  void ask_for_all() {
    struct Done {
      bool forward = false, backward = false, weights = false;
    };
    std::map<std::pair<std::uint32_t, std::uint32_t>, Done> done;
    for (const Action& action : actions_) {
      Done& of = done[{action.part, action.micro_batch}];
      const bool is_weights = action.kind == 'W';
      bool& now = action.kind == 'F' ? of.forward : is_weights ? of.weights : of.backward;
      if (now) complain(action, "a second time");
      if (action.kind != 'F' && !(is_weights ? of.backward : of.forward)) {
        complain(action, fmt::format("before {}{}{}", action.part, is_weights ? 'I' : 'F', action.micro_batch));
      }
      if (action.kind == 'B') of.weights = true;
      now = true;
    }
    for (std::uint32_t g = 0; g < parts_ && !complaints_.any(); ++g) {
      for (std::uint32_t i = 0; i < micro_batches_ && !complaints_.any(); ++i) {
        const Done of = done[{g, i}];
        if (of.forward && of.backward && of.weights) continue;
        const char missing = !of.forward ? 'F' : !of.backward ? 'B' : 'W';
        complaints_.add({}, "", fmt::format("no {}{}{}", g, missing, i));
      }
    }
  }

  PipelineOrder order() {
    PipelineOrder order{{}, std::vector<std::vector<Turn>>(ranks_), weights_apart_};
    for (std::uint32_t g = 0; g < parts_; ++g) order.rank_of.push_back(rank_of_.at(g));
    for (const Action& action : actions_) {
      const std::uint32_t kind = action.kind == 'F'   ? piece::forward
                                 : action.kind == 'W' ? piece::weights
                                                      : piece::backward;
      std::vector<Turn>& turns = order.turns[action.rank];
      turns.push_back({PartId{action.part}, action.micro_batch, kind});
      if (action.kind == 'B' && weights_apart_) {
        turns.push_back({PartId{action.part}, action.micro_batch, piece::weights});
      }
    }
    refuse_circle(order);
    return order;
  }

  /// Names two parts that wait for each other, if ranks do.
  void refuse_circle(const PipelineOrder& order) {
    PartCosts costs;
    costs.f = costs.b = costs.w = std::vector<double>(parts_, 1);
    costs.sent = costs.returned = std::vector<double>(parts_ - 1, 0);
    const std::vector<Turn> stuck = time_order(costs, micro_batches_, order).stuck;
    if (stuck.empty()) return;
    const auto waits_for = [&](const Turn& turn) {  // what is next on the rank that should make what it reads
      const std::uint32_t maker = turn.part.index + (turn.piece == piece::forward ? -1U : 1U);
      return *std::ranges::find(stuck, order.rank_of[maker],
                                [&](const Turn& t) { return order.rank_of[t.part.index]; });
    };
    Turn turn = stuck[0];
    for (std::size_t k = 0; k < stuck.size(); ++k) turn = waits_for(turn);  // until it is in the circle
    const Turn other = waits_for(turn);
    const auto text = [](const Turn& t) {
      return fmt::format("{}{}{}", t.part.index, t.piece == piece::forward ? 'F' : 'B', t.micro_batch);
    };
    complaints_.add(
        {}, "",
        fmt::format("ranks wait in a circle: {} of part {} on rank {} waits for rank {}, whose next is {} of "
                    "part {}",
                    text(turn), turn.part.index, order.rank_of[turn.part.index], order.rank_of[other.part.index],
                    text(other), other.part.index));
    complaints_.throw_now();
  }

  std::string_view text_;
  Complaints complaints_;
  std::vector<Action> actions_;
  std::uint32_t ranks_ = 0, parts_ = 0, micro_batches_ = 0;
  bool weights_apart_ = false;
  std::map<std::uint32_t, std::uint32_t> rank_of_;
};

}  // namespace

OrderFile read_order(const std::string& file) {
  return parse_order(file, read_text_file(file));
}

OrderFile parse_order(const std::string& name, std::string_view text) {
  return OrderReader(name, text).read();
}

std::string order_csv(const PipelineOrder& order) {
  std::string text;
  for (const std::vector<Turn>& turns : order.turns) {
    std::string_view comma;
    for (const Turn& turn : turns) {
      const char backward = order.weights_apart ? 'I' : 'B';
      const char kind = turn.piece == piece::forward ? 'F' : turn.piece == piece::backward ? backward : 'W';
      text += fmt::format("{}{}{}{}", comma, turn.part.index, kind, turn.micro_batch);
      comma = ",";
    }
    text += '\n';
  }
  return text;
}

}  // namespace plimsoll
