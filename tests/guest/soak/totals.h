// The counts of what the soak has done, for one rank or for all.
#pragma once

#include <cstdint>

#include "runtime/bytes.h"

namespace dunlin::soak {

struct Totals {
  std::uint64_t messages = 0;
  std::uint64_t message_bytes = 0;
  std::uint64_t gets = 0;
  std::uint64_t get_bytes = 0;
  std::uint64_t atomics = 0;

  Totals& operator+=(const Totals& other) {
    messages += other.messages;
    message_bytes += other.message_bytes;
    gets += other.gets;
    get_bytes += other.get_bytes;
    atomics += other.atomics;
    return *this;
  }

  Bytes encode() const {
    ByteWriter writer;
    writer.number(messages).number(message_bytes);
    writer.number(gets).number(get_bytes).number(atomics);
    return writer.take();
  }
  static Totals decode(const Bytes& bytes) {
    ByteReader reader(bytes);
    Totals totals;
    totals.messages = reader.number<std::uint64_t>();
    totals.message_bytes = reader.number<std::uint64_t>();
    totals.gets = reader.number<std::uint64_t>();
    totals.get_bytes = reader.number<std::uint64_t>();
    totals.atomics = reader.number<std::uint64_t>();
    return totals;
  }
};

}  // namespace dunlin::soak
