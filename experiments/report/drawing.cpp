#include "experiments/report/drawing.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "sim/io/input_error.h"
#include "sim/io/output_error.h"
#include "sim/io/shipped.h"

namespace plimsoll {

void draw_by_python(std::string_view name, std::initializer_list<std::string> of) {
  constexpr int no_matplotlib = 42, cannot_write = 43, cannot_run = 127;
  const std::string python = "/usr/bin/python3", script = shipped_file(name);
  std::vector<std::string> words{python, script};
  words.insert(words.end(), of.begin(), of.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t process = -1;
  int status = cannot_run << 8;
  if (posix_spawn(&process, python.c_str(), nullptr, nullptr, arguments.data(), environ) == 0) {
    while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
    }
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  if (WIFSIGNALED(status)) {
    throw OutputError(fmt::format("figures: {} {} was ended by signal {} ({})", python, script, WTERMSIG(status),
                                  strsignal(WTERMSIG(status))));
  }
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  if (code == cannot_run) throw InputError("figures need " + python + ": apt-get install python3 python3-matplotlib");
  if (code == no_matplotlib) throw InputError("figures need matplotlib: apt-get install python3-matplotlib");
  if (code == cannot_write) throw OutputError("figures: cannot be written, see above");
  throw InputError(fmt::format("figures: {} {} failed, see above", python, script));
}

}  // namespace plimsoll
