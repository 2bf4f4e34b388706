#include "transports/verbs/rails/rails.h"

#include <fmt/format.h>

#include <utility>

#include "runtime/log.h"
#include "transports/verbs/engine.h"

namespace dunlin::transport::verbs {

Rails::Carrier::Carrier(Engine& engine, Rank peer, std::size_t port, std::uint8_t number)
    : port_(port),
      name_(fmt::format("rail {} ({})", number, engine.port(port).name())),
      out_(engine, engine.port(port), peer, LaneKind::kData, number) {}

bool Rails::Carrier::post(const StripedPut& put, const Stripe& stripe, Completion& landed) {
  if (!out_.failure().is_ok()) return false;
  if (!out_.has_room(2)) {
    if (Status status = out_.wake(); !status.is_ok()) {
      landed.fire(std::move(status).with_context(name_));
      return true;
    }
    if (!out_.has_room(2)) return false;
  }
  Transfer transfer;
  transfer.local = put.local + stripe.offset;
  transfer.local_key = put.local_keys[port_];
  transfer.remote = put.remote + stripe.offset;
  transfer.remote_key = put.remote_keys[port_];
  transfer.size = stripe.size;
  out_.carry(transfer, landed);
  return true;
}

std::unique_ptr<Rails> Rails::connect(Engine& engine, Rank peer, const Address& address,
                                      std::size_t ports, std::size_t wanted) {
  auto made = std::make_unique<Rails>();
  std::vector<Rail*> carriers;
  for (std::size_t i = 0; i < wanted; ++i) {
    auto rail =
        std::make_unique<Carrier>(engine, peer, i % ports, static_cast<std::uint8_t>(i + 1));
    if (Status status = rail->out().connect(address); !status.is_ok()) {
      DUNLIN_WARN("verbs: rank {} is reached without {}: {}", peer.value(), rail->name(),
                  status.message());
      continue;
    }
    carriers.push_back(rail.get());
    made->rails_.push_back(std::move(rail));
  }
  if (carriers.size() < 2) return nullptr;
  made->stripes_ = std::make_unique<Stripes>(std::move(carriers), engine.queue_depth());
  return made;
}

Status Rails::failure() const {
  for (const auto& rail : rails_) {
    if (const Status& why = rail->out().failure(); !why.is_ok())
      return Status(why).with_context(rail->name());
  }
  return Status::ok();
}

void Rails::fail(const Status& why) {
  for_each([&](Outbound& rail) { rail.fail(why); });
}

}  // namespace dunlin::transport::verbs
