#pragma once
// A task in a process of its own: it can be ended at any moment, and what crashes there takes nobody with it.

#include <functional>
#include <optional>
#include <string>

namespace plimsoll {

/// What the task returns, run in a child of this process that starts nothing of its caller's: no exit handler, no
/// interpreter. `goes_on` is asked at least ten times a second and after each signal; where it says no, the child is
/// interrupted as by Ctrl-C, ended where it is still there after half a second, and nothing is returned. Throws
/// std::runtime_error where the child dies without a reply.
std::optional<std::string> reply_of_child(const std::function<std::string()>& task,
                                          const std::function<bool()>& goes_on);

}  // namespace plimsoll
