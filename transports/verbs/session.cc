#include "transports/verbs/session.h"

namespace dunlin::transport::verbs {

Status Session::post_receive() {
  ibv_recv_wr request{};
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_recv(queue_pair(), &request, &bad);
  return error == 0 ? Status::ok() : Status::from_errno("ibv_post_recv", error);
}

}  // namespace dunlin::transport::verbs
