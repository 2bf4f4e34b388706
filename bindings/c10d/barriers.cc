// The group's barriers (group.h).
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "bindings/c10d/calls.h"
#include "bindings/c10d/group.h"

namespace dunlin::torch_backend {

using c10d::OpType;
using collective::Collective;

namespace {

// The other ranks wait this much longer than rank 0, so that they learn which ranks are missing.
constexpr std::chrono::milliseconds kVerdictDelay = std::chrono::seconds(1);

constexpr const char* kMonitoredTitle = "dunlin:monitored_barrier";

at::Tensor as_tensor(const std::string& text) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(text.size())}, at::TensorOptions(at::kByte));
  if (!text.empty()) std::memcpy(tensor.data_ptr(), text.data(), text.size());
  return tensor;
}

}  // namespace

Group::Pending Group::barrier(const c10d::BarrierOptions& options) {
  return start({.type = OpType::BARRIER,
                .title = "dunlin:barrier",
                .calls = {{.collective = Collective::kBarrier}}},
               options.timeout);
}

void Group::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all) {
  const Milliseconds given = limited(options.timeout);
  const Milliseconds timeout = given == c10d::kUnsetTimeout ? timeout_.load() : given;
  getRank() == 0 ? await_arrivals(timeout, wait_all) : await_verdict(timeout);
}

// Errors have the words of gloo's, which programs look for.
void Group::await_arrivals(Milliseconds timeout, bool wait_all) {
  const std::string topic = member_->name() + "/monitored";
  // Zero would be the group's timeout.
  const Milliseconds limit = std::max(timeout, Milliseconds(1));
  std::vector<Pending> arrivals;
  for (int rank = 1; rank < getSize(); ++rank) {
    Plan plan{.type = OpType::BARRIER, .title = kMonitoredTitle};
    plan.messages = {{rank, {}, false, std::make_shared<Bytes>()}};
    plan.topic = topic;
    arrivals.push_back(start(std::move(plan), limit));
  }
  std::string failure;
  if (timeout.count() <= 0 && !wait_all && getSize() > 1) {
    failure =
        fmt::format("[Rank 0]: Rank 0 timed out in monitoredBarrier after {} ms.", timeout.count());
  }
  std::vector<int> missing;
  for (int rank = 1; rank < getSize() && failure.empty(); ++rank) {
    try {
      arrivals[static_cast<std::size_t>(rank - 1)]->wait(c10d::kUnsetTimeout);
    } catch (const std::exception& error) {
      missing.push_back(rank);
      if (wait_all) continue;
      failure = fmt::format(
          "[Rank 0]: Rank {} failed to pass monitoredBarrier in {} ms\n Original exception:\n{}",
          rank, timeout.count(), error.what());
    }
  }
  if (wait_all && !missing.empty()) {
    failure = fmt::format("[Rank 0]: Ranks {} failed to pass monitoredBarrier in {} ms",
                          fmt::join(missing, ", "), timeout.count());
  }
  // Ranks that arrive later, too, learn that this one has given up.
  Plan plan{.type = OpType::BARRIER, .title = kMonitoredTitle};
  plan.topic = topic;
  plan.held = {as_tensor(failure)};
  for (int rank = 1; rank < getSize(); ++rank) plan.messages.push_back({rank, plan.held[0], true});
  const Pending verdict = start(std::move(plan), limit);
  if (!failure.empty()) raise({Code::kDeadlineExceeded, std::move(failure)});
  verdict->wait(c10d::kUnsetTimeout);
}

void Group::await_verdict(Milliseconds timeout) {
  const auto verdict = std::make_shared<Bytes>();
  Plan plan{.type = OpType::BARRIER, .title = kMonitoredTitle};
  plan.topic = member_->name() + "/monitored";
  plan.held = {at::zeros({1}, at::TensorOptions(at::kByte))};
  plan.messages = {{0, plan.held[0], true}, {0, {}, false, verdict}};
  std::string failure;
  try {
    const Milliseconds limit = std::max(timeout, timeout_.load()) + kVerdictDelay;
    start(std::move(plan), limit)->wait(c10d::kUnsetTimeout);
    failure.assign(reinterpret_cast<const char*>(verdict->data()), verdict->size());
  } catch (const c10::Error& error) {
    failure = error.what_without_backtrace();
  } catch (const std::runtime_error& error) {
    failure = error.what();
  }
  if (failure.empty()) return;
  raise({Code::kDeadlineExceeded,
         fmt::format("Rank {} successfully reached monitoredBarrier, but received errors while "
                     "waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank."
                     "\n Original exception:\n{}",
                     getRank(), failure)});
}

}  // namespace dunlin::torch_backend
