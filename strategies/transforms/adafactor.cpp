// The transform `adafactor`: of a matrix's squared gradients only the means of rows and columns are kept.
// Numbers of the states: rows + columns for each matrix of the last two dimensions, as in the programs of PyTorch and
// fairseq; n for a parameter of one dimension; n more with momentum.
// Source: Shazeer, Stern, "Adafactor: adaptive learning rates with sublinear memory cost", ICML 2018.

#include <string>
#include <variant>

#include "strategies/api/strategy.h"
#include "strategies/transforms/changed_states.h"

namespace plimsoll {
namespace {

struct AdafactorOptions {
  bool momentum = false;
};

/// What PyTorch's loop over one parameter moves beside its gradient (once), its states and itself, in numbers of the
/// parameter: its norm 1, the gradient's norms 2 by row and column, the estimate of the variance (made 1, divided 2,
/// clamped 2, rooted 2, times the gradient 3), its norm 1; less what the rest counts already. As many for a vector.
constexpr std::int64_t moved_by_program = 14, moved_by_momentum = 3;

class FactoredStates {
 public:
  explicit FactoredStates(bool momentum) : momentum_(momentum) {}

  std::variant<ChangedStates, std::string> operator()(const TrainedByAdam& of) const {
    const std::vector<std::int64_t>& shape = of.parameter.shape;
    if (shape.empty() && of.numbers != 1) {
      return "the shape of '" + of.parameter.name +
             "' is not known: only graphs that state the shapes of parameters have rows and columns";
    }
    const std::int64_t each = of.numbers > 0 ? of.state.count / of.numbers : 0;
    const auto state = [&](const char* name, std::int64_t numbers) {
      return KeptState{name, Bytes{each * numbers}, std::string(of.dtype)};
    };
    ChangedStates made;
    if (shape.size() > 1) {
      made.states = {state("row variances", of.numbers / shape.back()),
                     state("column variances", of.numbers / shape[shape.size() - 2])};
      made.workspace = Bytes{each * of.numbers};
    } else {
      made.states = {state("variances", of.numbers)};
      made.workspace = Bytes{2 * each * of.numbers};
    }
    if (momentum_) made.states.push_back(state("momentum", of.numbers));
    const std::int64_t moved = moved_by_program + (momentum_ ? moved_by_momentum : 0);
    made.also_moved = Bytes{moved * each * of.numbers};
    return made;
  }

 private:
  bool momentum_;
};

std::variant<Problem, std::string> adafactor(const Problem& problem, const AdafactorOptions& options) {
  return with_optimizer(problem, {.name = "adafactor", .states = FactoredStates(options.momentum)});
}

constexpr auto adafactor_options = options_of<AdafactorOptions>(option_of<&AdafactorOptions::momentum>({
    .name = "momentum",
    .words = "off on",
    .help = "on: the mean of updates is kept as well, a number for each of the parameter's",
}));

}  // namespace

extern constinit const StrategyInfo adafactor_strategy{
    .name = "adafactor",
    .family = Family::transform,
    .summary = "keeps of squared gradients the means of rows and columns instead of Adam's two states",
    .source = "Shazeer and Stern, 'Adafactor: adaptive learning rates with sublinear memory cost', ICML 2018",
    .needs_updates = true,
    .needs_shapes = true,
    .options = adafactor_options,
    .kind = TransformStrategy{.transform = by_options<adafactor>},
};

}  // namespace plimsoll
