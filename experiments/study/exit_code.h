#pragma once
// How the program ends.

namespace plimsoll {

/// Exit codes that scripts rely on: fine; no result (an infeasible budget, a schedule with violations); bad input; a
/// broken promise inside the program; no room for what the program makes, or no permission to write it; interrupted.
inline constexpr int exit_fine = 0, exit_no_result = 1, exit_bad_input = 2, exit_broken_promise = 3, exit_no_room = 4,
                     exit_interrupted = 130;

}  // namespace plimsoll
