#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <memory>

#include "experiments/commands/commands.h"
#include "experiments/measure/measured_errors.h"
#include "experiments/measure/replayed_network.h"
#include "experiments/measure/training_course.h"
#include "experiments/study/backends.h"
#include "experiments/study/progress.h"
#include "experiments/study/summary.h"
#include "experiments/study/understood.h"
#include "experiments/sweep/worker_pool.h"
#include "sim/core/expects.h"
#include "sim/core/op_kind.h"
#include "sim/io/input_error.h"
#include "sim/io/json/json.h"
#include "sim/io/quantity.h"
#include "sim/io/reference_options.h"
#include "strategies/compose/plan.h"
#include "strategies/list.h"
#include "validate/cpu/cpu_backend.h"

namespace plimsoll {
namespace {

struct TrainArguments {
  std::string network, data, platform = "ideal", strategy, memory, micro_batches = "1", optimizer = "adam", rate;
  std::string steps = "100", every, seed = "0", rounding = "stochastic";
  bool json = false;
};

float rate_of(const TrainArguments& arguments, Optimizer optimizer) {
  if (arguments.rate.empty()) return optimizer == Optimizer::adam ? 0.001F : 0.01F;
  const Parsed<double> rate = parse_number(arguments.rate);
  if (!rate.fine() || !(rate.value > 0) || !(rate.value <= 1000)) {
    throw InputError(
        fmt::format("--learning-rate: expected a number above 0 and up to 1000, found '{}'", arguments.rate));
  }
  return static_cast<float>(rate.value);
}

TrainingSettings settings_of(const TrainArguments& arguments, Optimizer optimizer) {
  constexpr std::int64_t most = 10'000'000;
  TrainingSettings settings;
  settings.steps = understood_whole("--steps", arguments.steps, 1, most);
  settings.every = arguments.every.empty() ? std::max<std::int64_t>(1, settings.steps / 10)
                                           : understood_whole("--every", arguments.every, 1, most);
  settings.rate = rate_of(arguments, optimizer);
  settings.seed = static_cast<std::uint64_t>(understood_whole("--seed", arguments.seed, 0, 4'294'967'295));
  settings.rounding = understood<Rounding>("--rounding", arguments.rounding);
  return settings;
}

/// What --data must have for a network.
struct RowShape {
  std::int64_t width = 0, classes = 0, batch = 0;
};

RowShape row_shape(const Network& network, const std::string& reference) {
  const Tensor& input = network.graph[network.boundaries[0]];
  if (input.dtype == "int32") {
    throw InputError(fmt::format(
        "network '{}' reads tokens and has a label for each; --data is of rows of numbers with a label each: take mlp, "
        "resnet or lstm",
        reference));
  }
  const auto loss = std::ranges::find(network.graph.ops, name_of(OpKind::cross_entropy), &Op::kind);
  EXPECTS(loss != network.graph.ops.end());
  const std::int64_t batch = input.shape[0];
  return {input.bytes.count / 4 / batch, network.graph[loss->outputs[0]].shape.back(), batch};
}

/// A graph's updates are part of it, a chain's are made for the schedule.
std::string reference_with_updates(const std::string& reference, Optimizer optimizer) {
  if (!is_network(reference)) {
    throw InputError(
        fmt::format("'{}' is not a network that can run; 'plimsoll list traces' shows the networks that can: mlp, "
                    "resnet and lstm read rows of numbers",
                    reference));
  }
  if (named_network(reference).view == View::chain) return reference;
  if (reference.find("updates=") != std::string::npos) {
    throw InputError(fmt::format("network '{}': leave updates= out, --optimizer says which", reference));
  }
  return fmt::format("{}{}updates={}", reference, reference.find(':') == std::string::npos ? ":" : ",",
                     written(optimizer));
}

/// A schedule that can be repeated, and the most memory that it takes of a device.
struct Prepared {
  Trainee trainee;
  Bytes peak;
};

Prepared plain_training(const Problem& of_strategy, const std::string& reference, std::uint64_t seed) {
  Problem problem = of_strategy;
  for (Memory& memory : problem.platform.memories) memory.capacity.reset();
  const Pass store_all = pass_of(store_all_strategy);
  PlanOutcome outcome = plan(problem, std::span(&store_all, 1), std::nullopt);
  EXPECTS(std::holds_alternative<Plan>(outcome));
  Plan& made = std::get<Plan>(outcome);
  Network network = replayed_network(problem, made.schedule, reference);
  auto trainee = Trainee::make(std::move(problem), std::move(made.schedule), std::move(network), seed);
  if (const auto* failure = std::get_if<ReplayFailure>(&trainee)) {
    throw InputError(fmt::format("plain training of '{}' cannot run here: {}", reference, failure->what));
  }
  return {std::move(std::get<Trainee>(trainee)), made.peak};
}

/// Of the strategy; nothing, and said why, where it does not fit.
std::optional<Prepared> prepared(const Question& question, const BudgetedProblem& asked, const std::string& reference,
                                 std::uint64_t seed) {
  Answer made = std::move(answer(question, asked.problem, std::span(&asked.budget, 1)).front());
  if (!made.feasible()) {
    std::cerr << infeasibility(question, made) << '\n';
    return std::nullopt;
  }
  Network network = replayed_network(asked.problem, *made.schedule, reference);
  auto trainee = Trainee::make(asked.problem, std::move(*made.schedule), std::move(network), seed);
  if (const auto* failure = std::get_if<ReplayFailure>(&trainee)) {
    throw InputError(
        fmt::format("--strategy: '{}' cannot be trained on the CPU: {}", question.strategy.text, failure->what));
  }
  return Prepared{std::move(std::get<Trainee>(trainee)), made.metrics->peak};
}

/// What one of the two trainings came to.
struct TrainingOutcome {
  Score trained, held_out;
  Bytes peak;
};

double mean(const Score& score) {
  return score.loss / static_cast<double>(score.rows);
}

double accuracy(const Score& score) {
  return static_cast<double>(score.right) / static_cast<double>(score.rows);
}

TrainingOutcome trained_outcome(const Prepared& prepared, const LabelledData& data) {
  return {prepared.trainee.infer(data.trained), prepared.trainee.infer(data.held_out), prepared.peak};
}

Json outcome_json(const TrainingOutcome& outcome) {
  Json object{{"loss", mean(outcome.trained)}, {"accuracy", accuracy(outcome.trained)}};
  object["held_out_loss"] = outcome.held_out.rows > 0 ? Json(mean(outcome.held_out)) : Json();
  object["held_out_accuracy"] = outcome.held_out.rows > 0 ? Json(accuracy(outcome.held_out)) : Json();
  object["peak_bytes"] = outcome.peak.count;
  return object;
}

/// Errors of the gradients at the first parameters and at the last ones.
struct ErrorsOfCourse {
  std::optional<MeasuredErrors> first, last;
};

class Training {
 public:
  Training(const TrainArguments& arguments, const Question& question, TrainingSettings settings, LabelledData data,
           Prepared trained, Prepared plain)
      : arguments_(arguments),
        question_(question),
        settings_(settings),
        data_(std::move(data)),
        trained_(std::move(trained)),
        plain_(std::move(plain)) {}

  int run() {
    const auto began = std::chrono::steady_clock::now();
    if (!arguments_.json) std::cout << headline() << std::flush;
    errors_.first = errors();
    if (failure_) return failed();
    bool interrupted = false;
    const std::variant<Course, ReplayFailure> outcome = course(interrupted);
    if (const auto* failure = std::get_if<ReplayFailure>(&outcome)) {
      failure_ = failure->what;
      return failed();
    }
    errors_.last = errors();
    if (failure_) return failed();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    const auto& made = std::get<Course>(outcome);
    std::cout << (arguments_.json ? json_text(as_json(made, took.count()), 2) + "\n" : as_text(made, took.count()));
    return interrupted ? exit_interrupted : exit_fine;
  }

 private:
  int failed() const {
    std::cerr << fmt::format("{}: {}\n", question_.strategy.text, *failure_);
    return exit_no_result;
  }

  std::int64_t rows_a_step() const { return rows_of_step(plain_.trainee.network(), settings_.micro_batches); }

  std::string headline() const {
    return fmt::format(
        "{} trained by {} and plainly on {} rows of {}, {} held out\n{} at {:g}, {} steps of {} rows, seed {}\n"
        "{:>10}{:>12}{:>12}   loss, nats a row, mean since the line before\n",
        arguments_.network, question_.strategy.text, data_.trained.count(), arguments_.data, data_.held_out.count(),
        arguments_.optimizer, settings_.rate, settings_.steps, rows_a_step(), settings_.seed, "step", "trained",
        "plain");
  }

  std::variant<Course, ReplayFailure> course(bool& interrupted) {
    const Interruption interruption;
    Progress progress(static_cast<std::size_t>(settings_.steps), "steps");
    const auto watch = [&](std::int64_t, const std::optional<CoursePoint>& point) {
      progress.add();
      if (point && !arguments_.json) {
        progress.clear_line();
        std::cout << point_line(*point) << std::flush;
      }
      progress.show();
      interrupted = interruption.asked();
      return !interrupted;
    };
    return train(trained_.trainee, plain_.trainee, data_.trained, settings_, watch);
  }

  static std::string point_line(const CoursePoint& point) {
    return fmt::format("{:>10}{:>12.6f}{:>12.6f}\n", point.step, point.loss, point.plain_loss);
  }

  /// With the parameters as they are, on the first batch, beside others of the file.
  std::optional<MeasuredErrors> errors() {
    const Trainee& trainee = trained_.trainee;
    if (trainee.problem().mesh) return std::nullopt;
    BlockPool pool;
    RunnableCpuNetwork network(with_kernels(trainee.network()), pool);
    RowOrder order(data_.trained.count(), rows_a_step(), settings_.seed);
    ErrorQuestion question{.rounding = settings_.rounding, .start = &trainee.values()};
    question.batch = [&](std::uint32_t number) {
      return batch_of(data_.trained, order.rows_of(number), settings_.micro_batches);
    };
    const auto measured = measure_errors(trainee.problem(), trainee.schedule(), network, question);
    if (const auto* failure = std::get_if<ReplayFailure>(&measured)) {
      failure_ = failure->what;
      return std::nullopt;
    }
    return std::get<std::optional<MeasuredErrors>>(measured);
  }

  /// Parameters and states that both have.
  bool same_bits() const {
    const auto& plainly = plain_.trainee.values();
    return std::ranges::all_of(trained_.trainee.values(), [&](const auto& each) {
      const auto found = plainly.find(each.first);
      return found != plainly.end() && found->second == each.second;
    });
  }

  Json as_json(const Course& made, double took) const {
    Json object{{"network", arguments_.network},
                {"data", arguments_.data},
                {"rows", {{"trained", data_.trained.count()}, {"held_out", data_.held_out.count()}}},
                {"strategy", question_.strategy.text},
                {"optimizer", arguments_.optimizer},
                {"learning_rate", settings_.rate},
                {"steps", settings_.steps},
                {"steps_made", made.steps},
                {"rows_per_step", rows_a_step()},
                {"epochs", made.epochs},
                {"seed", settings_.seed},
                {"rounding", written(settings_.rounding)},
                {"losses", Json::array()}};
    for (const CoursePoint& point : made.points) {
      object["losses"].push_back({{"step", point.step}, {"loss", point.loss}, {"plain_loss", point.plain_loss}});
    }
    object["trained"] = outcome_json(trained_outcome(trained_, data_));
    object["plain"] = outcome_json(trained_outcome(plain_, data_));
    object["same_bits"] = same_bits();
    object["gradient_error"] = Json();
    if (errors_.first && errors_.last) {
      const Trainee& trainee = trained_.trainee;
      const auto json = [&](const MeasuredErrors& errors) {
        return errors_json(trainee.problem(), trainee.schedule(), errors, settings_.rounding);
      };
      object["gradient_error"] = {{"first", json(*errors_.first)}, {"last", json(*errors_.last)}};
    }
    object["elapsed_s"] = took;
    return object;
  }

  std::string as_text(const Course& made, double took) const {
    const TrainingOutcome trained = trained_outcome(trained_, data_), plain = trained_outcome(plain_, data_);
    const auto line = [](std::string_view what, const std::string& a, const std::string& b) {
      return fmt::format("  {:<30}{:>14}{:>14}\n", what, a, b);
    };
    const auto scores = [&](std::string_view rows, const Score& a, const Score& b) {
      const auto loss = [](const Score& score) { return fmt::format("{:.6f}", mean(score)); };
      const auto share = [](const Score& score) { return fmt::format("{:.2f} %", 100 * accuracy(score)); };
      return line(fmt::format("loss of {} rows", rows), loss(a), loss(b)) +
             line(fmt::format("accuracy of {} rows", rows), share(a), share(b));
    };
    std::string text =
        fmt::format("after {} steps, {:.1f} epochs, in {}\n", made.steps, made.epochs, format_seconds(Seconds{took})) +
        line("", "trained", "plain") + scores("trained", trained.trained, plain.trained);
    if (data_.held_out.count() > 0) text += scores("held-out", trained.held_out, plain.held_out);
    text += line("peak memory", format_bytes(trained.peak), format_bytes(plain.peak));
    text += error_line("first", errors_.first) + error_line("last", errors_.last);
    return text + fmt::format("  parameters and states {} those of plain training, bit for bit\n",
                              same_bits() ? "are" : "are not");
  }

  static std::string error_line(std::string_view when, const std::optional<MeasuredErrors>& errors) {
    if (!errors) return "";
    const MeasuredError& whole = errors->whole;
    return fmt::format("  {:<30}{:>14.4g}   cosine {:.4f}; another batch {:.4g}\n",
                       fmt::format("gradient error, {} step", when), whole.mean.relative, whole.mean.cosine,
                       whole.noise.relative);
  }

  const TrainArguments& arguments_;
  const Question& question_;
  TrainingSettings settings_;
  LabelledData data_;
  Prepared trained_, plain_;
  ErrorsOfCourse errors_;
  std::optional<std::string> failure_;
};

int run_train(const TrainArguments& arguments) {
  const auto optimizer = understood<Optimizer>("--optimizer", arguments.optimizer);
  if (optimizer == Optimizer::none) throw InputError("--optimizer: training needs one, found none");
  TrainingSettings settings = settings_of(arguments, optimizer);
  const std::string reference = reference_with_updates(arguments.network, optimizer);
  make_backend(reference, BackendArguments{});  // refuses kernels of a GPU
  const NamedNetwork named = named_network(reference);
  const RowShape shape = row_shape(named.network, arguments.network);
  const QuestionArguments words{.trace = reference,
                                .platform = arguments.platform,
                                .strategy = arguments.strategy,
                                .memory = arguments.memory,
                                .micro_batches = arguments.micro_batches,
                                .engine = "event",
                                .optimizer = named.view == View::chain ? arguments.optimizer : "none"};
  const Question question = question_of(words, Asks::strategy);
  settings.micro_batches = question.micro_batches;
  LabelledData data = read_labelled_rows(arguments.data, shape.width, shape.classes);
  const std::int64_t rows = shape.batch * settings.micro_batches;
  if (data.trained.count() < rows) {
    throw InputError(located(arguments.data, {}, "",
                             fmt::format("has {} rows to train on, and a step takes {}: {} in each of {} micro-batches",
                                         data.trained.count(), rows, shape.batch, settings.micro_batches)));
  }
  BudgetedProblem budgeted = budgeted_problem_of(question);
  std::optional<Prepared> trained = prepared(question, std::move(budgeted), reference, settings.seed);
  if (!trained) return exit_no_result;
  Question plainly = question;
  plainly.strategy = {"store_all", {pass_of(store_all_strategy)}};
  plainly.memory.reset();
  Prepared plain = plain_training(problem_of(plainly), reference, settings.seed);
  return Training(arguments, question, settings, std::move(data), std::move(*trained), std::move(plain)).run();
}

}  // namespace

void add_train_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "train", "train a network on the CPU by a strategy's schedule, and plainly, on rows of a file");
  command->footer(
      "FILE is CSV, a row a line: label,v1,v2,... with as many numbers as the network reads of a row, and labels from "
      "0. "
      "Rows\nbehind a line 'test' are held out; lines that begin with # are left out. Both trainings begin with the "
      "same "
      "parameters\nand take the same rows. Ctrl-C ends after the step and tells how far it came.\n"
      "  /usr/bin/python3 experiments/digits_csv.py -o out/digits.csv\n"
      "  plimsoll train mlp:layers=4,width=64,batch=32,classes=10,view=graph --data out/digits.csv --strategy "
      "'quantize(bits=2)' --steps 500");
  auto arguments = std::make_shared<TrainArguments>();
  command->add_option("network", arguments->network, "network: mlp, resnet or lstm with options, such as mlp:layers=4")
      ->required()
      ->type_name("NETWORK");
  command->add_option("--data", arguments->data, "rows to train on")->required()->type_name("FILE");
  command
      ->add_option("-s,--strategy", arguments->strategy,
                   "strategy: name(option=value, ...); several are joined with '|'")
      ->required()
      ->type_name("SPEC");
  command->add_option("--steps", arguments->steps, "number of updates")->capture_default_str()->type_name("N");
  command->add_option("-p,--platform", arguments->platform, "platform that the schedule is planned for")
      ->capture_default_str()
      ->type_name("PLATFORM");
  command->add_option("-m,--memory", arguments->memory, "memory budget of each device (default: its capacity)")
      ->type_name("SIZE");
  command->add_option("--micro-batches", arguments->micro_batches, "number of micro-batches in a step")
      ->capture_default_str()
      ->type_name("M");
  command->add_option("--optimizer", arguments->optimizer, "optimizer: sgd, momentum or adam")
      ->capture_default_str()
      ->type_name("NAME");
  command->add_option("--learning-rate", arguments->rate, "factor of updates (default: 0.001 with adam, else 0.01)")
      ->type_name("RATE");
  command->add_option("--every", arguments->every, "tell the loss every N steps (default: ten times in all)")
      ->type_name("N");
  command->add_option("--seed", arguments->seed, "seed of first parameters, order of rows, and rounding")
      ->capture_default_str()
      ->type_name("SEED");
  command
      ->add_option("--rounding", arguments->rounding,
                   "how quantization rounds: stochastic (as the published systems do) or nearest")
      ->capture_default_str()
      ->type_name("NAME");
  command->add_flag("--json", arguments->json, "print one JSON object");
  command->callback([arguments, &exit_code] { exit_code = run_train(*arguments); });
}

}  // namespace plimsoll
