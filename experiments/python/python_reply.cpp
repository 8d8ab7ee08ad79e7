#include "experiments/python/python_reply.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <iostream>
#include <map>
#include <new>
#include <optional>
#include <span>
#include <sstream>
#include <string_view>
#include <system_error>

#include "experiments/commands/commands.h"
#include "experiments/explain/explanation_text.h"
#include "experiments/export/pytorch_plan.h"
#include "experiments/export/step_name.h"
#include "experiments/study/build_name.h"
#include "experiments/study/host_bounds.h"
#include "experiments/study/lane_name.h"
#include "experiments/study/planning_watch.h"
#include "experiments/study/result_fields.h"
#include "experiments/study/summary.h"
#include "experiments/sweep/sweep_store.h"
#include "sim/core/names.h"
#include "sim/engine/engine_error.h"
#include "sim/engine/late_library.h"
#include "sim/io/input_error.h"
#include "sim/io/output_error.h"
#include "sim/io/schedule/schedule_file.h"
#include "sim/measure/memory_profile.h"
#include "strategies/compose/spec.h"
#include "validate/backend.h"

namespace plimsoll {
namespace {

constexpr std::string_view from_python = "plimsoll in Python";

/// A schedule that breaks rules, which lines on stderr have named.
struct IllegalSchedule : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct PythonQuestion {
  QuestionArguments words;
  std::string schedule, timeout;
};

constexpr std::pair<std::string_view, std::string QuestionArguments::*> texts[] = {
    {"trace", &QuestionArguments::trace},
    {"platform", &QuestionArguments::platform},
    {"strategy", &QuestionArguments::strategy},
    {"memory", &QuestionArguments::memory},
    {"micro_batches", &QuestionArguments::micro_batches},
    {"engine", &QuestionArguments::engine},
    {"allocator", &QuestionArguments::allocator},
    {"optimizer", &QuestionArguments::optimizer},
    {"states", &QuestionArguments::states},
    {"update_kernels", &QuestionArguments::update_kernels},
    {"gradients", &QuestionArguments::gradients},
    {"transfers", &QuestionArguments::transfers},
    {"within", &QuestionArguments::within},
    {"evaluate", &QuestionArguments::evaluate},
};

void set_word(PythonQuestion& question, const std::string& name, const std::string& word) {
  if (name == "schedule") return void(question.schedule = word);
  if (name == "timeout") return void(question.timeout = word);
  if (name == "ema") return void(question.words.ema = true);
  if (name == "clip_norm") return void(question.words.clip_norm = true);
  if (name == "parameter_group") return question.words.parameter_groups.push_back(word);
  for (const auto& [text, member] : texts) {
    if (text == name) return void(question.words.*member = word);
  }
  throw InputError(fmt::format("--{}: there is no such option", name));
}

PythonQuestion question_in(const PythonWords& words) {
  PythonQuestion question;
  for (const auto& [name, word] : words) set_word(question, name, word);
  return question;
}

AnsweredQuestion answered_words(const PythonQuestion& asked) {
  if (asked.schedule.empty()) return answered(question_of(asked.words, Asks::strategy), timeout_of(asked.timeout));
  if (std::optional<AnsweredQuestion> made = answered_file(asked.schedule, asked.words)) return *std::move(made);
  throw IllegalSchedule(fmt::format("{}: breaks rules", asked.schedule));
}

void add_bytes(PythonReply& reply, std::string_view name, const char* type, const void* data, std::size_t count,
               std::size_t size) {
  reply.head["arrays"].push_back(Json::array({name, type, count}));
  reply.numbers.append(static_cast<const char*>(data), count * size);
}

void add(PythonReply& reply, std::string_view name, std::span<const double> numbers) {
  add_bytes(reply, name, "f8", numbers.data(), numbers.size(), sizeof(double));
}

void add(PythonReply& reply, std::string_view name, std::span<const std::int64_t> numbers) {
  add_bytes(reply, name, "i8", numbers.data(), numbers.size(), sizeof(std::int64_t));
}

void add(PythonReply& reply, std::string_view name, const std::string& text) {
  add_bytes(reply, name, "u1", text.data(), text.size(), 1);
}

/// A column of words: each word once, and which one a row has.
class WordColumn {
 public:
  void add(std::string word) {
    const auto [at, is_new] = places_.try_emplace(std::move(word), std::ssize(places_));
    if (is_new) words_.push_back(at->first);
    rows_.push_back(at->second);
  }
  void give(PythonReply& reply, const std::string& name) const {
    reply.head["words"][name] = words_;
    plimsoll::add(reply, name, rows_);
  }

 private:
  std::map<std::string, std::int64_t> places_;
  std::vector<std::string> words_;
  std::vector<std::int64_t> rows_;
};

void add_steps(PythonReply& reply, const Problem& problem, const Schedule& schedule, const Timeline& timeline) {
  WordColumn devices, lanes, kinds, names;
  std::vector<double> starts, finishes;
  std::vector<std::int64_t> ops, micro_batches, moved, workspaces;
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    const Step& step = schedule.steps[s];
    const Stream& stream = schedule[step.stream];
    devices.add(problem.platform.devices[stream.device.index].name);
    lanes.add(lane_name(stream.way, problem.platform));
    kinds.add(std::string(written(step.kind)));
    names.add(step_name(problem.graph, schedule, step));
    starts.push_back(timeline.steps[s].start.value);
    finishes.push_back(timeline.steps[s].finish.value);
    ops.push_back(step.op == no_op ? -1 : static_cast<std::int64_t>(step.op.index));
    micro_batches.push_back(step.micro_batch);
    moved.push_back(step.work.bytes.count);
    workspaces.push_back(step.workspace.count);
  }
  devices.give(reply, "steps.device");
  lanes.give(reply, "steps.lane");
  kinds.give(reply, "steps.kind");
  names.give(reply, "steps.name");
  add(reply, "steps.op", ops);
  add(reply, "steps.micro_batch", micro_batches);
  add(reply, "steps.start_s", starts);
  add(reply, "steps.finish_s", finishes);
  add(reply, "steps.moved_bytes", moved);
  add(reply, "steps.workspace_bytes", workspaces);
}

void add_memories(PythonReply& reply, const Problem& problem, const Schedule& schedule, const Timeline& timeline) {
  Json& names = reply.head["memories"] = Json::array();
  for (std::size_t m = 0; m < problem.platform.memories.size(); ++m) {
    std::vector<double> dates;
    std::vector<std::int64_t> live;
    for (const MemoryPoint& point : memory_profile(schedule, timeline, problem.platform, id_at<MemoryId>(m))) {
      dates.push_back(point.date.value);
      live.push_back(point.live.count);
    }
    add(reply, fmt::format("memory.{}.date_s", names.size()), dates);
    add(reply, fmt::format("memory.{}.live_bytes", names.size()), live);
    names.push_back(problem.platform.memories[m].name);
  }
}

/// Why it is not feasible, in the command's words, with what would be.
void add_infeasible(PythonReply& reply, const AnsweredQuestion& made) {
  const Answer& answer = made.answer;
  if (answer.feasible()) return;
  Json& why = reply.head["infeasible"];
  why["message"] = infeasibility(made.question, answer);
  why["least_bytes"] = answer.smallest_feasible ? Json(answer.smallest_feasible->count) : Json();
  why["least_is_proven"] = answer.smallest_feasible && answer.smallest_is_proven;
}

PythonReply reply_of(const AnsweredQuestion& made) {
  PythonReply reply;
  reply.head["result"] = to_json(result_of(made.question, made.problem, made.answer));
  add_infeasible(reply, made);
  if (!made.answer.schedule || !made.answer.timeline) return reply;
  add_steps(reply, made.problem, *made.answer.schedule, *made.answer.timeline);
  add_memories(reply, made.problem, *made.answer.schedule, *made.answer.timeline);
  return reply;
}

/// While this lives, what is written to the stream is kept.
class KeptOutput {
 public:
  explicit KeptOutput(std::ostream& stream) : stream_(stream), before_(stream.rdbuf(text_.rdbuf())) {}
  ~KeptOutput() { stream_.rdbuf(before_); }
  KeptOutput(const KeptOutput&) = delete;
  KeptOutput& operator=(const KeptOutput&) = delete;
  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  std::ostream& stream_;
  std::streambuf* before_;
};

Json error_of(const char* kind, std::string_view message) {
  return Json{{"error", kind}, {"message", message}};
}

PythonReply reply_or_error(const std::function<PythonReply()>& task, const std::string& strategy) {
  try {
    return task();
  } catch (const InputError& unplaced) {
    const InputError error = strategy.empty() ? unplaced : placed(unplaced, strategy, "--strategy");
    return {error_of("input", error.what()), {}};
  } catch (const CLI::ParseError& error) {
    return {error_of("input", error.what()), {}};
  } catch (const IllegalSchedule& error) {
    return {error_of("illegal", error.what()), {}};
  } catch (const BackendError& error) {
    return {error_of("unavailable", error.what()), {}};
  } catch (const LibraryMissing& error) {
    return {error_of("unavailable", error.what()), {}};
  } catch (const OutputError& error) {
    return {error_of("output", error.what()), {}};
  } catch (const std::bad_alloc&) {
    return {error_of("memory", "not enough memory"), {}};
  } catch (const std::system_error& error) {
    return {error_of("output", error.what()), {}};
  } catch (const SimulationInterrupted& error) {
    return {error_of("interrupted", error.what()), {}};
  } catch (const std::exception& error) {
    return {error_of("defect", error.what()), {}};
  }
}

}  // namespace

PythonReply simulated_for_python(const PythonWords& words) {
  return reply_of(answered_words(question_in(words)));
}

PythonReply planned_for_python(const PythonWords& words, const std::string& made_for) {
  const PythonQuestion asked = question_in(words);
  const bool is_for_pytorch = !made_for.empty();
  if (is_for_pytorch && made_for != "pytorch") {
    throw InputError(fmt::format("--for: expected pytorch, found '{}'", made_for));
  }
  if (is_for_pytorch && !asked.timeout.empty()) throw InputError("--timeout: 'cluster' makes no plan for pytorch");
  const AnsweredQuestion made =
      is_for_pytorch ? answered_for_pytorch(question_of(asked.words, Asks::strategy)) : answered_words(asked);
  PythonReply reply = reply_of(made);
  if (!made.answer.feasible()) return reply;
  for (const HostBound& bound : host_bounds_used(*made.answer.schedule, made.problem.platform)) {
    std::cerr << "note: " << sentence(bound) << '\n';
  }
  const std::string by = made_by(std::string(from_python));
  add(reply, "text",
      is_for_pytorch ? json_text(pytorch_plan(made.question, made.problem, made.answer, by), 1) + "\n"
                     : schedule_text(*made.answer.schedule, by));
  return reply;
}

PythonReply explained_for_python(const PythonWords& words, bool looks_for_better) {
  const AnsweredQuestion made = answered_words(question_in(words));
  PythonReply reply;
  add_infeasible(reply, made);
  if (!made.answer.schedule) return reply;
  const PlanningWatch watch("looking for faster plans");
  reply.head["explanation"] = to_json(explain(made, looks_for_better ? Better::looked_for : Better::no), made);
  return reply;
}

PythonReply fitted_for_python(const std::vector<std::string>& words) {
  CLI::App app{"Plimsoll"};
  app.name("plimsoll");
  int exit_code = exit_fine;
  const std::string command_line(from_python);
  add_fits_command(app, exit_code, command_line);
  std::vector<std::string> backwards(words.rbegin(), words.rend());  // as CLI11 takes them
  backwards.emplace_back("fits");
  app.parse(std::move(backwards));
  return {Json{{"exit_code", exit_code}}, {}};
}

PythonReply swept_for_python(const SweepOptions& options) {
  PythonReply reply;
  reply.head["exit_code"] = sweep(options);
  reply.head["fields"] = Json::array();
  for (const ResultField& field : result_fields()) {
    reply.head["fields"].push_back(Json::array({field.name, word_of(field.unit)}));
  }
  std::string rows;
  for (const auto& [point, record] : read_sweep(options.folder).records) rows += record + "\n";
  add(reply, "rows", rows);
  return reply;
}

std::string bytes_of_reply(const std::function<PythonReply()>& task, const std::string& strategy) {
  PythonReply reply;
  {
    const KeptOutput printed(std::cout), said(std::cerr);
    reply = reply_or_error(task, strategy);
    reply.head["printed"] = printed.text();
    reply.head["notes"] = said.text();
  }
  const std::string head = json_text(reply.head);
  const std::uint64_t size = head.size();
  std::string bytes(sizeof size, '\0');
  std::memcpy(bytes.data(), &size, sizeof size);
  return bytes + head + reply.numbers;
}

std::string word_named(const PythonWords& words, const std::string& name) {
  for (const auto& [each, word] : words) {
    if (each == name) return word;
  }
  return "";
}

}  // namespace plimsoll
