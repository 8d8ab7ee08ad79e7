// Folders of sweeps made one: what is there once, what contradicts, and that nothing depends on who answered it.

#include "experiments/merge/merge.h"

#include <catch2/catch.hpp>
#include <string>

#include "sim/io/input_error.h"
#include "sim/io/text_file.h"
#include "tests/experiments/sweep/sweep_run.h"
#include "tests/experiments/temporary_folder.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

const std::string settings =
    "format: plimsoll.experiment.v1\nname: n\nplatforms: [ideal]\nengine: event\n"
    "memory: {from: 40 %, to: store_all, count: 3}\n";

/// Runs an experiment with these lists.
fs::path swept(const TemporaryFolder& folder, const std::string& name, const std::string& lists, Shard shard = {}) {
  write_text_file(folder / (name + ".yaml"), settings + lists);
  REQUIRE(run_sweep(folder / (name + ".yaml"), folder / name, {.shard = shard}) == 0);
  return folder / name;
}

std::string refused(const std::vector<fs::path>& folders, const fs::path& into) {
  try {
    merge_sweeps(folders, into, "plimsoll merge");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("merged shards are the results of one sweep, and go on as one", "[sweep]") {
  const TemporaryFolder folder;
  const std::string lists = "traces: ['uniform:6', 'uniform:9']\nstrategies: [store_all, rotor, chen_sqrt]\n";
  const fs::path whole = swept(folder, "whole", lists);
  for (const std::uint32_t k : {1U, 2U, 3U}) swept(folder, "shards", lists, {.k = k, .n = 3});
  const MergeCount count = merge_sweeps({folder / "shards"}, folder / "merged", "plimsoll merge");
  CHECK(count.found == 18);
  CHECK(count.all == 18);
  CHECK(results_of(folder / "merged") == results_of(whole));
  REQUIRE(run_sweep(folder / "whole.yaml", folder / "merged", {.resume = true}) == 0);
  CHECK(results_of(folder / "merged") == results_of(whole));
}

TEST_CASE("merged experiments have the lists of all", "[sweep]") {
  const TemporaryFolder folder;
  const fs::path whole = swept(folder, "whole", "traces: ['uniform:6', 'uniform:9']\nstrategies: [store_all, rotor]\n");
  const fs::path six = swept(folder, "six", "traces: ['uniform:6']\nstrategies: [store_all, rotor]\n");
  const fs::path nine = swept(folder, "nine", "traces: ['uniform:9']\nstrategies: [rotor, store_all]\n");
  const fs::path part = swept(folder, "part", "traces: ['uniform:9']\nstrategies: [rotor]\n");
  CHECK(merge_sweeps({six, nine}, folder / "both", "").found == 12);
  CHECK(results_of(folder / "both") == results_of(whole));
  const MergeCount count = merge_sweeps({six, part}, folder / "most", "");
  CHECK(count.found == 9);
  CHECK(count.all == 12);
  CHECK(merge_sweeps({six, six}, folder / "twice", "").found == 6);
  CHECK(merge_sweeps({six, nine}, folder / "twice", "", true).found == 12);
}

TEST_CASE("folders that contradict each other are not merged", "[sweep]") {
  const TemporaryFolder folder;
  const std::string lists = "traces: ['uniform:6']\nstrategies: [store_all]\n";
  const fs::path one = swept(folder, "one", lists), other = swept(folder, "other", lists);
  const fs::path existing = swept(folder, "existing", lists + "gradients: existing\n");
  CHECK(refused({one, existing}, folder / "out") ==
        existing.string() + ": gradients: expected \"new\" as in " + one.string() + ", found \"existing\"");
  const std::string text = read_text_file(other / "results.jsonl");
  const std::size_t at = text.rfind("\"peak_bytes\":") + 13;
  write_text_file(other / "results.jsonl", text.substr(0, at) + "1" + text.substr(at));
  CHECK(refused({one, other}, folder / "out") ==
        other.string() + ": answers store_all for uniform:6 on ideal otherwise than a folder before it");
  CHECK(refused({one}, one) == one.string() + ": is not empty; --replace replaces a sweep");
  CHECK(refused({folder / "none"}, folder / "out") == (folder / "none").string() + ": holds no sweep");
  const fs::path zipped =
      swept(folder, "zipped", "traces: ['uniform:6']\nstrategies: [rotor]\nzip: [traces, strategies]\n");
  CHECK(refused({one, zipped}, folder / "out") ==
        zipped.string() + ": is of another experiment, and 'zip' holds for one only");
  CHECK(!fs::exists(folder / "out"));
}

}  // namespace
}  // namespace plimsoll
