// Status and Result: all interfaces of Dunlin report failures through them, never by exceptions.
//
// A Status is a code. A failure also has a text, which names the operation and the origin (such as
// an errno or the status of UCX or libibverbs in words), and possibly the peer. A Status is one
// word, and ok and busy allocate nothing, so that the data path can return it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "runtime/rank.h"

namespace dunlin {

enum class Code : std::uint8_t {
  kOk = 0,
  kBusy,             // flow control: nothing was done; call progress() and try again
  kInvalidArgument,  // an error of the caller: the value can never work
  kOutOfRange,       // a slice, an index or a rank beyond its bounds
  kNotFound,
  kAlreadyExists,
  kPermissionDenied,  // authentication failed, or the kernel refused
  kUnavailable,       // missing on this host or in this build
  kDeadlineExceeded,
  kPeerDead,     // the peer's process or connection has ended
  kPeerStalled,  // the peer is alive but makes no progress
  kClosed,       // the object was closed; its outstanding operations complete with this code
  kCorrupted,    // data violate a checksum, a format or a protocol
  kResourceExhausted,
  kIoError,
  kInternal,  // a defect in Dunlin
};

const char* to_string(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  // A failure. kOk and kBusy are not failures and become kInternal. `message` says what failed and
  // where, so that its reader can act on it.
  Status(Code code, std::string message);
  Status(const Status& other);
  Status& operator=(const Status& other);
  // A Status that was moved from is ok.
  Status(Status&& other) noexcept : word_(std::exchange(other.word_, kOkWord)) {}
  Status& operator=(Status&& other) noexcept {
    std::swap(word_, other.word_);
    return *this;
  }
  ~Status() {
    if (is_error()) [[unlikely]]
      discard();
  }

  static Status ok() { return {}; }
  static Status busy() {
    Status status;
    status.word_ = kBusyWord;
    return status;
  }
  // The message is "<what>: <strerror(error)>". The errno determines the code.
  static Status from_errno(std::string_view what, int error);

  bool is_ok() const { return word_ == kOkWord; }
  bool is_busy() const { return word_ == kBusyWord; }
  // Neither ok nor busy.
  bool is_error() const { return word_ > kBusyWord; }
  explicit operator bool() const { return is_ok(); }
  Code code() const { return is_error() ? detail().code : is_ok() ? Code::kOk : Code::kBusy; }

  std::string_view message() const { return is_error() ? detail().message : std::string_view{}; }
  // The peer that the failure concerns, if any.
  std::optional<Rank> peer() const { return is_error() ? detail().peer : std::nullopt; }

  // Both add what the caller knows, return *this for chaining, and leave ok and busy unchanged.
  Status&& with_peer(Rank peer) &&;
  Status&& with_context(std::string_view context) &&;  // "<context>: <message>"

  // "peer_dead: put to rank 3: ..."
  std::string to_string() const;

 private:
  struct Detail {
    Code code;
    std::string message;
    std::optional<Rank> peer;
  };
  static constexpr std::uintptr_t kOkWord = 0;
  static constexpr std::uintptr_t kBusyWord = 1;

  Detail& detail() const { return *reinterpret_cast<Detail*>(word_); }
  void discard() noexcept;

  std::uintptr_t word_ = kOkWord;  // or kBusyWord, or the address of an owned Detail
};

// A value, or the Status that says why there is no value.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT(*-explicit-*)
  Result(Status status)
      : state_(std::in_place_index<1>, std::move(status)) {}  // NOLINT(*-explicit-*)

  bool is_ok() const { return state_.index() == 0; }
  explicit operator bool() const { return is_ok(); }

  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  Status status() const& { return is_ok() ? Status::ok() : std::get<1>(state_); }
  Status status() && { return is_ok() ? Status::ok() : std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Status> state_;
};

// Returns the Status `expr` from the enclosing function unless it is ok. Busy returns as well.
#define DUNLIN_TRY(expr)                                                                 \
  do {                                                                                   \
    if (::dunlin::Status try_status_ = (expr); !try_status_.is_ok()) return try_status_; \
  } while (false)

// DUNLIN_ASSIGN(auto x, f()) sets x to the value of the Result f(). When there is no value, the
// enclosing function returns its Status.
#define DUNLIN_ASSIGN(lhs, expr) \
  DUNLIN_ASSIGN_IMPL_(DUNLIN_CONCAT_(try_result_, __LINE__), lhs, expr)
#define DUNLIN_ASSIGN_IMPL_(result, lhs, expr)            \
  auto result = (expr);                                   \
  if (!result.is_ok()) return std::move(result).status(); \
  lhs = std::move(result).value()
#define DUNLIN_CONCAT_(a, b) DUNLIN_CONCAT_IMPL_(a, b)
#define DUNLIN_CONCAT_IMPL_(a, b) a##b

}  // namespace dunlin
