// Rails: the queue pairs that carry the large puts of one lane to one peer, beside the lane's own
// queue pair, which keeps everything else and the notifications.
//
// A rail is an Outbound of its own, so that it is connected, and connected again when it was lost,
// as a lane is. It carries a piece as a WRITE and a READ behind it: the completion of the WRITE
// says only that the peer's device has the bytes, and another device's, or another queue pair's,
// completion there may overtake them on their way into memory; the answer to the READ is formed
// after they are there.
//
// Owned by the lane's Outbound. Owner thread only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transports/verbs/outbound.h"
#include "transports/verbs/stripes.h"

namespace dunlin::transport::verbs {

class Rails {
 public:
  // Begins to connect `wanted` rails, which take turns among `ports` ports. A rail that has no way
  // to the peer is left out, with a warning. Null: fewer than two are left.
  static std::unique_ptr<Rails> connect(Engine& engine, Rank peer, const Address& address,
                                        std::size_t ports, std::size_t wanted);

  std::size_t size() const { return rails_.size(); }
  Stripes& stripes() { return *stripes_; }
  // Of the first rail that is over; ok: none is.
  Status failure() const;
  void fail(const Status& why);

  template <typename Function>
  void for_each(Function&& function) {
    for (const auto& rail : rails_) function(rail->out());
  }

 private:
  class Carrier final : public Rail {
   public:
    Carrier(Engine& engine, Rank peer, std::size_t port, std::uint8_t number);
    bool post(const StripedPut& put, const Stripe& stripe, Completion& landed) override;
    Outbound& out() { return out_; }
    const std::string& name() const { return name_; }

   private:
    const std::size_t port_;
    const std::string name_;  // "rail 2 (mlx5_1 port 1)"
    Outbound out_;
  };

  // The stripes go last: the carriers fire their completions.
  std::unique_ptr<Stripes> stripes_;
  std::vector<std::unique_ptr<Carrier>> rails_;
};

}  // namespace dunlin::transport::verbs
