// ForwardingBootstrap passes all calls to another bootstrap. Tests override what they change.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "runtime/bootstrap/bootstrap.h"

namespace dunlin::testing {

class ForwardingBootstrap : public Bootstrap {
 public:
  // `whole` must outlive this object, or be owned by it.
  explicit ForwardingBootstrap(Bootstrap& whole) : whole_(whole) {}

  const JobInfo& job() const override { return whole_.job(); }
  PeerTable& peers() override { return whole_.peers(); }
  Mail& mail() override { return whole_.mail(); }
  Fences& fences() override { return whole_.fences(); }
  const JobKey& key() const override { return whole_.key(); }
  Status publish(std::string_view key, std::span<const std::byte> value) override {
    return whole_.publish(key, value);
  }
  Status post(std::string_view key, std::span<const std::byte> value) override {
    return whole_.post(key, value);
  }
  void release(std::string_view topic, std::size_t users) override { whole_.release(topic, users); }
  Result<Bytes> lookup_from(Rank publisher, std::string_view key, Duration timeout) override {
    return whole_.lookup_from(publisher, key, timeout);
  }
  Result<std::vector<Bytes>> lookup_each(std::string_view topic, std::span<const Rank> publishers,
                                         Duration timeout) override {
    return whole_.lookup_each(topic, publishers, timeout);
  }
  Result<Bytes> gather(std::string_view name, std::span<const Rank> group,
                       std::span<const std::byte> record, Duration timeout) override {
    return whole_.gather(name, group, record, timeout);
  }
  Status contribute(std::string_view name, std::span<const Rank> group,
                    std::span<const std::byte> record) override {
    return whole_.contribute(name, group, record);
  }
  Status barrier(std::string_view name, Duration timeout) override {
    return whole_.barrier(name, timeout);
  }
  int add_chore(std::function<void()> chore) override { return whole_.add_chore(std::move(chore)); }
  void remove_chore(int chore) override { whole_.remove_chore(chore); }
  Result<Membership> reform(Duration timeout) override { return whole_.reform(timeout); }
  Membership membership() const override { return whole_.membership(); }
  Result<bool> changes_before(std::uint64_t step, Duration timeout) override {
    return whole_.changes_before(step, timeout);
  }
  bool is_change_wanted() const override { return whole_.is_change_wanted(); }
  Status retire() override { return whole_.retire(); }
  void leave() noexcept override { whole_.leave(); }

 protected:
  Bootstrap& whole() { return whole_; }

 private:
  Bootstrap& whole_;
};

}  // namespace dunlin::testing
