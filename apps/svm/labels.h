// Finds which labels a file uses, and which of them is +1. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dunlin::svm {

// The distinct labels of a file (or of a part of it) in order of first appearance, with their
// places. Keeps at most three, since a third label already makes the set invalid.
class LabelSet {
 public:
  struct Seen {
    float label;
    std::uint64_t line;
    std::size_t column;
  };

  void add(const Seen& seen) {
    for (const Seen& other : seen_) {
      if (other.label == seen.label) return;
    }
    if (seen_.size() < 3) seen_.push_back(seen);
  }
  const std::vector<Seen>& seen() const { return seen_; }

 private:
  std::vector<Seen> seen_;
};

// The threshold between the classes of a set of labels, which are -1/+1, 0/1 or 1/2, or one of
// these labels alone. For another set, `misfit` is the first label that does not fit.
struct LabelCoding {
  std::optional<float> threshold;
  std::optional<LabelSet::Seen> misfit;
};
LabelCoding coding_of(const LabelSet& labels);

}  // namespace dunlin::svm
