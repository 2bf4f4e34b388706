// What the tests of the coordinator share: a coordinator, plans to join it, whole jobs as threads,
// bare connections, and what is logged meanwhile.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/bootstrap/coordinator.h"
#include "runtime/bootstrap/tcp_bootstrap.h"
#include "runtime/log.h"

namespace dunlin::bootstrap {

inline constexpr const char* kSecret = "correct horse battery staple";
inline constexpr Duration kTimeout = std::chrono::seconds(20);

inline TimePoint soon() {
  return SteadyClock().now() + kTimeout;
}

// Collects all log messages from its construction to its destruction.
class LogCapture {
 public:
  LogCapture() { logger().sinks().push_back(sink_); }
  ~LogCapture() { std::erase(logger().sinks(), sink_); }
  bool await(const std::string& text) {
    const TimePoint deadline = soon();
    while (SteadyClock().now() < deadline) {
      if (sink_->contains(text)) return true;
      std::this_thread::yield();
    }
    return false;
  }
  std::string text() const { return sink_->text(); }

 private:
  class Sink final : public spdlog::sinks::base_sink<std::mutex> {
   public:
    bool contains(const std::string& needle) {
      const std::lock_guard lock(mutex_);
      return text_.find(needle) != std::string::npos;
    }
    std::string text() {
      const std::lock_guard lock(mutex_);
      return text_;
    }

   protected:
    void sink_it_(const spdlog::details::log_msg& message) override {
      text_.append(message.payload.data(), message.payload.size()).append("\n");
    }
    void flush_() override {}

   private:
    std::string text_;
  };
  std::shared_ptr<Sink> sink_ = std::make_shared<Sink>();
};

inline std::unique_ptr<Coordinator> start_coordinator(
    int size, Duration heartbeat = std::chrono::milliseconds(50)) {
  return Coordinator::start({.size = size,
                             .job_id = "test",
                             .secret = kSecret,
                             .heartbeat = heartbeat,
                             .listen = {"127.0.0.1", 0}})
      .value();
}

inline JoinPlan plan_for(const Coordinator& coordinator, int rank, int size) {
  JoinPlan plan;
  plan.job.rank = Rank(rank);
  plan.job.size = size;
  plan.coordinator = {coordinator.address()};
  plan.secret = kSecret;
  plan.host = Rank();
  plan.timeout = kTimeout;
  return plan;
}

inline std::string error_of(JoinPlan plan) {
  return TcpBootstrap::join(std::move(plan)).status().to_string();
}

// The error of a join that is refused until its timeout. On a busy host, a short timeout may pass
// before the coordinator's thread has answered: then the join is repeated with a longer one.
inline Status refusal_of(const std::function<JoinPlan()>& make_plan) {
  for (Duration timeout = std::chrono::milliseconds(100);; timeout *= 10) {
    JoinPlan plan = make_plan();
    plan.timeout = timeout;
    Status status = TcpBootstrap::join(std::move(plan)).status();
    if (status.code() != Code::kDeadlineExceeded || timeout >= kTimeout) return status;
  }
}

// Runs `body` for every rank of a job, each in a thread.
inline void run_job(const Coordinator& coordinator, int size,
                    const std::function<void(Bootstrap&)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      auto joined = TcpBootstrap::join(plan_for(coordinator, rank, size));
      ASSERT_TRUE(joined.is_ok()) << joined.status().to_string();
      body(**joined);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

inline void expect_that_a_job_still_starts(const Coordinator& coordinator, int size) {
  run_job(coordinator, size, [](Bootstrap& bootstrap) {
    EXPECT_TRUE(bootstrap.barrier("still works", kTimeout).is_ok());
  });
}

inline Fd connect_raw(const Coordinator& coordinator) {
  return connect_to(coordinator.address(), soon()).value();
}

// Waits until the coordinator has closed the connection.
inline bool is_closed_soon(const Fd& socket) {
  char byte[256];
  while (wait_for(socket.get(), POLLIN, soon())) {
    const ssize_t got = recv(socket.get(), byte, sizeof byte, 0);
    if (got == 0 || (got < 0 && errno == ECONNRESET)) return true;
  }
  return false;
}

}  // namespace dunlin::bootstrap
