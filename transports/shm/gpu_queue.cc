#include "transports/shm/gpu_queue.h"

#include <algorithm>
#include <new>
#include <utility>

namespace dunlin::transport::shm {

Result<GpuQueue::DeviceStream*> GpuQueue::stream_of(const GpuPlace& place) {
  for (const auto& stream : streams_) {
    if (stream->driver.get() == place.driver && stream->device == place.device) return stream.get();
  }
  auto made = std::make_unique<DeviceStream>();
  made->driver = place.driver->shared_from_this();
  made->device = place.device;
  DUNLIN_ASSIGN(made->stream, place.driver->create_stream(place.device));
  streams_.push_back(std::move(made));
  return streams_.back().get();
}

Result<std::unique_ptr<GpuEvent>> GpuQueue::take_event(DeviceStream& stream) {
  if (stream.unused.empty()) return stream.driver->create_event(stream.device);
  std::unique_ptr<GpuEvent> event = std::move(stream.unused.back());
  stream.unused.pop_back();
  return event;
}

// Copies between two GPUs are carried out by the one that sends.
Status GpuQueue::copy(Direction direction, const GpuPlace& from, const GpuPlace& to,
                      std::size_t size, const Notification* notification, Completion* completion,
                      Detour detour) {
  if (!failure_.is_ok()) return failure_;
  if (count_ == entries_.size()) return Status::busy();
  DUNLIN_ASSIGN(DeviceStream* const stream, stream_of(from.driver != nullptr ? from : to));
  DUNLIN_ASSIGN(auto event, take_event(*stream));
  Status started = from.driver == nullptr ? stream->stream->copy_to_device(to.data, from.data, size)
                   : to.driver == nullptr
                       ? stream->stream->copy_to_host(to.data, from.data, size)
                       : stream->stream->copy_on_device(to.data, from.data, size);
  DUNLIN_TRY(std::move(started));
  Status recorded = event->record(stream->stream->native());
  if (!recorded.is_ok()) {
    fail(recorded);  // no event would tell when the copy is done
    if (is_stuck_) (void)detour.bytes.release();
    return recorded;
  }
  Entry& entry = push(notification, completion);
  entry.stream = stream;
  entry.event = std::move(event);
  entry.direction = direction;
  if (direction == Direction::kPut) ++puts_;
  entry.detour = std::move(detour);
  entry.size = size;
  if (entry.detour.bytes != nullptr) detour_bytes_ += size;
  return Status::ok();
}

Status GpuQueue::add(const Notification* notification, Completion* completion) {
  if (!failure_.is_ok()) return failure_;
  if (count_ == entries_.size()) return Status::busy();
  push(notification, completion);
  return Status::ok();
}

GpuQueue::Entry& GpuQueue::push(const Notification* notification, Completion* completion) {
  if (count_ == 0) {
    busy_.add(*this);
    owner_.hold_notifications(true);
  }
  Entry& entry = entries_[(first_ + count_++) % entries_.size()];
  entry.completion = completion;
  entry.has_notification = notification != nullptr;
  if (notification != nullptr) {
    entry.notification = *notification;
    const auto data = notification->inline_data;
    std::copy(data.begin(), data.end(), entry.inline_data.begin());
    entry.notification.inline_data = std::span(entry.inline_data).first(data.size());
  }
  return entry;
}

void GpuQueue::complete_first(Status status) {
  Entry& entry = entries_[first_];
  if (entry.event != nullptr) entry.stream->unused.push_back(std::move(entry.event));
  if (std::exchange(entry.direction, Direction::kGet) == Direction::kPut) --puts_;
  if (entry.detour.bytes != nullptr) detour_bytes_ -= entry.size;
  if (is_stuck_) (void)entry.detour.bytes.release();
  entry.detour = {};
  if (entry.has_notification && status.is_ok()) owner_.publish_queued(entry.notification);
  Completion* const completion = std::exchange(entry.completion, nullptr);
  first_ = (first_ + 1) % entries_.size();
  if (--count_ == 0) {
    busy_.remove(*this);
    owner_.hold_notifications(false);
  }
  fire(completion, std::move(status));
}

// A GPU that can't go on says so at once.
void GpuQueue::settle() {
  const TimePoint deadline = clock_.now() + kGpuCloseTime;
  for (const auto& stream : streams_) {
    const Status status = await(*stream->stream, clock_, deadline, "a copy");
    is_stuck_ = is_stuck_ || status.code() == Code::kDeadlineExceeded;
  }
}

Result<GpuQueue::Detour> GpuQueue::make_detour(std::size_t size, std::uint64_t target) const {
  if (!has_room() || (detour_bytes_ != 0 && detour_bytes_ + size > kMostDetourBytes))
    return Status::busy();
  Detour made{std::unique_ptr<std::byte[]>(new (std::nothrow) std::byte[size]), target};
  if (made.bytes != nullptr) return made;
  return Status(Code::kResourceExhausted,
                "no memory for the bytes between GPU memory and another process");
}

// Copies may be in progress, and their memory belongs to the caller afterwards. Nothing may be
// published behind data that has not arrived.
void GpuQueue::fail(Status failure) {
  failure_ = std::move(failure);
  settle();
  while (count_ > 0) complete_first(failure_);
  owner_.hold_notifications(true);
}

std::size_t GpuQueue::progress() {
  std::size_t completed = 0;
  while (count_ > 0) {
    const Entry& entry = entries_[first_];
    Status status = entry.event == nullptr ? Status::ok() : entry.event->poll();
    if (status.is_busy()) break;
    if (status.is_ok() && entry.detour.target != 0)
      status = owner_.deliver(entry.detour.bytes.get(), entry.size, entry.detour.target);
    if (!status.is_ok()) {
      completed += count_;
      fail(std::move(status).with_context("a copy of GPU memory"));
      break;
    }
    complete_first(Status::ok());
    ++completed;
  }
  return completed;
}

void GpuQueue::close() noexcept {
  settle();
  (void)progress();
  if (count_ > 0) fail(Status(Code::kClosed, "the lane was closed before the GPU was done"));
}

}  // namespace dunlin::transport::shm
