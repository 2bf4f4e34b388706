// RemoteReads, RemoteAtomics: what a lane can do beyond writing, where its transport has it
// (Lane::reads(), Lane::atomics(); transports/README.md has the table).
//
// Both are operations of their lane: posted in order with its puts, under its flow control and
// errors (transports/lane.h). Owner thread only. Order: they see what earlier puts of the lane
// wrote. Later puts and notifications of the lane don't wait for them: who must not overwrite what
// is being read waits for the completion first.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/status.h"
#include "transports/slice.h"

namespace dunlin::transport {

class Completion;

class RemoteReads {
 public:
  // Reads `from` into `to`, whose bytes are there when the completion fires; equal sizes, zero
  // allowed. The owner of `from` takes no part, except over ucx, whose answers need its progress.
  virtual Status get(RemoteSlice from, LocalSlice to, Completion* completion) = 0;

 protected:
  ~RemoteReads() = default;
};

// Against what else an atomic is atomic.
enum class AtomicScope : std::uint8_t {
  kTransport,  // atomics on the same memory through the same transport
  kSystem,  // those of every transport with this scope, and CPU atomics of whoever maps the memory
};
constexpr const char* to_string(AtomicScope scope) {
  return scope == AtomicScope::kTransport ? "this transport" : "the system";
}

// On 64-bit words: 8 bytes at an address that 8 divides (regions that were not wrapped begin at
// one).
class RemoteAtomics {
 public:
  // Adds (modulo 2^64). `before`: null, or set to the word's former value when the completion fires
  // with ok; it has to live until then.
  virtual Status fetch_add(RemoteSlice word, std::uint64_t operand, std::uint64_t* before,
                           Completion* completion) = 0;
  // Stores `desired` if the word is `expected`, which `before` tells.
  virtual Status compare_swap(RemoteSlice word, std::uint64_t expected, std::uint64_t desired,
                              std::uint64_t* before, Completion* completion) = 0;
  // It does not announce puts: after a connection was lost, those that nothing has confirmed (a
  // flush, a notification that was answered) may be written again. Flush before an atomic that
  // others act on. An atomic itself is never carried out twice: one that was under way when its
  // connection broke completes with kIoError, and may have been carried out or not.
  virtual AtomicScope scope() const = 0;

 protected:
  ~RemoteAtomics() = default;
};

}  // namespace dunlin::transport
