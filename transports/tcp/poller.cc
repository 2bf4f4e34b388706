#include "transports/tcp/poller.h"

#include <sys/epoll.h>

#include <array>
#include <cerrno>

#include "transports/tcp/constants.h"

namespace dunlin::transport::tcp {

Result<std::unique_ptr<Poller>> Poller::create() {
  Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.is_open()) return Status::from_errno("epoll_create1", errno);
  return std::unique_ptr<Poller>(new Poller(std::move(epoll)));
}

std::size_t Poller::poll() {
  std::array<epoll_event, kMostEvents> events;
  const int count = epoll_wait(epoll_.get(), events.data(), kMostEvents, 0);
  for (int i = 0; i < count; ++i) {
    const std::uint64_t name = events[static_cast<std::size_t>(i)].data.u64;
    const Place& place = places_[name & 0xffffffff];
    // An earlier event may have ended this watch.
    if (place.user != nullptr && place.generation == name >> 32) place.user->on_ready();
  }
  return count > 0 ? static_cast<std::size_t>(count) : 0;
}

std::uint64_t Watch::name() const {
  return place_ | std::uint64_t{poller_->places_[place_].generation} << 32;
}

Status Watch::start(Poller& poller, int socket, SocketUser& user, bool wants_write) {
  stop();
  if (poller.free_.empty()) {
    poller.free_.push_back(static_cast<std::uint32_t>(poller.places_.size()));
    poller.places_.emplace_back();
  }
  poller_ = &poller;
  socket_ = socket;
  place_ = poller.free_.back();
  poller.free_.pop_back();
  poller.places_[place_].user = &user;
  events_ = EPOLLIN | (wants_write ? EPOLLOUT : 0u);
  epoll_event event{};
  event.events = events_;
  event.data.u64 = name();
  if (epoll_ctl(poller.fd(), EPOLL_CTL_ADD, socket, &event) == 0) return Status::ok();
  Status failure = Status::from_errno("epoll_ctl", errno);
  stop();
  return failure;
}

void Watch::stop() {
  if (poller_ == nullptr) return;
  epoll_event unused{};
  (void)epoll_ctl(poller_->fd(), EPOLL_CTL_DEL, socket_, &unused);
  Poller::Place& place = poller_->places_[place_];
  place.user = nullptr;
  ++place.generation;
  poller_->free_.push_back(place_);
  poller_ = nullptr;
}

void Watch::want(bool read, bool write) {
  const std::uint32_t events = (read ? EPOLLIN : 0u) | (write ? EPOLLOUT : 0u);
  if (poller_ == nullptr || events == events_) return;
  events_ = events;
  epoll_event event{};
  event.events = events;
  event.data.u64 = name();
  (void)epoll_ctl(poller_->fd(), EPOLL_CTL_MOD, socket_, &event);
}

}  // namespace dunlin::transport::tcp
