#include "validate/batch.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace plimsoll {

Score score_of(const float* probabilities, std::int64_t rows, std::int64_t classes, const std::int32_t* labels) {
  Score score{.rows = rows};
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* row = probabilities + r * classes;
    const double likely = std::max(double{row[labels[r]]}, double{std::numeric_limits<float>::min()});
    score.loss -= std::log(likely);
    score.right += std::max_element(row, row + classes) - row == labels[r] ? 1 : 0;
  }
  return score;
}

}  // namespace plimsoll
