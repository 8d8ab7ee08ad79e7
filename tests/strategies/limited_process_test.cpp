// Work that ends with its time or memory, and what it said until then.

#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "strategies/solve/limited_process.h"
#include "tests/strategies/wall_time.h"

namespace plimsoll {
namespace {

using End = ProcessResult::End;

TEST_CASE("work that ends in time leaves all that it sent, in order", "[limits]") {
  const ProcessResult result = run_limited({}, [](const SendMessage& send) {
    send(std::array{1.5, 2.5});
    send({});
    send(std::vector<double>(100'000, 7));
  });
  CHECK(result.end == End::finished);
  REQUIRE(result.messages.size() == 3);
  CHECK(result.messages[0] == std::vector{1.5, 2.5});
  CHECK(result.messages[1].empty());
  CHECK(result.messages[2] == std::vector<double>(100'000, 7));
}

TEST_CASE("work that takes too long is ended, and what it had sent is there", "[limits]") {
  const double start = wall_s();
  const ProcessResult result = run_limited({.seconds = 0.3}, [](const SendMessage& send) {
    send(std::array{1.0});
    std::this_thread::sleep_for(std::chrono::minutes(5));
    send(std::array{2.0});
  });
  CHECK(result.end == End::out_of_time);
  CHECK(result.messages == std::vector<std::vector<double>>{{1.0}});
  CHECK(wall_s() - start < 10);
}

TEST_CASE("work that takes too much memory is ended", "[limits]") {
  const auto take = [](std::size_t megabytes) {
    return run_limited({.seconds = 60, .memory = Bytes{100'000'000}}, [megabytes](const SendMessage& send) {
      std::vector<std::vector<double>> all;
      for (std::size_t m = 0; m < megabytes; ++m) all.emplace_back(125'000, 1.0);
      send(std::array{all.back().back()});
    });
  };
  CHECK(take(20).end == End::finished);
  const ProcessResult result = take(3000);
  CHECK(result.end == End::died);
  CHECK(result.messages.empty());
}

TEST_CASE("work that breaks is not taken for work that ended", "[limits]") {
  CHECK(run_limited({}, [](const SendMessage&) { throw std::runtime_error("broken"); }).end == End::died);
  CHECK(run_limited({}, [](const SendMessage&) { std::abort(); }).end == End::died);
}

}  // namespace
}  // namespace plimsoll
