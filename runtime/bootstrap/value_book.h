// ValueBook: what ranks have published. It belongs to a JobLedger.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "runtime/bootstrap/allowance.h"
#include "runtime/bootstrap/wire.h"
#include "runtime/bytes.h"
#include "runtime/rank.h"
#include "runtime/status.h"

namespace dunlin::bootstrap {

class ValueBook {
 public:
  // Values count in `allowance`, which outlives this object.
  explicit ValueBook(Allowance& allowance) : allowance_(allowance) {}

  // Keeps a value: text: key; value. kAlreadyExists if a rank has published the key before.
  Status keep(Rank from, const Message& message);
  // The value of a key; null if it has not been published.
  const Bytes* find(const std::string& key) const;
  // Forgets the value of a topic, and those of ranks under it (Bootstrap::key_of).
  void forget(const std::string& topic);

 private:
  struct Value {
    Bytes bytes;
    Rank publisher;
    std::size_t kept_bytes = 0;
  };
  using Values = std::map<std::string, Value, std::less<>>;

  Values::iterator erase(Values::iterator value);

  Allowance& allowance_;
  Values values_;
};

}  // namespace dunlin::bootstrap
