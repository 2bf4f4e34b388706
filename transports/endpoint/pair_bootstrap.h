// PairBootstrap: the bootstrap of the two ranks of a connection between endpoints.
//
// The side that listens is rank 0. Its service thread has the ledger of the job, which makes the
// decisions of a coordinator (runtime/bootstrap/job_ledger.h). Messages travel over the connection
// on which the sides have authenticated each other.
#pragma once

#include <memory>

#include "runtime/bootstrap/client.h"
#include "transports/endpoint/control_service.h"

namespace dunlin::transport::endpoint {

// Owner thread, except for what ControlLine::Client says.
class PairBootstrap final : public bootstrap::BootstrapClient, private ControlLine::Client {
 public:
  // `service` must outlive the object.
  PairBootstrap(ControlService& service, std::shared_ptr<ControlLine> line);
  // Leaves. Does not wait for the peer to hear of it.
  ~PairBootstrap() override;

  Rank peer() const { return Rank(1 - rank().value()); }
  void leave() noexcept override;

 private:
  void transmit(const bootstrap::Message& message) override;
  void take(bootstrap::Message message) override { deliver(std::move(message)); }
  void lose(const Status& why) override;

  ControlService& service_;
  std::shared_ptr<ControlLine> line_;
  bool has_left_ = false;
};

}  // namespace dunlin::transport::endpoint
