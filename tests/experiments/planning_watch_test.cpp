#include "experiments/study/planning_watch.h"

#include <fcntl.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <algorithm>

#include "tests/experiments/run_program.h"

namespace plimsoll {
namespace {

/// What goes to the standard error while this lives goes to a file.
class StderrToFile {
 public:
  explicit StderrToFile(const std::filesystem::path& path) : kept_(dup(STDERR_FILENO)) {
    const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
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

}  // namespace
}  // namespace plimsoll
