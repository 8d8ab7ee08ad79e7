#include "experiments/study/planning_watch.h"

#include <fcntl.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>

#include "tests/experiments/run_program.h"

namespace plimsoll {
namespace {

/// What goes to the standard error while this lives goes to a file.
class StderrToFile {
 public:
  explicit StderrToFile(const std::filesystem::path& path)
      : StderrToFile(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600)) {}
  explicit StderrToFile(int file) : kept_(dup(STDERR_FILENO)) {
    dup2(file, STDERR_FILENO);
    close(file);
  }
  ~StderrToFile() {
    dup2(kept_, STDERR_FILENO);
    close(kept_);
  }
  StderrToFile(const StderrToFile&) = delete;
  StderrToFile& operator=(const StderrToFile&) = delete;

 private:
  int kept_;
};

TEST_CASE("what takes long says so now and then, and what does not is silent", "[program]") {
  using namespace std::chrono_literals;
  const TemporaryFolder folder;
  std::string said;
  {
    const StderrToFile redirected(folder / "long");
    const PlanningWatch watch("planning with dtr", 1ms, 999ms);
    const auto until = std::chrono::steady_clock::now() + 60s;
    while (std::ranges::count(said, '\n') < 2 && std::chrono::steady_clock::now() < until) {
      said = text_of(folder / "long");
      std::this_thread::sleep_for(1ms);
    }
  }
  CHECK(said == "planning with dtr: 0 s so far\nplanning with dtr: 1 s so far\n");
  {
    const StderrToFile redirected(folder / "short");
    const PlanningWatch watch("planning with dtr", 1h);
  }
  CHECK(text_of(folder / "short").empty());
}

TEST_CASE("on a terminal the line makes room for notes", "[program]") {
  using namespace std::chrono_literals;
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  REQUIRE(terminal >= 0);
  REQUIRE(grantpt(terminal) == 0);
  REQUIRE(unlockpt(terminal) == 0);
  std::string said;
  const auto read_until = [&](const std::string& end) {
    std::array<char, 256> some{};
    while (!said.ends_with(end)) {
      const ssize_t count = read(terminal, some.data(), some.size());
      if (count <= 0) return;
      said.append(some.data(), static_cast<std::size_t>(count));
    }
  };
  {
    const StderrToFile redirected(open(ptsname(terminal), O_WRONLY | O_NOCTTY));
    PlanningWatch watch("planning with dtr", 1ms);
    read_until("planning with dtr: 0 s so far");
    watch.aside([] { std::cerr << "note: measured elsewhere" << std::endl; });
    read_until("elsewhere\r\n");
  }
  CHECK(said == "\r\033[Kplanning with dtr: 0 s so far\r\033[Knote: measured elsewhere\r\n");
  close(terminal);
}

}  // namespace
}  // namespace plimsoll
