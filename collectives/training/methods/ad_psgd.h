// AD-PSGD: asynchronous decentralized parallel SGD (Lian et al. 2018; Ripples / Prague, sections
// 2.2 and 3.1, Figure 3), on any graph and free of deadlock.
//
// Each rank has a model x. begin() copies x to parameters(). The gradient is computed on the copy
// while other ranks may average with x. In finish() the rank proposes an average to a random
// neighbor j. Both exchange their models and set x to (x_i + x_j) / 2, which keeps the mean of all
// models. Then the rank subtracts learning_rate * gradient from x, before it averages with
// neighbors that have proposed in the meantime; so a hub of many neighbors makes progress, too. If
// workers take their own steps, it adds what the worker has changed in parameters() instead. The
// direction of the graph's edges has no meaning. After leave(), parameters() are x with its last
// averages.
//
// A rank takes part in one average at a time. It is free, or locked (it has proposed and waits for
// the answer), or paired. The ranks of a pair send each other their models. They do not change them
// until each has received the other model and its own has left. Neither waits for a third rank, so
// a pairing always ends. If one of the two dies, the other is freed with its model unchanged. A
// rank handles a proposal from p as follows:
//   free               it pairs with p and sends its model as the answer
//   locked on p        the two proposals answer each other, and both ranks pair
//   locked on another  if p has a lower rank, it keeps the proposal until it is free; otherwise
//                      it declines
//   paired             it keeps the proposal until it is free
// When two proposals cross, both ranks see that: messages on an edge arrive in order, so each rank
// gets the other's proposal before any answer to its own.
//
// No deadlock. A rank that waits for a third rank waits as a kept proposal. The rank that keeps it
// is locked and has a higher number, or it is paired. Along a chain of such waits the numbers grow,
// so the chain ends at a rank that is paired, free, or locked on a rank that will answer.
//
// No livelock. The lowest of all locked ranks is never declined. A rank whose proposal has ended
// serves its oldest kept proposal before it proposes again. So some ranks always average. A rank
// that was declined tries another neighbor. After kMostProposals (ad_psgd.cc), or if no neighbor is
// left, it ends the iteration without an average. A rank that has not begun its first iteration has
// no model and declines.
//
// Leaving. A rank that leaves tells its neighbors, which do not propose to it any more. leave()
// ends when none of them will send anything. The rank does not continue to serve averages: its
// model gets no gradients any more and would hold the others back, and its process would have to
// live as long as the slowest one. For the same reasons a death removes one neighbor, and the
// others continue. Workers end one by one: stopped() returns what the worker itself has asked for.
#pragma once

#include <memory>

#include "collectives/training/method.h"

namespace dunlin::training {

Result<std::unique_ptr<Method>> prepare_ad_psgd(transport::Fabric& fabric,
                                                const MethodOptions& options);

}  // namespace dunlin::training
