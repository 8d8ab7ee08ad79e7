#include "validate/reference/layers.h"

#include <algorithm>

namespace plimsoll::plain {
namespace {

template <class Number>
void embedded(const std::int32_t* token, const float* table, const float* positions, const EmbeddingSizes& s,
              Number* y) {
  for (std::int64_t row = 0; row < s.tokens; ++row) {
    const float* word = table + token[row] * s.width;
    const float* place = positions == nullptr ? nullptr : positions + row % s.sequence * s.width;
    for (std::int64_t j = 0; j < s.width; ++j) {
      y[row * s.width + j] = stored_as<Number>(place == nullptr ? word[j] : word[j] + place[j]);
    }
  }
}

template <class Number>
void gradients_of_tables(const std::int32_t* token, const Number* dy, const EmbeddingSizes& s, float* dtable,
                         float* dpositions) {
  std::fill_n(dtable, s.vocabulary * s.width, 0.0F);
  if (dpositions != nullptr) std::fill_n(dpositions, s.sequence * s.width, 0.0F);
  for (std::int64_t row = 0; row < s.tokens; ++row) {
    const Number* gradient = dy + row * s.width;
    float* word = dtable + token[row] * s.width;
    for (std::int64_t j = 0; j < s.width; ++j) word[j] += as_float(gradient[j]);
    if (dpositions == nullptr) continue;
    float* place = dpositions + row % s.sequence * s.width;
    for (std::int64_t j = 0; j < s.width; ++j) place[j] += as_float(gradient[j]);
  }
}

template <class Number>
void loss_gradient(const float* probabilities, std::int64_t rows, std::int64_t classes, const std::int32_t* labels,
                   std::int64_t mean_over, Number* dlogits) {
  const float share = 1.0F / static_cast<float>(mean_over);
  for (std::int64_t i = 0; i < rows * classes; ++i) dlogits[i] = stored_as<Number>(probabilities[i] * share);
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t i = row * classes + (labels == nullptr ? row % classes : labels[row]);
    dlogits[i] = stored_as<Number>(probabilities[i] * share - share);
  }
}

}  // namespace

void max_pool_gradient(const float* x, const float* dy, const PoolSizes& s, float* dx) {
  std::fill_n(dx, s.batch * s.height * s.width * s.channels, 0.0F);
  for (std::int64_t window = 0; window < s.batch * s.rows * s.columns; ++window) {
    const std::int64_t n = window / (s.rows * s.columns), i = window / s.columns % s.rows, j = window % s.columns;
    for (std::int64_t c = 0; c < s.channels; ++c) {
      dx[largest_in_window(x, s, n, i, j, c)] += dy[window * s.channels + c];
    }
  }
}

void average_pool(const float* x, std::int64_t batch, std::int64_t pixels, std::int64_t channels, float* y) {
  std::fill_n(y, batch * channels, 0.0F);
  for (std::int64_t i = 0; i < batch * pixels * channels; ++i) {
    y[i / (pixels * channels) * channels + i % channels] += x[i];
  }
  for (std::int64_t i = 0; i < batch * channels; ++i) y[i] /= static_cast<float>(pixels);
}

void average_pool_gradient(const float* dy, std::int64_t batch, std::int64_t pixels, std::int64_t channels, float* dx) {
  for (std::int64_t i = 0; i < batch * pixels * channels; ++i) {
    dx[i] = dy[i / (pixels * channels) * channels + i % channels] / static_cast<float>(pixels);
  }
}

void embedding(const std::int32_t* token, const float* table, const float* positions, const EmbeddingSizes& s,
               float* y) {
  embedded(token, table, positions, s, y);
}

void embedding(const std::int32_t* token, const float* table, const float* positions, const EmbeddingSizes& s,
               Bf16* y) {
  embedded(token, table, positions, s, y);
}

void embedding_weight_gradient(const std::int32_t* token, const float* dy, const EmbeddingSizes& s, float* dtable,
                               float* dpositions) {
  gradients_of_tables(token, dy, s, dtable, dpositions);
}

void embedding_weight_gradient(const std::int32_t* token, const Bf16* dy, const EmbeddingSizes& s, float* dtable,
                               float* dpositions) {
  gradients_of_tables(token, dy, s, dtable, dpositions);
}

void softmax(const float* x, std::int64_t rows, std::int64_t columns, float* y) {
  for (std::int64_t first = 0; first < rows * columns; first += columns) {
    const float largest = *std::max_element(x + first, x + first + columns);
    double sum = 0;
    for (std::int64_t i = first; i < first + columns; ++i) sum += std::exp(x[i] - largest);
    for (std::int64_t i = first; i < first + columns; ++i) y[i] = std::exp(x[i] - largest) / static_cast<float>(sum);
  }
}

void softmax_gradient(const float* y, const float* dy, std::int64_t rows, std::int64_t columns, float* dx) {
  for (std::int64_t first = 0; first < rows * columns; first += columns) {
    double dot = 0;
    for (std::int64_t i = first; i < first + columns; ++i) dot += y[i] * dy[i];
    for (std::int64_t i = first; i < first + columns; ++i) dx[i] = y[i] * (dy[i] - static_cast<float>(dot));
  }
}

void cross_entropy_gradient(const float* probabilities, std::int64_t rows, std::int64_t classes,
                            const std::int32_t* labels, std::int64_t mean_over, float* dlogits) {
  loss_gradient(probabilities, rows, classes, labels, mean_over, dlogits);
}

void cross_entropy_gradient(const float* probabilities, std::int64_t rows, std::int64_t classes,
                            const std::int32_t* labels, std::int64_t mean_over, Bf16* dlogits) {
  loss_gradient(probabilities, rows, classes, labels, mean_over, dlogits);
}

void lstm_cell(const float* gates, const float* state, std::int64_t batch, std::int64_t width, float* next) {
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t j = 0; j < width; ++j) {
      const LstmUnit u(gates + b * 4 * width, width, j, state[(2 * b + 1) * width + j]);
      next[2 * b * width + j] = u.o * u.squashed;
      next[(2 * b + 1) * width + j] = u.cell;
    }
  }
}

void lstm_cell_gradient(const float* dnext, const float* gates, const float* state, std::int64_t batch,
                        std::int64_t width, float* dgates) {
  for (std::int64_t b = 0; b < batch; ++b) {
    const float *above = dnext + b * 2 * width, *own = gates + b * 4 * width;
    float* out = dgates + b * 4 * width;
    for (std::int64_t j = 0; j < width; ++j) {
      const float before = state[(2 * b + 1) * width + j];
      const LstmUnit u(own, width, j, before);
      const float dc = u.cell_gradient(above[j], above[width + j]);
      out[j] = dc * u.g * u.i * (1 - u.i);
      out[width + j] = dc * before * u.f * (1 - u.f);
      out[2 * width + j] = dc * u.i * (1 - u.g * u.g);
      out[3 * width + j] = above[j] * u.squashed * u.o * (1 - u.o);
    }
  }
}

void lstm_cell_half(const float* dnext, const float* gates, const float* state, std::int64_t batch, std::int64_t width,
                    float* dstate) {
  for (std::int64_t b = 0; b < batch; ++b) {
    const float* above = dnext + b * 2 * width;
    for (std::int64_t j = 0; j < width; ++j) {
      const LstmUnit u(gates + b * 4 * width, width, j, state[(2 * b + 1) * width + j]);
      dstate[(2 * b + 1) * width + j] = u.cell_gradient(above[j], above[width + j]) * u.f;
    }
  }
}

}  // namespace plimsoll::plain
