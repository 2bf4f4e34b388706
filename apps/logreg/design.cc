#include "apps/logreg/design.h"

namespace dunlin::logreg {

std::uint64_t Design::count_right(std::span<const double> model) const {
  std::uint64_t right = 0;
  for (std::size_t row = 0; row < rows(); ++row) {
    right += (times(row, model) > 0) == (label(row) > 0) ? 1 : 0;
  }
  return right;
}

}  // namespace dunlin::logreg
