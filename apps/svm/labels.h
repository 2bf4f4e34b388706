// Which labels a file uses, and which of them is +1. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dunlin::svm {

// The distinct labels of a file (or of a part of it) in order of first appearance, and where. Keeps
// three at most: the third already has no place in a set of two.
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

// The threshold between the classes of a set of labels: -1/+1, 0/1 or 1/2, or one of each. Of a
// set that is none of these, `misfit` is the first label that made it so.
struct LabelCoding {
  std::optional<float> threshold;
  std::optional<LabelSet::Seen> misfit;
};
LabelCoding coding_of(const LabelSet& labels);

}  // namespace dunlin::svm
