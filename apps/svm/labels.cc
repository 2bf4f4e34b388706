#include "apps/svm/labels.h"

#include <algorithm>
#include <array>

namespace dunlin::svm {

LabelCoding coding_of(const LabelSet& labels) {
  struct Coding {
    float negative;
    float positive;
  };
  constexpr std::array<Coding, 3> kCodings = {{{-1, 1}, {0, 1}, {1, 2}}};
  // The codings to which all labels so far belong. For a lone 1, the first of them counts.
  std::vector<Coding> fitting(kCodings.begin(), kCodings.end());
  for (const LabelSet::Seen& seen : labels.seen()) {
    std::erase_if(fitting, [&](const Coding& coding) {
      return seen.label != coding.negative && seen.label != coding.positive;
    });
    if (fitting.empty()) return {std::nullopt, seen};
  }
  return {(fitting.front().negative + fitting.front().positive) / 2, std::nullopt};
}

}  // namespace dunlin::svm
