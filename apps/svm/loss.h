// The losses of a linear classifier, as functions of the margin z = label * (w.x + bias).
#pragma once

#include <cmath>
#include <cstdint>

namespace dunlin::svm {

enum class Loss : std::uint8_t { kHinge = 0, kSquaredHinge = 1, kLog = 2 };

inline double loss_at(Loss loss, double z) {
  switch (loss) {
    case Loss::kHinge:
      return z < 1 ? 1 - z : 0;
    case Loss::kSquaredHinge:
      return z < 1 ? 0.5 * (1 - z) * (1 - z) : 0;
    case Loss::kLog:
      return z > 0 ? std::log1p(std::exp(-z)) : std::log1p(std::exp(z)) - z;
  }
  return 0;
}

// The name of a loss on the command line.
constexpr const char* to_string(Loss loss) {
  switch (loss) {
    case Loss::kHinge:
      return "hinge";
    case Loss::kSquaredHinge:
      return "squared-hinge";
    case Loss::kLog:
      return "log";
  }
  return "unknown";
}

// The negative derivative, -dloss/dz, which is never negative. It says how much an example changes
// the model.
inline double pull_at(Loss loss, double z) {
  switch (loss) {
    case Loss::kHinge:
      return z < 1 ? 1 : 0;
    case Loss::kSquaredHinge:
      return z < 1 ? 1 - z : 0;
    case Loss::kLog:
      return 1 / (1 + std::exp(z));
  }
  return 0;
}

}  // namespace dunlin::svm
