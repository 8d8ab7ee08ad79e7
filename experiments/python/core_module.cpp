// plimsoll._core: what the package's own Python (traces/python/plimsoll/answers.py) asks, each question in a process of
// its own. Names, units and errors are made there.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "experiments/python/child_reply.h"
#include "experiments/python/python_reply.h"
#include "experiments/study/build_name.h"

namespace py = pybind11;

namespace plimsoll {
namespace {

/// The head as text, and the numbers behind it.
py::tuple reply_of(const std::function<PythonReply()>& task, const std::string& strategy = {}) {
  std::optional<std::string> bytes;
  {
    const py::gil_scoped_release others_run;
    bytes = reply_of_child([&] { return bytes_of_reply(task, strategy); },
                           [] {
                             const py::gil_scoped_acquire held;
                             return PyErr_CheckSignals() == 0;
                           });
  }
  if (!bytes) throw py::error_already_set();
  std::uint64_t size = 0;
  std::memcpy(&size, bytes->data(), sizeof size);
  const std::size_t numbers = sizeof size + size;
  return py::make_tuple(py::str(bytes->data() + sizeof size, size),
                        py::bytes(bytes->data() + numbers, bytes->size() - numbers));
}

py::tuple simulate_words(const PythonWords& words) {
  return reply_of([&] { return simulated_for_python(words); }, word_named(words, "strategy"));
}

py::tuple plan_words(const PythonWords& words, const std::string& made_for) {
  return reply_of([&] { return planned_for_python(words, made_for); }, word_named(words, "strategy"));
}

py::tuple explain_words(const PythonWords& words, bool better) {
  return reply_of([&] { return explained_for_python(words, better); }, word_named(words, "strategy"));
}

py::tuple fits_words(const std::vector<std::string>& words) {
  return reply_of([&] { return fitted_for_python(words); });
}

py::tuple sweep_file(const std::string& experiment, const std::string& folder, std::size_t jobs,
                     const std::vector<std::string>& settings, const std::string& preset, bool resume) {
  const SweepOptions options{.experiment = experiment,
                             .folder = folder,
                             .changes = {.settings = settings, .preset = preset},
                             .jobs = jobs,
                             .resume = resume,
                             .quiet = true,
                             .command_line = "plimsoll in Python"};
  return reply_of([&] { return swept_for_python(options); });
}

}  // namespace
}  // namespace plimsoll

PYBIND11_MODULE(_core, module) {
  using py::arg;
  module.doc() =
      "What the commands of plimsoll answer: (head, numbers), a JSON object and the arrays that it names. Each call "
      "runs "
      "in a process of its own and lets other threads run; Ctrl-C ends it.";
  module.def("simulate", &plimsoll::simulate_words, arg("words"), "Times in seconds, sizes in bytes.");
  module.def("plan", &plimsoll::plan_words, arg("words"), arg("made_for"),
             "The same, and the text of the plan's file.");
  module.def("explain", &plimsoll::explain_words, arg("words"), arg("better"), "Times in seconds, sizes in bytes.");
  module.def("fits", &plimsoll::fits_words, arg("words"), "Words of the command; sizes in bytes.");
  module.def("sweep", &plimsoll::sweep_file, arg("experiment"), arg("folder"), arg("jobs"), arg("settings"),
             arg("preset"), arg("resume"), "All records of the folder; times in seconds, sizes in bytes.");
  module.def(
      "version", [] { return plimsoll::program_version(); }, "The program's name, version and build.");
}
