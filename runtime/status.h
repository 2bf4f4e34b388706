// Status and Result: how every boundary of Dunlin reports failure.
//
// A Status is a code plus, for failures, a text and where the failure came from: the origin (errno,
// a UCX or libibverbs status in words), the peer and the operation. `ok` and `busy` never allocate
// and a Status is one word, so that it can be returned from the data path. No exceptions cross
// Dunlin's interfaces.
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
  kBusy,             // flow control: nothing was done; progress, then try again
  kInvalidArgument,  // the caller's mistake: a value that can never work
  kOutOfRange,       // a slice, an index or a rank beyond its bounds
  kNotFound,
  kAlreadyExists,
  kPermissionDenied,  // authentication failed, or the kernel refused
  kUnavailable,       // not on this machine or not in this build
  kDeadlineExceeded,
  kPeerDead,     // the peer's process or connection is gone
  kPeerStalled,  // the peer lives but makes no progress
  kClosed,       // the object was closed; pending operations complete with this
  kCorrupted,    // a checksum, a format or a protocol is violated
  kResourceExhausted,
  kIoError,
  kInternal,  // a bug in Dunlin
};

const char* to_string(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  // A failure (kOk and kBusy, which are none, become kInternal). `message` says what and where, in
  // words that its reader can act on.
  Status(Code code, std::string message);
  Status(const Status& other);
  Status& operator=(const Status& other);
  // What was moved from is ok.
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
  // "<what>: <strerror(error)>"; the code follows from the errno.
  static Status from_errno(std::string_view what, int error);

  bool is_ok() const { return word_ == kOkWord; }
  bool is_busy() const { return word_ == kBusyWord; }
  // Neither ok nor busy.
  bool is_error() const { return word_ > kBusyWord; }
  explicit operator bool() const { return is_ok(); }
  Code code() const { return is_error() ? detail().code : is_ok() ? Code::kOk : Code::kBusy; }

  std::string_view message() const { return is_error() ? detail().message : std::string_view{}; }
  // The peer that the failure concerns, if it concerns one.
  std::optional<Rank> peer() const { return is_error() ? detail().peer : std::nullopt; }

  // Adds what the layer above knows; both return *this for chaining and do nothing to ok and busy.
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

  std::uintptr_t word_ = kOkWord;  // or kBusyWord, or the address of a Detail that this owns
};

// A value or the Status that says why there is none.
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

  // Ok when there is a value.
  Status status() const& { return is_ok() ? Status::ok() : std::get<1>(state_); }
  Status status() && { return is_ok() ? Status::ok() : std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Status> state_;
};

// Returns from the enclosing function unless `expr` is ok (busy returns as well).
#define DUNLIN_TRY(expr)                                                                 \
  do {                                                                                   \
    if (::dunlin::Status try_status_ = (expr); !try_status_.is_ok()) return try_status_; \
  } while (false)

// DUNLIN_ASSIGN(auto x, f()): x is the value of the Result, or the function returns its Status.
#define DUNLIN_ASSIGN(lhs, expr) \
  DUNLIN_ASSIGN_IMPL_(DUNLIN_CONCAT_(try_result_, __LINE__), lhs, expr)
#define DUNLIN_ASSIGN_IMPL_(result, lhs, expr)            \
  auto result = (expr);                                   \
  if (!result.is_ok()) return std::move(result).status(); \
  lhs = std::move(result).value()
#define DUNLIN_CONCAT_(a, b) DUNLIN_CONCAT_IMPL_(a, b)
#define DUNLIN_CONCAT_IMPL_(a, b) a##b

}  // namespace dunlin
