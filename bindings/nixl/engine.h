// Engine: the backend interface of NIXL, on an Agent. It translates types and errors, and does
// nothing else.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend_engine.h"
#include "bindings/nixl/agent.h"

namespace dunlin::nixl {

class Engine final : public nixlBackendEngine {
 public:
  // Sets the error that getInitErr() returns when it fails.
  explicit Engine(const nixlBackendInitParams* parameters);
  ~Engine() override = default;

  // The parameters of create_backend(), with their defaults.
  static nixl_b_params_t options();
  static nixl_mem_list_t memory_types();

  bool supportsRemote() const override { return true; }
  bool supportsLocal() const override { return true; }
  bool supportsNotif() const override { return true; }
  nixl_mem_list_t getSupportedMems() const override { return memory_types(); }

  nixl_status_t registerMem(const nixlBlobDesc& memory, const nixl_mem_t& kind,
                            nixlBackendMD*& out) override;
  nixl_status_t deregisterMem(nixlBackendMD* memory) override;
  nixl_status_t getPublicData(const nixlBackendMD* memory, std::string& out) const override;
  nixl_status_t loadLocalMD(nixlBackendMD* memory, nixlBackendMD*& out) override;
  nixl_status_t loadRemoteMD(const nixlBlobDesc& memory, const nixl_mem_t& kind,
                             const std::string& agent, nixlBackendMD*& out) override;
  nixl_status_t unloadMD(nixlBackendMD* memory) override;

  nixl_status_t getConnInfo(std::string& out) const override;
  nixl_status_t loadRemoteConnInfo(const std::string& agent, const std::string& info) override;
  nixl_status_t connect(const std::string& agent) override;
  nixl_status_t disconnect(const std::string& agent) override;

  nixl_status_t prepXfer(const nixl_xfer_op_t& operation, const nixl_meta_dlist_t& local,
                         const nixl_meta_dlist_t& remote, const std::string& agent,
                         nixlBackendReqH*& handle,
                         const nixl_opt_b_args_t* arguments) const override;
  nixl_status_t postXfer(const nixl_xfer_op_t& operation, const nixl_meta_dlist_t& local,
                         const nixl_meta_dlist_t& remote, const std::string& agent,
                         nixlBackendReqH*& handle,
                         const nixl_opt_b_args_t* arguments) const override;
  nixl_status_t checkXfer(nixlBackendReqH* handle) const override;
  nixl_status_t releaseReqH(nixlBackendReqH* handle) const override;
  nixl_status_t estimateXferCost(const nixl_xfer_op_t& operation, const nixl_meta_dlist_t& local,
                                 const nixl_meta_dlist_t& remote, const std::string& agent,
                                 nixlBackendReqH* const& handle,
                                 std::chrono::microseconds& duration,
                                 std::chrono::microseconds& error_margin, nixl_cost_t& method,
                                 const nixl_opt_args_t* arguments) const override;

  nixl_status_t getNotifs(notif_list_t& notifications) override;
  nixl_status_t genNotif(const std::string& agent, const std::string& text) const override;

 private:
  std::unique_ptr<Agent> agent_;
};

}  // namespace dunlin::nixl
