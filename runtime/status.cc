#include "runtime/status.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>

namespace dunlin {

const char* to_string(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kBusy:
      return "busy";
    case Code::kInvalidArgument:
      return "invalid_argument";
    case Code::kOutOfRange:
      return "out_of_range";
    case Code::kNotFound:
      return "not_found";
    case Code::kAlreadyExists:
      return "already_exists";
    case Code::kPermissionDenied:
      return "permission_denied";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kDeadlineExceeded:
      return "deadline_exceeded";
    case Code::kPeerDead:
      return "peer_dead";
    case Code::kPeerStalled:
      return "peer_stalled";
    case Code::kClosed:
      return "closed";
    case Code::kCorrupted:
      return "corrupted";
    case Code::kResourceExhausted:
      return "resource_exhausted";
    case Code::kIoError:
      return "io_error";
    case Code::kInternal:
      return "internal";
  }
  return "unknown";
}

namespace {

Code code_of_errno(int error) {
  switch (error) {
    case 0:
      return Code::kInternal;
    case EACCES:
    case EPERM:
      return Code::kPermissionDenied;
    case ENOENT:
    case ESRCH:
      return Code::kNotFound;
    case EEXIST:
      return Code::kAlreadyExists;
    case EINVAL:
      return Code::kInvalidArgument;
    case ENOMEM:
    case ENOSPC:
    case EMFILE:
    case ENFILE:
      return Code::kResourceExhausted;
    case ETIMEDOUT:
      return Code::kDeadlineExceeded;
    case ECONNREFUSED:
    case ENOSYS:
    case EOPNOTSUPP:
      return Code::kUnavailable;
    default:
      return Code::kIoError;
  }
}

}  // namespace

Status::Status(Code code, std::string message)
    : word_(reinterpret_cast<std::uintptr_t>(
          new Detail{code > Code::kBusy ? code : Code::kInternal, std::move(message), {}})) {}

Status::Status(const Status& other)
    : word_(other.is_error() ? reinterpret_cast<std::uintptr_t>(new Detail(other.detail()))
                             : other.word_) {}

Status& Status::operator=(const Status& other) {
  if (this != &other) *this = Status(other);
  return *this;
}

void Status::discard() noexcept {
  delete &detail();
}

Status Status::from_errno(std::string_view what, int error) {
  std::string text = std::string(what) + ": " + std::strerror(error);
  rlimit limit{};
  if (error == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0)
    text += fmt::format(" (this process may have {}; 'ulimit -n' raises it)", limit.rlim_cur);
  return {code_of_errno(error), std::move(text)};
}

Status&& Status::with_peer(Rank peer) && {
  if (is_error()) detail().peer = peer;
  return std::move(*this);
}

Status&& Status::with_context(std::string_view context) && {
  if (is_error()) detail().message = std::string(context) + ": " + detail().message;
  return std::move(*this);
}

std::string Status::to_string() const {
  std::string text = dunlin::to_string(code());
  if (is_error()) {
    text += ": " + detail().message;
    if (detail().peer) text += " (rank " + std::to_string(detail().peer->value()) + ")";
  }
  return text;
}

}  // namespace dunlin
