// Runs a test's body as the ranks of a job that are threads of this process, with the public C++
// interface only.
#pragma once

#include <dunlin/job.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace dunlin_test {

inline constexpr auto kTimeout = std::chrono::seconds(60);

// The value, or the end of this rank's body.
template <typename T>
T get(dunlin::Result<T> result) {
  if (!result) throw std::runtime_error(result.status().to_string());
  return std::move(result).value();
}

#define EXPECT_OK(expression)                            \
  do {                                                   \
    const dunlin::Status status_ = (expression);         \
    EXPECT_TRUE(status_.is_ok()) << status_.to_string(); \
  } while (false)

// The body runs once per rank, and the ranks leave together.
inline void run_ranks(int size, const std::function<void(dunlin::Job&)>& body) {
  auto jobs = dunlin::Job::in_process(size, {.settings = {{"DUNLIN_TRANSPORTS", "shm"}}});
  ASSERT_TRUE(jobs.is_ok()) << jobs.status().to_string();
  std::vector<std::thread> threads;
  for (dunlin::Job& job : *jobs) {
    threads.emplace_back([&] {
      try {
        body(job);
      } catch (const std::exception& exception) {
        ADD_FAILURE() << "rank " << job.rank().value() << ": " << exception.what();
      }
      EXPECT_OK(job.leave());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace dunlin_test
