#include "collectives/training/methods/ad_psgd_edge.h"

#include <algorithm>

namespace dunlin::training {

Status AdPsgdEdge::send(transport::LocalSlice model) {
  for (; !waiting_.empty(); waiting_.pop_front()) {
    const auto tag = static_cast<std::uint64_t>(waiting_.front());
    if (waiting_.front() != PairMessage::kModel) {
      DUNLIN_TRY(out_.try_send_inline({}, tag));
      continue;
    }
    DUNLIN_TRY(out_.try_send(model, tag, &posted_.completion));
    posted_.is_posted = true;
    bytes_sent_ += model.size();
  }
  return Status::ok();
}

bool AdPsgdEdge::is_model_sent() const {
  return posted_.is_done() &&
         std::find(waiting_.begin(), waiting_.end(), PairMessage::kModel) == waiting_.end();
}

}  // namespace dunlin::training
