// ValueBook: what ranks have published, and how much each of them has given the coordinator to
// keep. It belongs to a JobLedger.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "runtime/bootstrap/wire.h"
#include "runtime/bytes.h"
#include "runtime/rank.h"
#include "runtime/status.h"

namespace dunlin::bootstrap {

class ValueBook {
 public:
  explicit ValueBook(int size) : kept_(static_cast<std::size_t>(size)) {}

  // Keeps a value: text: key; value. kAlreadyExists if a rank has published the key before.
  Status keep(Rank from, const Message& message);
  // The value of a key; null if it has not been published.
  const Bytes* find(const std::string& key) const;
  // Forgets the value of a topic, and those of ranks under it (Bootstrap::key_of).
  void forget(const std::string& topic);

  // What the coordinator keeps for a message.
  static std::size_t bytes_of(const Message& message);
  // Counts so many more bytes as kept for a rank. kResourceExhausted if that is too much for one
  // rank.
  Status charge(Rank rank, std::size_t more);
  // Takes back what charge() has counted, for what is not kept or not any more.
  void refund(Rank rank, std::size_t bytes);

 private:
  struct Kept {
    std::size_t keys = 0;
    std::size_t bytes = 0;
  };
  struct Value {
    Bytes bytes;
    Rank publisher;
    std::size_t kept_bytes = 0;
  };
  using Values = std::map<std::string, Value, std::less<>>;

  Values::iterator erase(Values::iterator value);

  Values values_;
  std::vector<Kept> kept_;  // by rank
};

}  // namespace dunlin::bootstrap
