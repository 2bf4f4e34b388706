// Outlasting: buffers of an operation that goes on after its caller has given up.
#pragma once

#include <memory>
#include <utility>

#include "collectives/waiting/expiry.h"
#include "transports/fabric.h"

namespace dunlin::collective {

template <typename Buffers>
class Outlasting {
 public:
  Buffers* operator->() { return &kept_->buffers; }
  Buffers& operator*() { return kept_->buffers; }

  // Call it with the outcome of the operation. If the operation may still use the buffers, as after
  // a timeout, the fabric keeps them until it ends.
  void settle(transport::Fabric& fabric, const Status& outcome) {
    if (is_expiry(outcome)) fabric.keep_until_done(std::move(kept_));
  }

 private:
  struct Kept final : transport::KeptUntilDone {
    bool is_done() const override { return false; }
    Buffers buffers;
  };
  std::unique_ptr<Kept> kept_ = std::make_unique<Kept>();
};

}  // namespace dunlin::collective
