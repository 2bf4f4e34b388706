#include "transports/endpoint/pair_bootstrap.h"

#include <string>
#include <utility>

#include "transports/endpoint/constants.h"

namespace dunlin::transport::endpoint {

using bootstrap::Message;
using bootstrap::MessageType;

namespace {

JobInfo job_of(const ControlLine& line) {
  JobInfo job;
  job.rank = line.rank();
  job.size = 2;
  job.local_rank = job.rank.value();
  job.local_size = 2;
  job.spans_pid_namespaces = line.spans_pid_namespaces();
  job.job_id = line.job_id();
  job.launcher = "endpoint";
  return job;
}

}  // namespace

PairBootstrap::PairBootstrap(ControlService& service, std::shared_ptr<ControlLine> line)
    : BootstrapClient(job_of(*line), line->key()), service_(service), line_(std::move(line)) {
  service_.attach(*line_, *this);
}

PairBootstrap::~PairBootstrap() {
  leave();
}

void PairBootstrap::leave() noexcept {
  if (std::exchange(has_left_, true)) return;
  transmit({.type = MessageType::kLeave});
  service_.detach(*line_);
  disconnect(Status(Code::kClosed, "this side has left the connection"));
}

void PairBootstrap::transmit(const Message& message) {
  service_.send(*line_, message);
}

void PairBootstrap::lose(const Status& why) {
  peers().mark(peer(), PeerState::kDead, std::string(why.message()));
  disconnect(Status(Code::kPeerDead, std::string(why.message())).with_peer(peer()));
}

}  // namespace dunlin::transport::endpoint
