// Whatever fails while a sweep writes its folder, and whenever it is killed, --resume gives the results of an
// undisturbed sweep.

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <regex>
#include <string>

#include "experiments/sweep/sweep.h"
#include "experiments/sweep/sweep_store.h"
#include "sim/io/output_error.h"
#include "sim/io/text_file.h"
#include "tests/experiments/sweep/sweep_run.h"
#include "tests/experiments/temporary_folder.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

enum class Fault { none, no_space, half_a_write, killed_before, killed_after };

constexpr int killed = 77, no_room = 4;

/// Lets the call with number `at` fail, once; what dies, dies as by SIGKILL: nothing is tidied up.
class FaultyDisk : public StoreDisk {
 public:
  FaultyDisk(Fault fault, int at) : fault_(fault), at_(at) {}
  int calls() const { return calls_; }

 private:
  template <class Call>
  auto call(Call system_call) {
    const bool now = calls_++ == at_;
    if (now && fault_ == Fault::killed_before) _exit(killed);
    if (now && fault_ == Fault::no_space) {
      errno = ENOSPC;
      return decltype(system_call())(-1);
    }
    const auto result = system_call();
    if (now && fault_ == Fault::killed_after) _exit(killed);
    return result;
  }

  std::int64_t do_write(int file, const char* bytes, std::size_t count) override {
    if (fault_ == Fault::half_a_write && calls_ == at_) {
      StoreDisk::do_write(file, bytes, count / 2);
      _exit(killed);
    }
    return call([&] { return StoreDisk::do_write(file, bytes, count); });
  }
  int do_truncate(int file, std::uintmax_t size) override {
    return call([&] { return StoreDisk::do_truncate(file, size); });
  }
  int do_sync(int file) override {
    return call([&] { return StoreDisk::do_sync(file); });
  }
  int do_rename(const fs::path& from, const fs::path& to) override {
    return call([&] { return StoreDisk::do_rename(from, to); });
  }

  Fault fault_;
  int at_, calls_ = 0;
};

/// Runs a sweep in a process of its own and returns its exit code.
int run_in_child(const fs::path& folder, bool resume, FaultyDisk& disk) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    int code = 99;
    try {
      if (std::freopen("/dev/null", "w", stderr) == nullptr) _exit(98);
      code = sweep({.experiment = folder / "e.yaml",
                    .folder = folder / "out",
                    .jobs = 1,
                    .resume = resume,
                    .shard = {},
                    .command_line = "plimsoll sweep",
                    .disk = &disk});
    } catch (const OutputError&) {
      code = no_room;
    } catch (...) {
    }
    _exit(code);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

std::string rows_of(const fs::path& folder) {
  return results_of(folder / "out");
}

void write_experiment(const fs::path& folder) {
  write_text_file(folder / "e.yaml",
                  "format: plimsoll.experiment.v1\nname: small\ntraces: ['uniform:6']\nplatforms: ideal\n"
                  "strategies: [store_all, rotor]\nmemory: {from: smallest, to: store_all, count: 3}\nengine: event\n");
}

TEST_CASE("a sweep survives every fault of its disk", "[sweep][eleventh-8]") {
  const TemporaryFolder calm;
  write_experiment(calm.path);
  FaultyDisk counting(Fault::none, -1);  // in this process, to count the calls
  REQUIRE(sweep({.experiment = calm / "e.yaml",
                 .folder = calm / "out",
                 .jobs = 1,
                 .resume = false,
                 .shard = {},
                 .command_line = "plimsoll sweep",
                 .disk = &counting}) == 0);
  const std::string whole = rows_of(calm.path);
  REQUIRE(counting.calls() >= 6 + 3 * 3);  // six rows, two manifests and the sorted results: written, synced, renamed

  const Fault fault = GENERATE(Fault::no_space, Fault::half_a_write, Fault::killed_before, Fault::killed_after);
  for (int at = 0; at < counting.calls(); ++at) {
    INFO("fault " << static_cast<int>(fault) << " in call " << at);
    const TemporaryFolder folder;
    write_experiment(folder.path);
    FaultyDisk faulty(fault, at);
    const int code = run_in_child(folder.path, false, faulty);
    const std::size_t rows = read_sweep(folder / "out").records.size();
    const bool was_hit = code != 0;
    if (fault == Fault::no_space) CHECK(code == no_room);
    if (was_hit) CHECK((code == killed || code == no_room));
    FaultyDisk fine(Fault::none, -1);
    REQUIRE(run_in_child(folder.path, true, fine) == 0);
    CHECK(rows_of(folder.path) == whole);
    CHECK(read_sweep(folder / "out").records.size() >= rows);

    // A second sweep over the whole results, hit at the same place, loses none of them.
    FaultyDisk again(fault, at);
    run_in_child(folder.path, false, again);
    const fs::path aside = folder / "out" / "results.jsonl.previous";
    const bool set_aside = fs::exists(aside);
    std::string kept = set_aside ? read_text_file(aside) : read_text_file(folder / "out" / "results.jsonl");
    kept = std::regex_replace(kept, std::regex("\"solve_s\":[^,}]*,\"simulate_s\":[^,}]*"), "");
    CHECK(kept == whole);
  }
}

TEST_CASE("a sweep of an experiment that has grown survives every fault of its disk", "[sweep][eleventh-1]") {
  const auto write = [](const fs::path& folder, const std::string& strategies, const std::string& memory) {
    write_text_file(
        folder / "e.yaml",
        "format: plimsoll.experiment.v1\nname: small\ntraces: ['uniform:6']\nplatforms: ideal\nstrategies: [" +
            strategies + "]\nmemory: [" + memory + "]\nengine: event\n");
  };
  const auto grow = [&](const fs::path& folder) { write(folder, "chen_sqrt, store_all, rotor", "5 kB, 1 MB, 10 kB"); };
  const TemporaryFolder before, fresh, counted;
  FaultyDisk fine(Fault::none, -1);
  write(before.path, "store_all, rotor", "10 kB, 1 MB, 20 kB");  // one of the budgets goes, too
  REQUIRE(run_in_child(before.path, false, fine) == 0);
  grow(fresh.path);
  REQUIRE(run_in_child(fresh.path, false, fine) == 0);
  const std::string whole = rows_of(fresh.path);
  fs::copy(before.path, counted.path, fs::copy_options::recursive);
  grow(counted.path);
  FaultyDisk counting(Fault::none, -1);
  REQUIRE(sweep({.experiment = counted / "e.yaml",
                 .folder = counted / "out",
                 .jobs = 1,
                 .resume = true,
                 .shard = {},
                 .command_line = "plimsoll sweep",
                 .disk = &counting}) == 0);
  REQUIRE(rows_of(counted.path) == whole);
  REQUIRE(counting.calls() >= 5 + 5 * 3);  // five rows; what is set aside, the rest, the sorted results, two manifests

  const Fault fault = GENERATE(Fault::no_space, Fault::half_a_write, Fault::killed_before, Fault::killed_after);
  for (int at = 0; at < counting.calls(); ++at) {
    INFO("fault " << static_cast<int>(fault) << " in call " << at);
    const TemporaryFolder folder;
    fs::copy(before.path, folder.path, fs::copy_options::recursive);
    grow(folder.path);
    FaultyDisk faulty(fault, at);
    run_in_child(folder.path, true, faulty);
    REQUIRE(run_in_child(folder.path, true, fine) == 0);
    CHECK(rows_of(folder.path) == whole);
    // What was there is there, by how long it took: as a result, or aside.
    std::string there;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder / "out")) {
      if (entry.path().filename().string().starts_with("results.")) there += read_text_file(entry.path());
    }
    for (const auto& [point, text] : read_sweep(before / "out").records) {
      const std::string measured = text.substr(text.find("\"solve_s\""));
      CHECK(there.find(measured) != std::string::npos);
    }
  }
}

}  // namespace
}  // namespace plimsoll
