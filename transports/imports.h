// Imports: the regions that were imported from one peer by a transport whose peer tells when it
// unregisters one. Both ends know a region by a number that is never used twice.
#pragma once

#include <cstdint>
#include <unordered_set>
#include <vector>

#include "transports/slice.h"
#include "transports/transport.h"

namespace dunlin::transport {

class Imports;

// Transports derive from it what they know besides. Owner thread only.
class ImportedRegion : public RemoteRegion {
 public:
  ~ImportedRegion() override;
  std::uint64_t id() const { return id_; }
  // The peer has unregistered it.
  bool is_revoked() const { return is_revoked_; }

 protected:
  // `imports` outlives the region.
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

  // The peer has unregistered its region of this number, imported or not.
  void revoke(std::uint64_t id);

 private:
  friend class ImportedRegion;
  std::vector<ImportedRegion*> regions_;
  std::unordered_set<std::uint64_t> revoked_;
};

// kNotFound for an ImportedRegion that is revoked.
Status check_import(const Link& link, const RemoteSlice& remote);
// check_transfer(), then check_import() if there is anything to transfer.
Status check_transfer_with_import(const Link& link, const LocalSlice& local,
                                  const RemoteSlice& remote);

}  // namespace dunlin::transport
