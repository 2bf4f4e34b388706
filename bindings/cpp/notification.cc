#include <dunlin/notification.h>

#include <utility>

#include "bindings/cpp/internal.h"

namespace dunlin {

static_assert(kNotificationBytes == transport::kInlineBytes);

struct NotificationCells::Impl {
  Impl(std::shared_ptr<JobState> state, transport::NotifyId at, std::uint32_t number)
      : job(std::move(state)), board(job->fabric->board()), first(at), count(number) {}
  ~Impl() { board.free(first, count); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  transport::NotifyId at(std::uint32_t index) const { return transport::cell_at(first, index); }

  std::shared_ptr<JobState> job;
  transport::NotifyBoard& board;
  transport::NotifyId first;
  std::uint32_t count;
};

NotificationCells::NotificationCells(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
NotificationCells::NotificationCells(NotificationCells&&) noexcept = default;
NotificationCells& NotificationCells::operator=(NotificationCells&&) noexcept = default;
NotificationCells::~NotificationCells() = default;

Result<NotificationCells> NotificationCells::allocate(Job& job, std::uint32_t count) {
  DUNLIN_ASSIGN(const auto first, Internal::fabric(job).board().allocate(count));
  return NotificationCells(std::make_unique<Impl>(Internal::state(job), first, count));
}

std::uint32_t NotificationCells::size() const {
  return impl_->count;
}

NotificationId NotificationCells::id(std::uint32_t index) const {
  return NotificationId(static_cast<std::uint32_t>(impl_->at(index)));
}

std::uint64_t NotificationCells::sequence(std::uint32_t index) const {
  return impl_->board.sequence(impl_->at(index));
}

Notification NotificationCells::read(std::uint32_t index) const {
  const std::uint64_t sequence = impl_->board.sequence(impl_->at(index));
  const transport::NotifyCell& cell = impl_->board.cell(impl_->at(index));
  return {id(index), sequence, cell.tag, cell.length, {cell.inline_data, cell.inline_size}};
}

Status NotificationCells::wait(std::uint32_t index, std::uint64_t sequence, Rank writer,
                               Duration timeout) {
  const transport::NotifyId cell = impl_->at(index);
  return impl_->job->fabric->wait(
      [&] { return impl_->board.sequence(cell) >= sequence ? Status::ok() : Status::busy(); },
      transport::Awaiting{[&] {
                            return std::vector<transport::Awaited>{{writer, "its notification"}};
                          },
                          [&] { return writer; }},
      timeout);
}

}  // namespace dunlin
