// What Python gets: arrays as their head says, and a child that can be ended.

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <map>
#include <thread>

#include "experiments/commands/commands.h"
#include "experiments/python/child_reply.h"
#include "experiments/python/python_reply.h"
#include "sim/io/input_error.h"

namespace plimsoll {
namespace {

using namespace std::chrono;

const PythonWords asked{{"trace", "uniform:4"}, {"platform", "ideal"}, {"strategy", "rotor"},
                        {"memory", "80 %"},     {"engine", "event"},   {"micro_batches", "2"}};

QuestionArguments same_words() {
  QuestionArguments words;
  words.trace = "uniform:4";
  words.platform = "ideal";
  words.strategy = "rotor";
  words.memory = "80 %";
  words.engine = "event";
  words.micro_batches = "2";
  return words;
}

struct ReadReply {
  Json head;
  std::map<std::string, std::string> arrays;

  template <class Number>
  std::vector<Number> column(const std::string& name) const {
    const std::string& bytes = arrays.at(name);
    std::vector<Number> numbers(bytes.size() / sizeof(Number));
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    return numbers;
  }
};

ReadReply read_reply(const std::string& bytes) {
  std::uint64_t size = 0;
  std::memcpy(&size, bytes.data(), sizeof size);
  ReadReply read{Json::parse(bytes.substr(sizeof size, size)), {}};
  std::size_t at = sizeof size + size;
  for (const Json& array : read.head.value("arrays", Json::array())) {
    const std::size_t length = array[2].get<std::size_t>() * (array[1] == "u1" ? 1 : 8);
    read.arrays[array[0]] = bytes.substr(at, length);
    at += length;
  }
  CHECK(at == bytes.size());
  return read;
}

TEST_CASE("a reply to Python has the columns of the timeline", "[python]") {
  const ReadReply reply = read_reply(bytes_of_reply([] { return simulated_for_python(asked); }, "rotor"));
  const AnsweredQuestion made = answered(question_of(same_words(), Asks::strategy));
  const Schedule& schedule = *made.answer.schedule;
  const Timeline& timeline = *made.answer.timeline;
  const auto starts = reply.column<double>("steps.start_s"), finishes = reply.column<double>("steps.finish_s");
  const auto ops = reply.column<std::int64_t>("steps.op"), batches = reply.column<std::int64_t>("steps.micro_batch");
  REQUIRE(starts.size() == schedule.steps.size());
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    CHECK(starts[s] == timeline.steps[s].start.value);
    CHECK(finishes[s] == timeline.steps[s].finish.value);
    const bool has_op = schedule.steps[s].op != no_op;
    CHECK(ops[s] == (has_op ? static_cast<std::int64_t>(schedule.steps[s].op.index) : -1));
    CHECK(batches[s] == schedule.steps[s].micro_batch);
  }
  std::int64_t most = 0;
  for (const std::int64_t live : reply.column<std::int64_t>("memory.0.live_bytes")) most = std::max(most, live);
  CHECK(most == made.answer.metrics->peak.count);
  CHECK(reply.head["result"]["makespan_s"] == made.answer.metrics->makespan.value);
}

TEST_CASE("what goes wrong for Python is named with its place", "[python]") {
  PythonWords wrong = asked;
  wrong[2].second = "rotor|offload(x=1)";
  const auto error_of = [](const PythonWords& words) {
    return read_reply(bytes_of_reply([&] { return simulated_for_python(words); }, word_named(words, "strategy"))).head;
  };
  CHECK(error_of(wrong)["error"] == "input");
  CHECK(error_of(wrong)["message"].get<std::string>().starts_with("--strategy:1:7: "));
  wrong = asked;
  wrong.emplace_back("colour", "red");
  CHECK(error_of(wrong)["message"] == "--colour: there is no such option");
  wrong = asked;
  wrong[3].second = "1 B";
  const Json nothing = error_of(wrong)["infeasible"];
  CHECK(nothing["least_bytes"].get<std::int64_t>() > 1);
  CHECK(nothing["least_is_proven"] == true);
  CHECK(nothing["message"].get<std::string>().starts_with("infeasible: rotor within 1 B"));
  const auto broken = [](const auto& thrown) {
    const ReadReply reply = read_reply(bytes_of_reply([&]() -> PythonReply { throw thrown; }, ""));
    return reply.head["error"];
  };
  CHECK(broken(std::bad_alloc()) == "memory");
  CHECK(broken(std::runtime_error("a broken promise")) == "defect");
  CHECK(broken(InputError("a file")) == "input");
}

TEST_CASE("a child replies as it is, dies alone, and ends when it is told", "[python]") {
  const auto goes_on = [] { return true; };
  const std::string large(300'000, 'x');  // more than a pipe holds
  CHECK(reply_of_child([&] { return large; }, goes_on) == large);
  CHECK(reply_of_child([] { return std::string(); }, goes_on) == "");
  CHECK_THROWS_WITH(reply_of_child(
                        []() -> std::string {
                          raise(SIGKILL);
                          return "";
                        },
                        goes_on),
                    "the process that answers was ended by signal 9");
  for (const bool listens : {true, false}) {
    const auto begun = steady_clock::now();
    const auto sleep = [&]() -> std::string {
      if (!listens) std::signal(SIGINT, SIG_IGN);
      std::this_thread::sleep_for(10s);
      return "";
    };
    CHECK_FALSE(reply_of_child(sleep, [&] { return steady_clock::now() < begun + 100ms; }));
    CHECK(steady_clock::now() < begun + (listens ? 600ms : 3s));
  }
}

}  // namespace
}  // namespace plimsoll
