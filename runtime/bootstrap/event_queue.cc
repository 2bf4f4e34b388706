#include "runtime/bootstrap/event_queue.h"

#include <sys/epoll.h>

#include <array>
#include <cerrno>

#include "runtime/bootstrap/constants.h"

namespace dunlin::bootstrap {
namespace {

// The kernel keeps 64 bits for each descriptor: the kind from this one on, and the number below.
constexpr int kKindShift = 56;

}  // namespace

Result<EventQueue> EventQueue::create() {
  Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.is_open()) return Status::from_errno("epoll_create1", errno);
  return EventQueue(std::move(epoll));
}

Status EventQueue::control(int operation, int fd, Source source, std::uint32_t events) {
  epoll_event entry{};
  entry.events = events;
  entry.data.u64 = static_cast<std::uint64_t>(source.kind) << kKindShift | source.number;
  if (epoll_ctl(epoll_.get(), operation, fd, &entry) == 0) return Status::ok();
  return Status::from_errno("epoll_ctl", errno);
}

Status EventQueue::add(int fd, Source source, std::uint32_t events) {
  return control(EPOLL_CTL_ADD, fd, source, events);
}

Status EventQueue::change(int fd, Source source, std::uint32_t events) {
  return control(EPOLL_CTL_MOD, fd, source, events);
}

void EventQueue::remove(int fd) {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

std::vector<EventQueue::Event> EventQueue::wait(int timeout_ms) {
  std::array<epoll_event, kMostEvents> ready;
  const int count =
      epoll_wait(epoll_.get(), ready.data(), static_cast<int>(ready.size()), timeout_ms);
  std::vector<Event> events;
  for (int i = 0; i < count; ++i) {  // -1 after a signal
    const epoll_event& each = ready[static_cast<std::size_t>(i)];
    const std::uint64_t number = each.data.u64 & ((std::uint64_t{1} << kKindShift) - 1);
    events.push_back(
        {{static_cast<std::uint8_t>(each.data.u64 >> kKindShift), number}, each.events});
  }
  return events;
}

}  // namespace dunlin::bootstrap
