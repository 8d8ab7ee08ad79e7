// run.sh of ./dev pack-gpu, with programs that only pretend.

#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/experiments/run_program.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

void write_program(const fs::path& file, const std::string& text) {
  std::ofstream(file) << "#!/bin/sh\n" << text << '\n';
  fs::permissions(file, fs::perms::owner_all);
}

/// The exit code of run.sh; what it says is in the folder's `said`.
int run_in(const TemporaryFolder& folder, const std::string& words) {
  fs::copy_file("validate/gpu_pack/run.sh", folder / "run.sh", fs::copy_options::overwrite_existing);
  const std::string at = folder.path.string();
  const int status = std::system(("cd " + at + " && PYTHON=/nowhere " + words + " >said 2>&1").c_str());
  return WEXITSTATUS(status);
}

TEST_CASE("without a GPU run.sh says so and leaves nothing behind", "[gpu_pack]") {
  const TemporaryFolder folder;
  write_program(folder / "test_cuda", "echo 'skipped, nothing was tested: no GPU (made up)'; exit 77");
  write_program(folder / "plimsoll", "exit 0");
  CHECK(run_in(folder, "bash run.sh -o out") == 1);
  CHECK(text_of(folder / "said") ==
        "run.sh: this machine has no GPU that can be used, nothing was run:\n"
        "skipped, nothing was tested: no GPU (made up)\n");
  CHECK_FALSE(fs::exists(folder / "out"));
  CHECK(run_in(folder, "bash run.sh f") == 2);
  CHECK(text_of(folder / "said").find("./run.sh [a] [b] [c] [d] [e] [-o DIR]") != std::string::npos);
}

TEST_CASE("run.sh keeps what each step says and how it ended, and goes on after one that fails", "[gpu_pack]") {
  const TemporaryFolder folder;
  write_program(folder / "test_cuda", "[ \"$1\" = --list-tests ] && exit 11; echo tested; exit 3");
  write_program(folder / "plimsoll", "echo \"$@\"");
  REQUIRE(run_in(folder, "bash run.sh a b -o out") == 0);
  CHECK(text_of(folder / "out/a/steps.txt").starts_with("test_cuda: exit code 3, "));
  CHECK(text_of(folder / "out/a/test_cuda.txt") == "tested\n");
  CHECK(text_of(folder / "out/a/calibrate.txt").find("--backend cuda -o ") != std::string::npos);
  CHECK(text_of(folder / "out/b/steps.txt").find("validate_all: exit code 0, ") != std::string::npos);
  CHECK(text_of(folder / "out/b/validate_one.txt").find("--first 1 --rounds 3 ") != std::string::npos);
}

TEST_CASE("run.sh holds plans in PyTorch against their predictions", "[gpu_pack]") {
  const TemporaryFolder folder;
  write_program(folder / "test_cuda", "exit 11");
  write_program(folder / "plimsoll", "exit 0");
  write_program(folder / "python", "[ \"$1\" = -c ] || echo \"$@\"");
  REQUIRE(run_in(folder, "PYTHON=./python bash run.sh d e -o out") == 0);
  for (const char* step : {"d/plans_gpt2_small", "d/plans_gpt2_medium", "e/plans_llama"}) {
    CHECK(text_of(folder / "out" / (std::string(step) + ".txt")).find(" --amp bf16\n") != std::string::npos);
  }
  for (const char* step : {"d/plans_resnet50", "e/plans_unet", "e/plans_lstm"}) {
    const std::string said = text_of(folder / "out" / (std::string(step) + ".txt"));
    CHECK(said.find("gpu_models.py:" + std::string(step).substr(8) + " --device cuda ") != std::string::npos);
  }
}

TEST_CASE("a part of run.sh ends by itself when its time is over", "[gpu_pack][eleventh-4]") {
  const TemporaryFolder folder;
  write_program(folder / "test_cuda", "[ \"$1\" = --list-tests ] && exit 11; exec sleep 600");
  write_program(folder / "plimsoll", "exit 0");
  REQUIRE(run_in(folder, "PART_SECONDS=6 bash run.sh a -o out") == 0);
  const std::string steps = text_of(folder / "out/a/steps.txt");
  CHECK(steps.starts_with("test_cuda: exit code 124 (stopped: its time was over), "));
  CHECK(steps.ends_with("calibrate: left out, the part's time is over\n"));
}

}  // namespace
}  // namespace plimsoll
