#include "bindings/nccl/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>

#include <atomic>
#include <memory>
#include <mutex>

#include "runtime/log.h"

namespace dunlin::nccl {
namespace {

std::atomic<abi::Logger> receiver{nullptr};

class Sink final : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    const abi::Logger function = receiver.load();
    if (function == nullptr) return;
    const bool is_warning = message.level >= spdlog::level::warn;
    function(is_warning ? abi::kLogWarn : abi::kLogInfo,
             is_warning ? abi::kLogAll : abi::kLogNet | abi::kLogInit, "dunlin", 0,
             "NET/Dunlin: %.*s", static_cast<int>(message.payload.size()), message.payload.data());
  }
  void flush_() override {}
};

}  // namespace

abi::Result code_of(const Status& status) {
  switch (status.code()) {
    case Code::kOk:
    case Code::kBusy:
      return abi::kSuccess;
    case Code::kInvalidArgument:
    case Code::kOutOfRange:
    case Code::kCorrupted:
      return abi::kInvalidArgument;
    case Code::kPeerDead:
    case Code::kPeerStalled:
    case Code::kClosed:
    case Code::kDeadlineExceeded:
    case Code::kNotFound:
      return abi::kRemoteError;
    case Code::kInternal:
      return abi::kInternalError;
    default:
      return abi::kSystemError;
  }
}

void log_to(abi::Logger function, LogLevel level) {
  static std::once_flag once;
  receiver = function;
  std::call_once(once, [] { logger().sinks() = {std::make_shared<Sink>()}; });
  // NCCL decides what it shows.
  configure_log(level == LogLevel::kWarn ? LogLevel::kInfo : level, Rank(-1));
}

abi::Result report(const Status& status) {
  if (status.is_error()) DUNLIN_WARN("{}", status.to_string());
  return code_of(status);
}

}  // namespace dunlin::nccl
