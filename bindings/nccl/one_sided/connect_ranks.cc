#include "bindings/nccl/one_sided/connect_ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <mutex>
#include <string>
#include <utility>

#include "runtime/bytes.h"

namespace dunlin::nccl {
namespace {

using Connections = std::vector<std::unique_ptr<transport::Connection>>;

// Each rank connects to those above it. All functions need the endpoint's lock.
class Meeting {
 public:
  Meeting(SharedEndpoint& endpoint, std::size_t ranks, int rank)
      : endpoint_(endpoint), rank_(static_cast<std::size_t>(rank)), connections_(ranks) {}

  Status dial(std::span<const Handle> handles) {
    ByteWriter greeting;
    greeting.number(static_cast<std::uint32_t>(rank_));
    const Bytes bytes = greeting.take();
    for (std::size_t to = rank_ + 1; to < handles.size(); ++to) {
      DUNLIN_ASSIGN(const auto blob, blob_of(handles[to]));
      DUNLIN_ASSIGN(connections_[to], endpoint_.endpoint->connect(blob, bytes));
    }
    return Status::ok();
  }

  // kBusy until all ranks are connected.
  Status check() {
    DUNLIN_TRY(accept());
    bool is_busy = false;
    for (std::size_t i = 0; i < connections_.size(); ++i) {
      if (i == rank_) continue;
      const Status status = connections_[i] ? progress(*connections_[i]) : Status::busy();
      if (status.code() == Code::kDeadlineExceeded) return {status.code(), missing()};
      if (status.is_error())
        return Status(status).with_context(fmt::format("connecting with rank {}", i));
      is_busy |= status.is_busy();
    }
    return is_busy ? Status::busy() : Status::ok();
  }

  std::string missing() const {
    std::vector<std::size_t> ranks;
    for (std::size_t i = 0; i < connections_.size(); ++i) {
      if (i != rank_ && (!connections_[i] || !connections_[i]->status().is_ok()))
        ranks.push_back(i);
    }
    return fmt::format("not connected with rank {}{}", fmt::join(ranks, ", "), last_error_);
  }

  Connections take() { return std::move(connections_); }
  // All that there are, to be ended.
  Connections take_all() {
    Connections all = std::move(arriving_);
    for (auto& connection : connections_) all.push_back(std::move(connection));
    std::erase(all, nullptr);
    return all;
  }

 private:
  static Status progress(transport::Connection& connection) {
    connection.progress();
    return connection.status();
  }

  Status accept() {
    while (auto connection = endpoint_.endpoint->accept())
      arriving_.push_back(std::move(connection));
    for (std::size_t i = 0; i < arriving_.size();) {
      const Status status = progress(*arriving_[i]);
      if (status.is_busy()) {
        ++i;
        continue;
      }
      if (status.is_error()) {
        // It may connect again. A rank that does not is missing in the end.
        last_error_ =
            fmt::format("; a process that was connecting has given up: {}", status.message());
        arriving_.erase(arriving_.begin() + static_cast<std::ptrdiff_t>(i));
        continue;
      }
      ByteReader greeting(arriving_[i]->greeting());
      const auto from = greeting.number<std::uint32_t>();
      if (!greeting.at_end() || from >= rank_)
        return {Code::kCorrupted, "a process has connected that is no rank of the group"};
      if (connections_[from] != nullptr)
        return {Code::kCorrupted, fmt::format("rank {} has connected twice", from)};
      connections_[from] = std::move(arriving_[i]);
      arriving_.erase(arriving_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return Status::ok();
  }

  SharedEndpoint& endpoint_;
  const std::size_t rank_;
  Connections connections_;  // by rank
  Connections arriving_;     // of ranks that are not known yet
  std::string last_error_;   // of one of them
};

}  // namespace

Result<Connections> connect_ranks(SharedEndpoint& endpoint, std::span<const Handle> handles,
                                  int rank) {
  Meeting meeting(endpoint, handles.size(), rank);
  Status status;
  {
    std::unique_lock lock(endpoint.mutex);
    status = meeting.dial(handles);
    const TimePoint deadline = SharedEndpoint::clock().now() + endpoint.config->bootstrap_timeout;
    if (status.is_ok()) status = endpoint.await(lock, deadline, [&] { return meeting.check(); });
    if (status.is_busy()) status = Status(Code::kDeadlineExceeded, meeting.missing());
  }
  if (status.is_ok()) return meeting.take();
  Connections ending = meeting.take_all();
  endpoint.end(ending);
  return status;
}

}  // namespace dunlin::nccl
