// ScopedBootstrap adds a prefix to the keys and barrier names of another bootstrap. With it, a
// process can make several fabrics in turn, each of which publishes its address under a new key.
#pragma once

#include <string>

#include "runtime/bootstrap/bootstrap.h"

namespace dunlin::testing {

class ScopedBootstrap final : public Bootstrap {
 public:
  // `whole` must outlive this object.
  ScopedBootstrap(Bootstrap& whole, std::string prefix)
      : whole_(whole), prefix_(std::move(prefix)) {}

  const JobInfo& job() const override { return whole_.job(); }
  PeerTable& peers() override { return whole_.peers(); }
  Mail& mail() override { return whole_.mail(); }
  Fences& fences() override { return whole_.fences(); }
  Status publish(std::string_view key, std::span<const std::byte> value) override {
    return whole_.publish(prefixed(key), value);
  }
  const JobKey& key() const override { return whole_.key(); }
  Status post(std::string_view key, std::span<const std::byte> value) override {
    return whole_.post(prefixed(key), value);
  }
  Result<Bytes> lookup_from(Rank publisher, std::string_view key, Duration timeout) override {
    return whole_.lookup_from(publisher, prefixed(key), timeout);
  }
  Result<Bytes> gather(std::string_view name, std::span<const Rank> group,
                       std::span<const std::byte> record, Duration timeout) override {
    return whole_.gather(prefixed(name), group, record, timeout);
  }
  Status contribute(std::string_view name, std::span<const Rank> group,
                    std::span<const std::byte> record) override {
    return whole_.contribute(prefixed(name), group, record);
  }
  Status barrier(std::string_view name, Duration timeout) override {
    return whole_.barrier(prefixed(name), timeout);
  }
  int add_chore(std::function<void()> chore) override { return whole_.add_chore(std::move(chore)); }
  void remove_chore(int chore) override { whole_.remove_chore(chore); }
  Result<Membership> reform(Duration timeout) override { return whole_.reform(timeout); }
  Membership membership() const override { return whole_.membership(); }
  // Only the whole bootstrap leaves the job.
  void leave() noexcept override {}

 private:
  std::string prefixed(std::string_view name) const { return prefix_ + std::string(name); }

  Bootstrap& whole_;
  const std::string prefix_;
};

}  // namespace dunlin::testing
