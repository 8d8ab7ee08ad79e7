#pragma once
// A portfolio that is asked alone chooses among ways to use all devices of the platform, and to store states.

#include <optional>

#include "experiments/study/run.h"

namespace plimsoll {

struct AnsweredQuestion {
  Question question;
  Problem problem;
  Answer answer;
};

/// Where the question's strategy is `portfolio` and nothing else, and the platform has several devices or states may
/// have 8 bits: the fastest of it on one device and of pipelines, replicas, placements and splits on all, each alone
/// and with recomputation; where nothing fits, the one that needs the least. The strategy of the answered question is
/// the chosen one, the answer's candidates are all that were asked. Nothing where there is no such choice.
std::optional<AnsweredQuestion> chosen_for_devices(const Question&, const Trace&, const Platform&);

}  // namespace plimsoll
