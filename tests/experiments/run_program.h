#pragma once
// Runs the program as a script does.

#include <sys/wait.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/experiments/temporary_folder.h"

namespace plimsoll {

struct ProgramRun {
  int exit_code = 0;  ///< -1: ended by a signal
  std::string out, err;
};

inline std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// `arguments` are a shell's words, `before` those before the program's name.
inline ProgramRun plimsoll(const std::string& arguments, const std::string& before = "") {
  const TemporaryFolder folder;
  FILE* pipe = popen((before + " " PLIMSOLL_PROGRAM " " + arguments + " 2>" + (folder / "err").string()).c_str(), "r");
  REQUIRE(pipe != nullptr);
  ProgramRun run;
  std::array<char, 4096> chunk{};
  while (const std::size_t count = fread(chunk.data(), 1, chunk.size(), pipe)) run.out.append(chunk.data(), count);
  const int status = pclose(pipe);
  run.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  run.err = text_of(folder / "err");
  return run;
}

}  // namespace plimsoll
