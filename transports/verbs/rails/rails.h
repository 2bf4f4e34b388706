// Rails: the queue pairs that carry the large puts of one lane. The lane's own queue pair carries
// everything else, including all notifications.
//
// A rail is an Outbound of its own, so it is connected, and connected again when it was lost, as a
// lane is. It carries each piece of a put as a WRITE followed by a READ. The completion of the
// WRITE says only that the peer's device has the bytes; a completion of another device or queue
// pair may appear at the peer before these bytes are in memory. The answer to the READ is formed
// after they are.
//
// Owned by the lane's Outbound. Owner thread only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transports/verbs/path/outbound.h"
#include "transports/verbs/rails/stripes.h"

namespace dunlin::transport::verbs {

class Rails {
 public:
  // Begins to connect `wanted` rails, distributed evenly over `ports` ports. A rail without a route
  // to the peer is left out, with a warning. Returns null if fewer than two rails are left.
  static std::unique_ptr<Rails> connect(Engine& engine, Rank peer, const Address& address,
                                        std::size_t ports, std::size_t wanted);

  std::size_t size() const { return rails_.size(); }
  Stripes& stripes() { return *stripes_; }
  // The failure of the first rail that is over, or ok if none is.
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

  // Destroyed after the carriers, which fire its completions.
  std::unique_ptr<Stripes> stripes_;
  std::vector<std::unique_ptr<Carrier>> rails_;
};

}  // namespace dunlin::transport::verbs
