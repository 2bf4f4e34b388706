// BusyQueues: the queues of a transport's lanes that have operations in progress.
#pragma once

#include <cstddef>
#include <vector>

namespace dunlin::transport::shm {

class BusyQueue {
 public:
  // Advances the operations, and returns how many completed. Removes the queue from the list when
  // none is left.
  virtual std::size_t progress() = 0;

 protected:
  ~BusyQueue() = default;
};

// The transport progresses them. Owner thread only.
class BusyQueues {
 public:
  bool is_empty() const { return queues_.empty(); }
  void add(BusyQueue& queue) { queues_.push_back(&queue); }
  void remove(BusyQueue& queue) { std::erase(queues_, &queue); }
  std::size_t progress() {
    std::size_t completed = 0;
    // A queue that becomes empty takes itself out.
    for (std::size_t i = queues_.size(); i > 0; --i) completed += queues_[i - 1]->progress();
    return completed;
  }

 private:
  std::vector<BusyQueue*> queues_;
};

}  // namespace dunlin::transport::shm
