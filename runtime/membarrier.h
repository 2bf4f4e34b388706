// membarrier(2): a process that is about to sleep orders the stores of other processes, so that
// these need no fence after each of their stores. They have to accept that first. Any thread.
#pragma once

namespace dunlin {

// Lets other processes of this host order this process's stores from now on. True if they can.
//
// The first call decides, and belongs before the first other thread of the process: in a process
// that has threads, the kernel does this after an RCU grace period. Where ranks outnumber the
// cores, such a period takes seconds to minutes. So if there are threads, this refuses at once.
bool accept_membarriers();

// Whether order_accepted_stores() works here.
bool has_membarriers();
// Makes visible here what the processes of this host that have accepted this have stored before.
// False if the kernel lacks the memory for it.
bool order_accepted_stores();

}  // namespace dunlin
