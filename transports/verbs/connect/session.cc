#include "transports/verbs/connect/session.h"

#include <algorithm>
#include <chrono>

#include "transports/verbs/constants.h"

namespace dunlin::transport::verbs {
namespace {

// To some devices. So does a timeout of 0 to all.
constexpr std::uint8_t kEndlessRetries = 7;

Duration endurance_by(std::uint8_t timeout, std::uint8_t retries) {
  return std::chrono::nanoseconds((1LL + retries) * (4096LL << timeout));
}

}  // namespace

Delivery::Delivery(const Config& config)
    : traffic_class(static_cast<int>(config.verbs_traffic_class)),
      service_level(static_cast<std::uint8_t>(config.verbs_service_level)),
      timeout(static_cast<std::uint8_t>(config.verbs_timeout)),
      retries(static_cast<std::uint8_t>(config.verbs_retry_count)) {}

Duration Delivery::close_grace() const {
  const Duration two_timeouts = std::chrono::nanoseconds(2 * (4096LL << timeout));
  return std::clamp<Duration>(two_timeouts, kCloseGrace, kLongestCloseGrace);
}

Duration Delivery::endurance() const {
  return endurance_by(timeout, retries);
}

std::optional<Duration> endurance_of(ibv_qp* queue_pair) {
  ibv_qp_attr found{};
  ibv_qp_init_attr initial{};
  if (ibv_query_qp(queue_pair, &found, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT, &initial) != 0) return {};
  if (found.timeout == 0 || found.retry_cnt >= kEndlessRetries) return {};
  return endurance_by(found.timeout, found.retry_cnt);
}

Status Session::post_receive() {
  ibv_recv_wr request{};
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_recv(queue_pair(), &request, &bad);
  return error == 0 ? Status::ok() : Status::from_errno("ibv_post_recv", error);
}

}  // namespace dunlin::transport::verbs
