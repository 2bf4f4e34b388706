// Imports: the regions that a transport has imported from one peer.
//
// It serves transports whose peers announce that they deregister a region. Both ends identify a
// region by a number that is never reused.
#pragma once

#include <cstdint>
#include <unordered_set>
#include <vector>

#include "transports/slice.h"
#include "transports/transport.h"

namespace dunlin::transport {

class Imports;

// Transports derive their own classes from it. Owner thread only.
class ImportedRegion : public RemoteRegion {
 public:
  ~ImportedRegion() override;
  std::uint64_t id() const { return id_; }
  // Whether the peer has deregistered the region.
  bool is_revoked() const { return is_revoked_; }

 protected:
  // `imports` must outlive the region.
  ImportedRegion(const Link& link, Imports& imports, std::uint64_t id, std::size_t size);

 private:
  friend class Imports;
  Imports& imports_;
  std::uint64_t id_;
  bool is_revoked_;
};

// Owner thread only.
class Imports {
 public:
  Imports() = default;
  Imports(const Imports&) = delete;
  Imports& operator=(const Imports&) = delete;

  // Records that the peer has deregistered its region `id`, which may be imported later or never.
  void revoke(std::uint64_t id);

 private:
  friend class ImportedRegion;
  std::vector<ImportedRegion*> regions_;
  std::unordered_set<std::uint64_t> revoked_;
};

// kNotFound if the peer has deregistered the region, which must be an ImportedRegion.
Status check_import(const Link& link, const RemoteSlice& remote);
// check_transfer(), followed by check_import() unless the transfer is empty.
Status check_transfer_with_import(const Link& link, const LocalSlice& local,
                                  const RemoteSlice& remote);

}  // namespace dunlin::transport
