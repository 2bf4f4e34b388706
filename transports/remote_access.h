// RemoteReads and RemoteAtomics: gets and atomics, which only some lanes offer.
//
// Lane::reads() and Lane::atomics() return these interfaces, or null if the lane does not have the
// ability; transports/README.md has a table. Gets and atomics are operations of their lane, with
// the same flow control and errors as its puts (transports/lane.h). Owner thread only.
//
// Ordering: a get or atomic sees what earlier puts of the lane wrote. Later puts and notifications
// of the lane do not wait for it. To overwrite memory that is being read, wait for the completion
// of the get first.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/status.h"
#include "transports/slice.h"

namespace dunlin::transport {

class Completion;

class RemoteReads {
 public:
  // Reads the bytes of `from` into `to`, where they are once the completion has fired. The slices
  // must have equal sizes; zero is allowed. The owner of `from` takes no part, except over ucx and
  // tcp, where the owner must make progress to answer.
  virtual Status get(RemoteSlice from, LocalSlice to, Completion* completion) = 0;

 protected:
  ~RemoteReads() = default;
};

// Which other operations on the same memory an atomic is atomic with.
enum class AtomicScope : std::uint8_t {
  kTransport,  // with atomics through the same transport
  kSystem,     // with atomics of all transports of this scope, and with atomics of the CPU
};
constexpr const char* to_string(AtomicScope scope) {
  return scope == AtomicScope::kTransport ? "this transport" : "the system";
}

// Atomics on 64-bit words. A word has 8 bytes, at an address that is a multiple of 8. Memory that
// Dunlin allocated begins at such an address.
//
// An atomic is never carried out twice. If the connection breaks while it is in progress, it
// completes with kIoError, and may have been carried out or not. An atomic does not announce
// earlier puts: when a connection is reestablished, puts that were not confirmed (by a flush or by
// an answer to a notification) may be written again. If other ranks act on the atomic, flush first.
class RemoteAtomics {
 public:
  // Adds `operand` to the word, modulo 2^64. `before` may be null. Otherwise it must live until the
  // completion fires, and holds the word's former value if the completion fires with ok.
  virtual Status fetch_add(RemoteSlice word, std::uint64_t operand, std::uint64_t* before,
                           Completion* completion) = 0;
  // Stores `desired` if the word equals `expected`. `before` is as above; the word was changed if
  // and only if the former value equals `expected`.
  virtual Status compare_swap(RemoteSlice word, std::uint64_t expected, std::uint64_t desired,
                              std::uint64_t* before, Completion* completion) = 0;
  virtual AtomicScope scope() const = 0;

 protected:
  ~RemoteAtomics() = default;
};

}  // namespace dunlin::transport
