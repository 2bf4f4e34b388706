// ScopedBootstrap adds a prefix to the keys, topics and barrier names of another bootstrap. With
// it, a process can make several fabrics in turn, each of which publishes its address under a new
// key.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/support/forwarding_bootstrap.h"

namespace dunlin::testing {

class ScopedBootstrap final : public ForwardingBootstrap {
 public:
  // `whole` must outlive this object.
  ScopedBootstrap(Bootstrap& whole, std::string prefix)
      : ForwardingBootstrap(whole), prefix_(std::move(prefix)) {}

  Status publish(std::string_view key, std::span<const std::byte> value) override {
    return whole().publish(prefixed(key), value);
  }
  Status post(std::string_view key, std::span<const std::byte> value) override {
    return whole().post(prefixed(key), value);
  }
  void release(std::string_view topic, std::size_t users) override {
    whole().release(prefixed(topic), users);
  }
  Result<Bytes> lookup_from(Rank publisher, std::string_view key, Duration timeout) override {
    return whole().lookup_from(publisher, prefixed(key), timeout);
  }
  Result<std::vector<Bytes>> lookup_each(std::string_view topic, std::span<const Rank> publishers,
                                         Duration timeout) override {
    return whole().lookup_each(prefixed(topic), publishers, timeout);
  }
  Result<Bytes> gather(std::string_view name, std::span<const Rank> group,
                       std::span<const std::byte> record, Duration timeout) override {
    return whole().gather(prefixed(name), group, record, timeout);
  }
  Status contribute(std::string_view name, std::span<const Rank> group,
                    std::span<const std::byte> record) override {
    return whole().contribute(prefixed(name), group, record);
  }
  Status barrier(std::string_view name, Duration timeout) override {
    return whole().barrier(prefixed(name), timeout);
  }
  // Only the whole bootstrap leaves the job.
  void leave() noexcept override {}

 private:
  std::string prefixed(std::string_view name) const { return prefix_ + std::string(name); }

  const std::string prefix_;
};

}  // namespace dunlin::testing
