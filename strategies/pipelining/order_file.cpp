#include "strategies/pipelining/order_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "sim/io/input_error.h"
#include "sim/io/printable.h"
#include "sim/io/text_file.h"
#include "strategies/pipelining/pipeline.h"

namespace plimsoll {
namespace {

// Whether the ranks of an order wait for each other.

/// Goes through an order as far as it comes.
class TurnWalk {
 public:
  explicit TurnWalk(const OrderFile& file)
      : file_(file), order_(file.order), turn_(ranks(), 0), exchange_(file.exchanges.size(), 0) {}

  std::string circle() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t r = 0; r < ranks(); ++r) {
        while (turn_[r] < order_.turns[r].size() && waits_for(order_.turns[r][turn_[r]]) == std::nullopt) {
          const Turn& turn = order_.turns[r][turn_[r]++];
          done_.insert(key(turn));
          moved = true;
        }
        while (exchanged(r)) moved = true;
      }
    }
    for (std::size_t r = 0; r < ranks(); ++r) {
      if (turn_[r] < order_.turns[r].size()) return text(order_.turns[r][turn_[r]]);
    }
    return "";
  }

 private:
  using Key = std::tuple<PartId, std::uint32_t, std::uint32_t>;
  static Key key(const Turn& turn) { return {turn.part, turn.micro_batch, turn.piece}; }

  std::size_t ranks() const { return order_.turns.size(); }

  /// The turn of another part that makes what this one reads, if it has not come.
  std::optional<Turn> waits_for(const Turn& turn) const {
    const std::uint32_t last = static_cast<std::uint32_t>(order_.rank_of.size()) - 1, g = turn.part.index;
    if (turn.piece == piece::weights || g == (turn.piece == piece::forward ? 0 : last)) return std::nullopt;
    const PartId maker{turn.piece == piece::forward ? g - 1 : g + 1};
    const bool crosses = !file_.exchanges.empty() && order_.rank_of[maker.index] != order_.rank_of[g];
    const Turn made{maker, turn.micro_batch, turn.piece};
    const bool is_here = crosses ? arrived_.contains({maker, turn.part, turn.micro_batch}) : done_.contains(key(made));
    return is_here ? std::nullopt : std::optional(made);
  }

  /// Whether a rank's next exchange has come about: what it sends does not wait for the receiver.
  bool exchanged(std::size_t r) {
    if (file_.exchanges.empty() || exchange_[r] == file_.exchanges[r].size()) return false;
    const PartExchange& next = file_.exchanges[r][exchange_[r]];
    const std::tuple value{next.from, next.to, next.micro_batch};
    const bool sends = order_.rank_of[next.from.index] == r;
    if ((next.behind && !done_.contains(key(*next.behind))) || (!sends && !sent_.contains(value))) return false;
    (sends ? sent_ : arrived_).insert(value);
    ++exchange_[r];
    return true;
  }

  static std::string name(const Turn& turn) {
    return fmt::format("{}{}{}", turn.part.index, turn.piece == piece::forward ? 'F' : 'B', turn.micro_batch);
  }

  /// Names two turns of the circle, into which the first turn's waiting leads.
  std::string text(Turn turn) const {
    const auto next_of = [&](const Turn& waiting) -> std::optional<Turn> {
      const std::optional<Turn> maker = waits_for(waiting);
      if (!maker) return std::nullopt;
      const std::uint32_t rank = order_.rank_of[maker->part.index];
      if (turn_[rank] == order_.turns[rank].size()) return std::nullopt;  // it has made it, and cannot send it
      return order_.turns[rank][turn_[rank]];
    };
    std::optional<Turn> other = next_of(turn);
    for (std::size_t k = 0; k < ranks() && other; ++k) {  // until it is in the circle
      turn = *other;
      other = next_of(turn);
    }
    const std::uint32_t rank = order_.rank_of[turn.part.index];
    if (other && done_.contains(key(*waits_for(turn)))) other = std::nullopt;
    if (!other) {
      return fmt::format(
          "ranks wait in a circle: {} of part {} on rank {} waits for an exchange that stands behind "
          "others which cannot begin",
          name(turn), turn.part.index, rank);
    }
    return fmt::format(
        "ranks wait in a circle: {} of part {} on rank {} waits for rank {}, whose next is {} of part {}", name(turn),
        turn.part.index, rank, order_.rank_of[other->part.index], name(*other), other->part.index);
  }

  const OrderFile& file_;
  const PipelineOrder& order_;
  std::vector<std::size_t> turn_, exchange_;  // by rank: how many are over
  std::set<Key> done_;
  std::set<std::tuple<PartId, PartId, std::uint32_t>> sent_, arrived_;
};

/// In one sentence that names two of them; empty: all turns and exchanges come to their end.
std::string circle_in(const OrderFile& file) {
  return TurnWalk(file).circle();
}

constexpr std::uint32_t most_parts = 4096, most_micro_batches = 1'000'000;

/// What a cell says that is done.
enum class CellAction : std::uint8_t { forward, backward, input, weights, send_f, recv_f, send_b, recv_b, sharding };
constexpr std::pair<std::string_view, CellAction> cell_words[] = {
    {"F", CellAction::forward},        {"B", CellAction::backward},       {"BW", CellAction::backward},
    {"I", CellAction::input},          {"W", CellAction::weights},        {"SEND_F", CellAction::send_f},
    {"RECV_F", CellAction::recv_f},    {"SEND_B", CellAction::send_b},    {"RECV_B", CellAction::recv_b},
    {"UNSHARD", CellAction::sharding}, {"RESHARD", CellAction::sharding}, {"REDUCE_GRAD", CellAction::sharding}};

constexpr bool is_exchange(CellAction does) {
  return does >= CellAction::send_f && does <= CellAction::recv_b;
}

/// An action of the file.
struct WrittenAction {
  std::uint32_t part = 0, micro_batch = 0;
  CellAction does = CellAction::forward;
  bool says_both = false;  ///< BW
  std::uint32_t rank = 0;
  Position position;

  std::string text() const {
    const auto* word = std::ranges::find(cell_words, does, &std::pair<std::string_view, CellAction>::second);
    return fmt::format("{}{}{}", part, says_both ? "BW" : word->first, micro_batch);
  }
  bool sends() const { return does == CellAction::send_f || does == CellAction::send_b; }
  bool goes_on() const { return does == CellAction::send_f || does == CellAction::recv_f; }
};

std::optional<WrittenAction> parse_action(std::string_view cell) {
  WrittenAction action;
  const char* const end = cell.data() + cell.size();
  const auto [letter, wrong] = std::from_chars(cell.data(), end, action.part);
  if (wrong != std::errc{}) return std::nullopt;
  const char* const number = std::find_if(letter, end, [](char c) { return c >= '0' && c <= '9'; });
  const std::string_view word(letter, static_cast<std::size_t>(number - letter));
  const auto* known = std::ranges::find(cell_words, word, &std::pair<std::string_view, CellAction>::first);
  if (known == std::end(cell_words)) return std::nullopt;
  action.does = known->second;
  action.says_both = word == "BW";
  if (number == end) return action.does == CellAction::sharding ? std::optional(action) : std::nullopt;
  const auto [last, wrong_too] = std::from_chars(number, end, action.micro_batch);
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
    OrderFile made{order(), micro_batches_, {}, left_out_};
    if (!exchanges_.empty()) {
      ask_for_exchanges();
      complaints_.throw_if_any();
      made.exchanges = exchanges(made.order);
    }
    if (const std::string circle = circle_in(made); !circle.empty()) {
      complaints_.add({}, "", circle);
      complaints_.throw_now();
    }
    return made;
  }

 private:
  void complain(const WrittenAction& action, const std::string& what) {
    complaints_.add(action.position, action.text(), what);
  }

  void read_lines() {
    for (std::size_t begin = 0; begin < text_.size();) {
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
    constexpr std::string_view overlap = ")OVERLAP_F_B";
    if (!cell.starts_with('(') || !cell.ends_with(overlap)) return read_action(cell, position);
    std::string_view pair = cell.substr(1, cell.size() - 1 - overlap.size());
    for (; !pair.empty(); pair.remove_prefix(std::min(pair.find(';') + 1, pair.size()))) {
      const std::size_t end = std::min(pair.find(';'), pair.size());
      read_action(trimmed(pair.substr(0, end)), position);
      if (end == pair.size()) break;
    }
  }

  void read_action(std::string_view cell, Position position) {
    std::optional<WrittenAction> action = parse_action(cell);
    if (!action) {
      return complaints_.add(position, "",
                             fmt::format("expected an action such as 0F1, 0B1, 0I1, 0W1, 0SEND_F1 or 1RECV_F1 (part, "
                                         "kind, micro-batch), found '{}'",
                                         printable(std::string(cell))));
    }
    action->rank = ranks_;
    action->position = position;
    if (action->part >= most_parts || action->micro_batch >= most_micro_batches) {
      return complain(*action, fmt::format("at most {} parts and {} micro-batches", most_parts, most_micro_batches));
    }
    if (action->does == CellAction::sharding) {
      ++left_out_;
    } else if (is_exchange(action->does)) {
      exchanges_.push_back({*action, actions_.size()});
    } else {
      actions_.push_back(*action);
    }
  }

  /// Which rank has which part; every part from 0 on has one.
  void index_parts() {
    std::set<std::pair<std::uint32_t, std::uint32_t>> inputs, weights;
    for (const WrittenAction& action : actions_) {
      parts_ = std::max(parts_, action.part + 1);
      micro_batches_ = std::max(micro_batches_, action.micro_batch + 1);
      const auto [of, is_new] = rank_of_.emplace(action.part, action.rank);
      if (!is_new && of->second != action.rank) {
        complain(action, fmt::format("part {} is on rank {} already", action.part, of->second));
      }
      if (action.does == CellAction::input) inputs.emplace(action.part, action.micro_batch);
      if (action.does == CellAction::weights) weights.emplace(action.part, action.micro_batch);
    }
    for (WrittenAction& action : actions_) {  // B is a half where W is the other one
      const std::pair of{action.part, action.micro_batch};
      const bool is_half = action.does == CellAction::backward && !action.says_both && weights.contains(of);
      if (is_half && !inputs.contains(of)) action.does = CellAction::input;
      weights_apart_ = weights_apart_ || action.does == CellAction::input || action.does == CellAction::weights;
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
    for (const WrittenAction& action : actions_) {
      Done& of = done[{action.part, action.micro_batch}];
      const bool is_forward = action.does == CellAction::forward, is_weights = action.does == CellAction::weights;
      bool& now = is_forward ? of.forward : is_weights ? of.weights : of.backward;
      if (now) complain(action, "a second time");
      if (!is_forward && !(is_weights ? of.backward : of.forward)) {
        complain(action, fmt::format("before {}{}{}", action.part, is_weights ? 'I' : 'F', action.micro_batch));
      }
      if (action.does == CellAction::backward) of.weights = true;
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

  PipelineOrder order() const {
    PipelineOrder order{{}, std::vector<std::vector<Turn>>(ranks_), weights_apart_};
    for (std::uint32_t g = 0; g < parts_; ++g) order.rank_of.push_back(rank_of_.at(g));
    for (const WrittenAction& action : actions_) {
      std::ranges::copy(turns_of(action), std::back_inserter(order.turns[action.rank]));
    }
    return order;
  }

  std::vector<Turn> turns_of(const WrittenAction& action) const {
    const std::uint32_t kind = action.does == CellAction::forward   ? piece::forward
                               : action.does == CellAction::weights ? piece::weights
                                                                    : piece::backward;
    std::vector<Turn> turns{{PartId{action.part}, action.micro_batch, kind}};
    if (action.does == CellAction::backward && weights_apart_) {
      turns.push_back({PartId{action.part}, action.micro_batch, piece::weights});
    }
    return turns;
  }

  /// An end of an exchange, and how many actions stand before it.
  struct End {
    WrittenAction action;
    std::size_t before;
  };

  static std::uint32_t sender(const WrittenAction& end) {
    return end.sends() ? end.part : end.goes_on() ? end.part - 1 : end.part + 1;
  }
  static std::uint32_t receiver(const WrittenAction& end) {
    return !end.sends() ? end.part : end.goes_on() ? end.part + 1 : end.part - 1;
  }

  /// Both ends of all exchanges between ranks, once, behind what makes it and before what reads it.
  void ask_for_exchanges() {
    std::set<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, bool>> ends;
    const auto place_of = places();
    for (const auto& [end, before] : exchanges_) {
      const std::uint32_t from = sender(end), to = receiver(end);  // wraps around where there is none
      if (from >= parts_ || to >= parts_) {
        complain(end, "there is no such part on the other end");
      } else if (rank_of_.at(end.part) != end.rank) {
        complain(end, fmt::format("part {} is on rank {}", end.part, rank_of_.at(end.part)));
      } else if (rank_of_.at(from) == rank_of_.at(to)) {
        complain(end, fmt::format("parts {} and {} are on one rank", from, to));
      } else if (end.micro_batch >= micro_batches_) {
        complain(end, fmt::format("there are {} micro-batches", micro_batches_));
      } else if (!ends.emplace(from, to, end.micro_batch, end.sends()).second) {
        complain(end, "a second time");
      } else if ((place_of.at({end.part, end.micro_batch, end.goes_on()}) < before) != end.sends()) {
        complain(end, end.sends() ? "before the value that it sends is computed" : "after the op that reads it");
      }
    }
    if (complaints_.any()) return;
    for (std::uint32_t g = 0; g + 1 < parts_; ++g) {
      for (std::uint32_t i = 0; i < micro_batches_ && rank_of_.at(g) != rank_of_.at(g + 1); ++i) {
        if (!ends.contains({g, g + 1, i, true})) return complaints_.add({}, "", fmt::format("no {}SEND_F{}", g, i));
        if (!ends.contains({g, g + 1, i, false}))
          return complaints_.add({}, "", fmt::format("no {}RECV_F{}", g + 1, i));
        if (!ends.contains({g + 1, g, i, true})) return complaints_.add({}, "", fmt::format("no {}SEND_B{}", g + 1, i));
        if (!ends.contains({g + 1, g, i, false})) return complaints_.add({}, "", fmt::format("no {}RECV_B{}", g, i));
      }
    }
  }

  /// By part, micro-batch and whether it is the forward: how many actions stand before the pass.
  std::map<std::tuple<std::uint32_t, std::uint32_t, bool>, std::size_t> places() const {
    std::map<std::tuple<std::uint32_t, std::uint32_t, bool>, std::size_t> places;
    for (std::size_t a = 0; a < actions_.size(); ++a) {
      if (actions_[a].does == CellAction::weights) continue;
      places.try_emplace({actions_[a].part, actions_[a].micro_batch, actions_[a].does == CellAction::forward}, a);
    }
    return places;
  }

  std::vector<std::vector<PartExchange>> exchanges(const PipelineOrder& order) const {
    std::vector<std::vector<PartExchange>> made(ranks_);
    std::vector<std::size_t> turns(ranks_, 0);
    std::size_t read = 0;
    for (const auto& [end, before] : exchanges_) {
      for (; read < before; ++read) turns[actions_[read].rank] += turns_of(actions_[read]).size();
      PartExchange exchange{PartId{sender(end)}, PartId{receiver(end)}, end.micro_batch};
      if (turns[end.rank] > 0) exchange.behind = order.turns[end.rank][turns[end.rank] - 1];
      made[end.rank].push_back(exchange);
    }
    return made;
  }

  std::string_view text_;
  Complaints complaints_;
  std::vector<WrittenAction> actions_;
  std::vector<End> exchanges_;
  std::size_t left_out_ = 0;
  std::uint32_t ranks_ = 0, parts_ = 0, micro_batches_ = 0;
  bool weights_apart_ = false;
  std::map<std::uint32_t, std::uint32_t> rank_of_;
};

std::string turn_text(const Turn& turn, bool weights_apart) {
  const char backward = weights_apart ? 'I' : 'B';
  const char kind = turn.piece == piece::forward ? 'F' : turn.piece == piece::backward ? backward : 'W';
  return fmt::format("{}{}{}", turn.part.index, kind, turn.micro_batch);
}

bool is_same_turn(const Turn& a, const Turn& b) {
  return a.part == b.part && a.micro_batch == b.micro_batch && a.piece == b.piece;
}

std::string end_text(const PartExchange& exchange, bool sends) {
  const PartId here = sends ? exchange.from : exchange.to;
  return fmt::format("{}{}_{}{}", here.index, sends ? "SEND" : "RECV", exchange.from < exchange.to ? 'F' : 'B',
                     exchange.micro_batch);
}

struct OrderOptions : LineOptions {
  std::string file;
};

OrderFile file_of(const OrderOptions& options) {
  if (options.file.empty()) throw InputError("order: file=... names the order, a CSV file");
  return read_order(options.file);
}

bool splits_backward(const OrderOptions& options) {
  return file_of(options).order.weights_apart;
}

std::vector<PartitionOutcome> order_partition(const Problem& problem, const OrderOptions& options,
                                              std::span<const std::optional<Bytes>> budgets) {
  const OrderFile file = file_of(options);
  const std::size_t ranks = file.order.turns.size(), devices = problem.platform.devices.size();
  const std::size_t parts = file.order.rank_of.size(), stages = problem.chain->stages.size();
  const std::string& name = options.file;
  if (ranks > devices) {
    throw InputError(fmt::format("order: '{}' has {} ranks, and platform '{}' has {} device{}", name, ranks,
                                 problem.platform.name, devices, devices == 1 ? "" : "s"));
  }
  if (parts > stages) {
    throw InputError(fmt::format("order: '{}' has {} parts of at least one stage each, and '{}' has {} stages", name,
                                 parts, problem.graph.name, stages));
  }
  if (file.micro_batches != problem.micro_batches) {
    throw InputError(fmt::format("order: '{}' is for {} micro-batches, and --micro-batches is {}", name,
                                 file.micro_batches, problem.micro_batches));
  }
  if (!file.exchanges.empty() && options.work_conserving) {
    throw InputError(
        fmt::format("order: '{}' says when ranks send and receive, so that work_conserving=yes cannot take "
                    "turns in another order",
                    name));
  }
  return each_changed(pipeline(problem, options, "order", file.order, budgets), [&](Partition& made) {
    made.exchanges = file.exchanges;
    if (!made.exchanges.empty()) made.exchanges.resize(made.order.size());
    if (file.left_out == 0) return;
    made.note =
        fmt::format("{} cells of FSDP (UNSHARD, RESHARD, REDUCE_GRAD) in '{}' are left out", file.left_out, name);
  });
}

constexpr auto order_options =
    options_of<OrderOptions>(cut_option, shared_updates_option, work_conserving_option,
                             option_of<&OrderOptions::file>({
                                 .name = "file",
                                 .values = "the path of a CSV file",
                                 .help = "a line a device, cells such as 0F1, 0B1, 0I1 and 0W1: part, forward, "
                                         "whole backward or its two halves, micro-batch; 0SEND_F1 and 1RECV_F1: "
                                         "when devices exchange",
                                 .allowed = [](std::string_view text) { return !text.empty(); },
                             }));

}  // namespace

OrderFile read_order(const std::string& file) {
  return parse_order(file, read_text_file(file));
}

OrderFile parse_order(const std::string& name, std::string_view text) {
  return OrderReader(name, text).read();
}

std::string order_csv(const PipelineOrder& order) {
  return order_csv(OrderFile{order, 0});
}

std::string order_csv(const OrderFile& file) {
  std::string text;
  for (std::size_t r = 0; r < file.order.turns.size(); ++r) {
    std::vector<std::string> cells;
    auto next = file.exchanges.empty() ? std::vector<PartExchange>::const_iterator() : file.exchanges[r].begin();
    const auto add_behind = [&](const Turn* turn) {
      while (!file.exchanges.empty() && next != file.exchanges[r].end()) {
        if (turn == nullptr ? next->behind.has_value() : !is_same_turn(*next->behind, *turn)) return;
        cells.push_back(end_text(*next, file.order.rank_of[next->from.index] == r));
        ++next;
      }
    };
    add_behind(nullptr);
    for (const Turn& turn : file.order.turns[r]) {
      cells.push_back(turn_text(turn, file.order.weights_apart));
      add_behind(&turn);
    }
    text += fmt::format("{}\n", fmt::join(cells, ","));
  }
  return text;
}

// The strategy `order`: the order of turns that a file gives, in PyTorch's convention.
extern constinit const StrategyInfo order_strategy{
    .name = "order",
    .family = Family::pipelining,
    .summary = "the order of a pipeline's turns that a file gives, as torch.distributed.pipelining writes it",
    .source = "PyTorch, torch.distributed.pipelining.schedules",
    .chains_only = true,
    .options = order_options,
    .kind = PartitionStrategy{.partition = by_options<order_partition>, .splits_backward = by_options<splits_backward>},
};

}  // namespace plimsoll
