#include "transports/tcp/channel.h"

namespace dunlin::transport::tcp {

Status Channel::start(Poller& poller, Fd socket, const SessionKeys& keys, End end,
                      SocketUser& user) {
  stop();
  socket_ = std::move(socket);
  is_blocked_ = false;
  const bool is_client = end == End::kClient;
  writer_.start(keys.cipher, is_client ? keys.to_server : keys.to_client);
  reader_.start(keys.cipher, is_client ? keys.to_client : keys.to_server);
  Status status = watch_.start(poller, socket_.get(), user);
  if (!status.is_ok()) stop();
  return status;
}

void Channel::stop() {
  watch_.stop();
  socket_.reset();
}

Status Channel::flush(std::size_t& budget) {
  Status status = writer_.flush(socket_.get(), budget);
  is_blocked_ = status.is_busy();
  watch_.want(true, is_blocked_);
  return status;
}

}  // namespace dunlin::transport::tcp
