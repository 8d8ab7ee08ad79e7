#pragma once
// What the commands answer, for Python: an object as text, and columns of numbers behind it.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "experiments/sweep/sweep.h"
#include "sim/io/json/json.h"

namespace plimsoll {

/// A question as Python asks it: options of the command line by their names, `-` as `_`, and their words. A flag's word
/// is not looked at; `parameter_group` may be there several times; `schedule` and `timeout` belong to it.
using PythonWords = std::vector<std::pair<std::string, std::string>>;

struct PythonReply {
  Json head;            ///< an object; its `arrays` are name, type (`f8`, `i8`, `u1`) and count, as they follow
  std::string numbers;  ///< of the arrays, one behind the other, as this machine has them
};

/// What `plimsoll simulate` answers, with steps and live bytes over time.
PythonReply simulated_for_python(const PythonWords&);

/// What `plimsoll plan` writes, with the same. `made_for`: empty, or `pytorch`.
PythonReply planned_for_python(const PythonWords&, const std::string& made_for);

/// What `plimsoll explain --json` prints.
PythonReply explained_for_python(const PythonWords&, bool looks_for_better);

/// What `plimsoll fits --json` prints, of its words behind the command's name.
PythonReply fitted_for_python(const std::vector<std::string>& words);

/// Runs a sweep, and replies with all records of its folder.
PythonReply swept_for_python(const SweepOptions&);

/// A task's reply as bytes; where it throws, what that is: `error` (`input`, `illegal`, `unavailable`, `output`,
/// `memory`, `interrupted` or `defect`) and `message`. What the task prints is kept: as `printed`, lines on stderr as
/// `notes`.
std::string bytes_of_reply(const std::function<PythonReply()>& task, const std::string& strategy);

/// The word of a question; empty where it has none.
std::string word_named(const PythonWords&, const std::string& name);

}  // namespace plimsoll
