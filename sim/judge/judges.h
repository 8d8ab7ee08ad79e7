#pragma once
// The judges that no other judge asks; each is alone in its file. Those that others ask have headers: residency.h,
// versions.h, approximations.h.

#include <memory>

#include "sim/judge/judge.h"

namespace plimsoll {

class ApproximationJudge;
class ResidencyJudge;
class VersionJudge;

/// Before the walk: every index names something, waits name earlier steps, and there are as many steps as what the
/// header states takes at least. Without that there is no walk.
bool is_well_formed(const Schedule&, const Graph&, const Platform&, Findings&);

std::unique_ptr<Judge> cost_judge(Walk&);
std::unique_ptr<Judge> input_judge(Walk&, VersionJudge&);
std::unique_ptr<Judge> output_judge(Walk&, VersionJudge&);
std::unique_ptr<Judge> run_judge(Walk&);
std::unique_ptr<Judge> copy_judge(Walk&, ApproximationJudge&);
std::unique_ptr<Judge> flow_judge(Walk&, ResidencyJudge&);
std::unique_ptr<Judge> exchange_judge(Walk&, ApproximationJudge&);
std::unique_ptr<Judge> clipping_judge(Walk&);
std::unique_ptr<Judge> evaluation_judge(Walk&);
std::unique_ptr<Judge> place_judge(Walk&);
std::unique_ptr<Judge> iteration_judge(Walk&);

}  // namespace plimsoll
