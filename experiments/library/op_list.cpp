#include "experiments/library/op_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <span>
#include <utility>

#include "sim/core/expects.h"
#include "sim/core/partition.h"
#include "sim/core/tape.h"
#include "sim/io/input_error.h"
#include "sim/io/quantity.h"
#include "sim/lower/lowering.h"
#include "strategies/models/chain_pass.h"

namespace plimsoll {
namespace {

constexpr std::string_view op_list_format = "plimsoll.order.v1";
constexpr DeviceId listed_device{0};

enum class Mark : std::uint8_t { run, offload, prefetch, free, wait };
constexpr std::array mark_words{
    std::pair{Mark::offload, std::string_view("offload")}, std::pair{Mark::prefetch, std::string_view("prefetch")},
    std::pair{Mark::free, std::string_view("free")}, std::pair{Mark::wait, std::string_view("wait")}};

struct ListedLine {
  std::uint32_t number = 0;
  Mark mark = Mark::run;
  OpId op;          ///< of run
  TensorId tensor;  ///< of the others
};

/// A line without what surrounds its words, and the text behind it.
std::pair<std::string_view, std::string_view> next_line(std::string_view text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(text.size(), end + 1));
  constexpr std::string_view blank = " \t\r";
  line.remove_prefix(std::min(line.find_first_not_of(blank), line.size()));
  line = line.substr(0, line.find_last_not_of(blank) + 1);
  return {line, text};
}

/// Numbers by name; `twice` are the names of several.
struct ByName {
  std::map<std::string_view, std::uint32_t> number;
  std::map<std::string_view, std::uint32_t> twice;

  void add(std::string_view name, std::size_t at) {
    if (!number.emplace(name, static_cast<std::uint32_t>(at)).second) twice.emplace(name, 0);
  }
  std::vector<std::string_view> names() const {
    std::vector<std::string_view> all;
    for (const auto& each : number) all.push_back(each.first);
    return all;
  }
};

class ListReader {
 public:
  ListReader(const Graph& graph, std::string_view text, const std::string& file)
      : graph_(graph), text_(text), complaints_(file, text) {
    for (std::size_t o = 0; o < graph.ops.size(); ++o) ops_.add(graph.ops[o].name, o);
    for (std::size_t t = 0; t < graph.tensors.size(); ++t) tensors_.add(graph.tensors[t].name, t);
  }

  std::vector<ListedLine> lines(const OpListHead& head) {
    std::uint32_t number = head.lines;
    for (std::string_view rest = text_.substr(head.end); !rest.empty();) {
      const auto [line, behind] = next_line(rest);
      rest = behind;
      ++number;
      if (!line.empty() && !line.starts_with('#')) read(number, line);
    }
    complaints_.throw_if_any();
    return std::move(lines_);
  }

 private:
  void read(std::uint32_t number, std::string_view line) {
    if (const auto op = ops_.number.find(line); op != ops_.number.end()) {
      if (ops_.twice.contains(line)) return complain(number, fmt::format("several ops are called '{}'", line));
      const OpId id{op->second};
      if (!graph_[id].is_view) lines_.push_back({.number = number, .mark = Mark::run, .op = id, .tensor = {}});
      return;
    }
    for (const auto& [mark, word] : mark_words) {
      if (!line.starts_with(word) || !line.substr(word.size()).starts_with(' ')) continue;
      const std::string_view name = next_line(line.substr(word.size())).first;
      const auto tensor = tensors_.number.find(name);
      if (tensor == tensors_.number.end()) return complain(number, unknown("tensor", name, tensors_));
      if (tensors_.twice.contains(name)) return complain(number, fmt::format("several tensors are called '{}'", name));
      const TensorId id{tensor->second};
      if (!per_micro_batch(graph_[id].kind)) {
        return complain(number, fmt::format("'{}' stays on the device: expected an input of the network, an "
                                            "activation or a gradient of one",
                                            name));
      }
      lines_.push_back({.number = number, .mark = mark, .op = {}, .tensor = id});
      return;
    }
    complain(number, unknown("op", line, ops_));
  }

  std::string unknown(std::string_view noun, std::string_view name, const ByName& known) const {
    return fmt::format("no {} of '{}' is called '{}'{}", noun, graph_.name, name, suggestion(name, known.names()));
  }

  void complain(std::uint32_t number, const std::string& what) { complaints_.add({number, 1}, "", what); }

  const Graph& graph_;
  std::string_view text_;
  Complaints complaints_;
  ByName ops_, tensors_;
  std::vector<ListedLine> lines_;
};

/// What of a storage is there at a place, and in which line it came or went.
struct Held {
  std::optional<TensorId> tensor;
  std::uint32_t line = 0;
};

/// A tape, and for each op and each copied storage the lines that run or copy it.
struct ListedTape {
  Tape tape;
  std::map<OpId, std::vector<std::uint32_t>> runs;
  std::map<std::pair<StorageId, StepKind>, std::vector<std::uint32_t>> copies;
};

/// Walks the list: does each op find what it reads?
class ListWalk {
 public:
  ListWalk(const Problem& problem, std::span<const ListedLine> lines)
      : problem_(problem),
        graph_(problem.graph),
        lines_(lines),
        saves_(lines.size(), true),
        device_(graph_.storages),
        host_(graph_.storages),
        fetched_last_(graph_.storages, false) {}

  std::variant<ListedTape, IllegalLine> run() {
    find_savings();
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
      const Tensor& tensor = graph_.tensors[t];
      if (tensor.kind == TensorKind::input) device_[tensor.storage.index].tensor = id_at<TensorId>(t);
    }
    for (std::size_t l = 0; l < lines_.size() && !wrong_; ++l) {
      lines_[l].mark == Mark::run ? compute(lines_[l], saves_[l]) : move(lines_[l]);
    }
    if (!wrong_) find_missing();
    if (wrong_) return *std::move(wrong_);
    made_.tape = with_drops(graph_, std::move(made_.tape));
    std::erase_if(made_.tape.actions, [](const Action& action) { return action.kind == ActionKind::send; });
    free_on_host();
    return std::move(made_);
  }

 private:
  /// A run saves for the backward if that reads what only such a run makes, before it is made again.
  void find_savings() {
    std::vector<bool> needed(graph_.storages, false);
    const auto of = [&](TensorId t) { return graph_[t].storage.index; };
    for (std::size_t l = lines_.size(); l-- > 0;) {
      const ListedLine& line = lines_[l];
      if (line.mark == Mark::offload) needed[of(line.tensor)] = true;
      if (line.mark == Mark::prefetch) needed[of(line.tensor)] = false;
      if (line.mark != Mark::run) continue;
      const Op& op = graph_[line.op];
      if (!op.saved.empty()) saves_[l] = std::ranges::any_of(op.saved, [&](TensorId t) { return needed[of(t)]; });
      for (const TensorId t : op.outputs) needed[of(t)] = false;
      for (const TensorId t : op.inputs) needed[of(t)] = true;
    }
  }

  Held& on_device(TensorId t) { return device_[graph_[t].storage.index]; }

  void fail(const ListedLine& line, std::string what) { wrong_ = {line.number, std::move(what)}; }

  std::string why_absent(TensorId t) {
    const Held& held = on_device(t);
    const std::string& name = graph_[t].name;
    if (held.tensor) {
      return fmt::format("'{}' was overwritten by '{}' in line {}", name, graph_[*held.tensor].name, held.line);
    }
    if (held.line == 0) return fmt::format("no line before makes '{}'", name);
    return fmt::format("line {} has freed '{}'", held.line, name);
  }

  void compute(const ListedLine& line, bool saves) {
    const Op& op = graph_[line.op];
    std::vector<std::uint32_t>& runs = made_.runs[line.op];
    runs.push_back(line.number);
    if (op.phase == Phase::update) {
      made_.tape.end.push_back(plimsoll::run(line.op));
      updating_ = line.number;
      return;
    }
    if (updating_) return fail(line, fmt::format("'{}' comes after the update in line {}", op.name, *updating_));
    if (runs.size() > 1 && !op.recomputable) return fail(line, fmt::format("'{}' cannot run again", op.name));
    for (const TensorId t : op.inputs) {
      if (per_micro_batch(graph_[t].kind) && on_device(t).tensor != t) {
        return fail(line, fmt::format("'{}' reads '{}': {}", op.name, graph_[t].name, why_absent(t)));
      }
    }
    for (const TensorId t : op.outputs) {
      const bool omitted = !saves && std::ranges::find(op.saved, t) != op.saved.end();
      if (per_micro_batch(graph_[t].kind) && !omitted) on_device(t) = {t, line.number};
    }
    made_.tape.actions.push_back(plimsoll::run(line.op, saves ? Saving::keep : Saving::nothing));
  }

  /// Marks name a storage by any tensor in it, and mean what it holds then.
  void move(const ListedLine& line) {
    const StorageId storage = graph_[line.tensor].storage;
    Held &here = device_[storage.index], &away = host_[storage.index];
    std::vector<bool>::reference came_back = fetched_last_[storage.index];
    std::vector<Action>& actions = made_.tape.actions;
    if (line.mark != Mark::free && !memory_at(problem_.platform, listed_device, place::host)) {
      return fail(line, fmt::format("the first device of '{}' has no host", problem_.platform.name));
    }
    switch (line.mark) {
      case Mark::offload:
        if (!here.tensor) return fail(line, "cannot offload: " + why_absent(line.tensor));
        came_back = false;
        if (away.tensor == here.tensor) return;  // its copy is there still
        actions.push_back(along(way::device_to_host, ActionKind::copy, *here.tensor));
        made_.copies[{storage, StepKind::offload}].push_back(line.number);
        away = {here.tensor, line.number};
        return;
      case Mark::prefetch:
        if (!away.tensor) return fail(line, cannot(line, "prefetch", "is not on the host"));
        came_back = true;
        actions.push_back(along(way::host_to_device, ActionKind::copy, *away.tensor));
        made_.copies[{storage, StepKind::prefetch}].push_back(line.number);
        here = {away.tensor, line.number};
        return;
      case Mark::free:
        if (!here.tensor) return fail(line, "cannot free: " + why_absent(line.tensor));
        here = {std::nullopt, line.number};
        return;
      case Mark::wait:
        if (!away.tensor) return fail(line, cannot(line, "wait", "has not been copied"));
        if (came_back && !here.tensor) return fail(line, "cannot wait: " + why_absent(line.tensor));
        actions.push_back(on_copy_at(came_back ? place::device : place::host, ActionKind::wait, *away.tensor));
        if (came_back)
          actions.push_back(on_tensor(ActionKind::send, *away.tensor));  // a use: with_drops frees it behind
        return;
      case Mark::run:
        EXPECTS(false && "an op moves nothing");
    }
  }

  std::string cannot(const ListedLine& line, std::string_view what, std::string_view why) const {
    return fmt::format("cannot {}: '{}' {}", what, graph_[line.tensor].name, why);
  }

  void find_missing() {
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      const Op& op = graph_.ops[o];
      if (op.is_view || op.phase == Phase::update || made_.runs.contains(id_at<OpId>(o))) continue;
      wrong_ = {0, fmt::format("'{}' never runs", op.name)};
      return;
    }
  }

  /// Each copy on the host, after the last prefetch that reads it, or at the end where none does.
  void free_on_host() {
    std::vector<bool> read_later(graph_.storages, false);
    std::vector<Action> reversed, never_read;
    for (std::size_t a = made_.tape.actions.size(); a-- > 0;) {
      const Action& action = made_.tape.actions[a];
      if (action.kind == ActionKind::copy) {
        const std::uint32_t storage = graph_[action.tensor].storage.index;
        const bool comes_back = action.to == place::device;
        const Action free = on_copy_at(place::host, ActionKind::drop, action.tensor);
        if (!read_later[storage]) (comes_back ? reversed : never_read).push_back(free);
        read_later[storage] = comes_back;
      }
      reversed.push_back(action);
    }
    std::ranges::reverse(reversed);
    made_.tape.actions = std::move(reversed);
    made_.tape.actions.insert(made_.tape.actions.end(), never_read.begin(), never_read.end());
  }

  const Problem& problem_;
  const Graph& graph_;
  std::span<const ListedLine> lines_;
  std::vector<bool> saves_;          // by line
  std::vector<Held> device_, host_;  // by storage
  std::vector<bool> fetched_last_;   // by storage: it was prefetched after it was offloaded
  std::optional<std::uint32_t> updating_;
  std::optional<IllegalLine> wrong_;
  ListedTape made_;
};

/// The line of each step: of ops and copies the next one of theirs.
std::vector<std::uint32_t> lines_of_steps(const Schedule& schedule, const Graph& graph, const ListedTape& listed) {
  std::map<OpId, std::size_t> runs;
  std::map<std::pair<StorageId, StepKind>, std::size_t> copies;
  const auto next = [](const auto& lines, auto& seen, const auto& key) -> std::uint32_t {
    const auto found = lines.find(key);
    if (found == lines.end()) return 0;
    const std::size_t at = seen[key]++;
    return at < found->second.size() ? found->second[at] : 0;
  };
  std::vector<std::uint32_t> numbers;
  for (const Step& step : schedule.steps) {
    std::uint32_t number = 0;
    if (step.op != no_op) {
      number = next(listed.runs, runs, step.op);
    } else if (step.work.is_transfer() && step.reads.count > 0) {
      const TensorId moved = schedule[schedule.buffers_in(step.reads).front()].tensor;
      number = next(listed.copies, copies, std::pair(graph[moved].storage, step.kind));
    }
    numbers.push_back(number);
  }
  return numbers;
}

/// Whether it is plain training: each op once, in the part's order, and nothing moved.
bool is_plain(const Part& part, std::span<const ListedLine> lines, const Graph& graph) {
  std::vector<OpId> ops;
  for (const ListedLine& line : lines) {
    if (line.mark != Mark::run) return false;
    if (graph[line.op].phase != Phase::update) ops.push_back(line.op);
  }
  return ops == part.ops;
}

}  // namespace

bool is_op_list(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first == std::string_view::npos || text[first] != '{';
}

OpListHead read_op_list_head(std::string_view text, const std::string& file) {
  OpListHead head;
  Complaints complaints(file, text);
  const auto reference = [&](std::string_view value) {
    const bool is_path = value.starts_with("./") || value.starts_with("../");
    if (!is_path) return std::string(value);
    return (std::filesystem::path(file).parent_path() / value).lexically_normal().generic_string();
  };
  for (std::string_view rest = text; !rest.empty();) {
    const auto [line, behind] = next_line(rest);
    const std::size_t colon = std::min(line.find(':'), line.size());
    const std::string_view key = line.substr(0, colon);
    const std::string_view value = next_line(line.substr(std::min(colon + 1, line.size()))).first;
    const Position place{head.lines + 1, 1};
    if (key == "trace") {
      head.trace = reference(value);
    } else if (key == "platform") {
      head.platform = reference(value);
    } else if (key == "memory") {
      const Parsed<Bytes> budget = parse_bytes(value);
      if (!budget.fine()) complaints.add(place, "memory", budget.complaint);
      head.budget = budget.value;
    } else if (!line.empty() && !line.starts_with('#') && line != op_list_format) {
      if (line.starts_with("plimsoll.order.")) {
        complaints.add(place, "", fmt::format("expected {}, found '{}'", op_list_format, line));
      }
      break;
    }
    rest = behind;
    ++head.lines;
    head.end = text.size() - rest.size();
  }
  complaints.throw_if_any();
  return head;
}

std::variant<ListedPlan, IllegalLine> read_op_list(const Problem& problem, std::string_view text,
                                                   const std::string& file) {
  const std::vector<ListedLine> lines = ListReader(problem.graph, text, file).lines(read_op_list_head(text, file));
  std::variant<ListedTape, IllegalLine> walked = ListWalk(problem, lines).run();
  if (IllegalLine* wrong = std::get_if<IllegalLine>(&walked)) return std::move(*wrong);
  auto& listed = std::get<ListedTape>(walked);
  const Partition partition = one_device(problem.graph, problem.micro_batches, problem.platform.devices.size());
  const PartTask task{problem, partition, PartId{0}};
  if (is_plain(task.part(), lines, problem.graph)) {
    Tape plain = plain_tape(task);
    plain.end = std::move(listed.tape.end);
    listed.tape = std::move(plain);
  }
  std::variant<Schedule, std::string> schedule = lower(problem, partition, std::span(&listed.tape, 1));
  if (std::string* why = std::get_if<std::string>(&schedule)) return IllegalLine{0, std::move(*why)};
  std::vector<std::uint32_t> numbers = lines_of_steps(std::get<Schedule>(schedule), problem.graph, listed);
  return ListedPlan{std::move(std::get<Schedule>(schedule)), std::move(numbers)};
}

}  // namespace plimsoll
