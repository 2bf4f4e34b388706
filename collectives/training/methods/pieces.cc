#include "collectives/training/methods/pieces.h"

#include <fmt/format.h>

#include <algorithm>

namespace dunlin::training {

ModelRange share_of(std::size_t count, std::size_t parts, std::size_t index) {
  const std::size_t each = count / parts;
  const std::size_t longer = count % parts;  // the first `longer` parts have one more
  const std::size_t first = index * each + std::min(index, longer);
  return {first, each + (index < longer ? 1 : 0)};
}

Status check_range(ModelRange range, std::size_t count) {
  if (range.first <= count && range.count <= count - range.first) return Status::ok();
  return {Code::kOutOfRange, fmt::format("{} elements from {} on exceed a model of {}", range.count,
                                         range.first, count)};
}

Pieces::Pieces(ModelRange whole, std::size_t piece_elements)
    : whole_(whole),
      piece_elements_(piece_elements),
      missing_(whole.count / piece_elements + (whole.count % piece_elements != 0 ? 1 : 0)) {
  reset();
}

ModelRange Pieces::at(std::size_t index) const {
  const std::size_t end = whole_.end() - index * piece_elements_;
  const std::size_t count = std::min(piece_elements_, end - whole_.first);
  return {end - count, count};
}

void Pieces::reset() {
  for (std::size_t i = 0; i < size(); ++i) missing_[i] = at(i).count;
  ready_ = 0;
}

Status Pieces::add(ModelRange range) {
  const std::size_t first = std::max(range.first, whole_.first);
  const std::size_t end = std::min(range.end(), whole_.end());
  if (first >= end) return Status::ok();
  for (std::size_t i = (whole_.end() - end) / piece_elements_; i < size(); ++i) {
    const ModelRange piece = at(i);
    if (piece.end() <= first) break;
    const std::size_t covered = std::min(end, piece.end()) - std::max(first, piece.first);
    if (covered > missing_[i] || i < ready_) {
      return {Code::kInvalidArgument,
              fmt::format("{} elements of the gradient from {} on are reported as ready twice in "
                          "one iteration",
                          range.count, range.first)};
    }
    missing_[i] -= covered;
  }
  while (ready_ < size() && missing_[ready_] == 0) ++ready_;
  return Status::ok();
}

}  // namespace dunlin::training
