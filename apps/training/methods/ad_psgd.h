// AD-PSGD: asynchronous decentralized parallel SGD (Lian et al. 2018; Ripples / Prague, sections
// 2.2 and 3.1, Figure 3), on any graph and free of deadlock.
//
// Each rank has a model x. In begin() it is copied to parameters(), and the gradient is computed on
// the copy, while others may average with x. In finish() the rank proposes an average to a random
// neighbour j, both exchange their models, and both set x to (x_i + x_j) / 2, which leaves the mean
// of all models as it is; then it subtracts learning_rate * gradient from x, before it averages
// with who has proposed meanwhile: so a hub of many neighbours gets on, too. Directions of the
// graph's edges don't count. When leave() has ended, parameters() are x with its last averages.
//
// One average at a time. A rank is free; or locked, as it has proposed and waits for the answer; or
// paired. A pair's ranks send each other their models, and don't change them from then until both
// have the other's and both own ones have left. Neither waits for a third rank meanwhile, so a
// pairing ends, or one of the two dies, which frees the other with its model as it was. What a rank
// does with a proposal of p:
//   free               it pairs with p, and its model is the answer
//   locked on p        the two proposals are each other's answer: they pair
//   locked on another  if p has a lower rank, it is kept until this one is free; else declined
//   paired             it is kept until then
// Two proposals that cross are seen as such by both: the messages of an edge arrive in order, so
// either rank gets the other's proposal before any answer to its own.
//
// No deadlock: whoever waits for a third rank waits as a kept proposal, at a rank that is locked
// and higher, or paired. Along such a chain ranks grow, so it ends, at a rank that is paired, free
// or locked on one who will answer. No livelock: of all who are locked, the lowest one is never
// declined, and a rank whose proposal has ended serves the one that it has kept longest before it
// proposes again; so somebody averages. Who was declined tries another neighbour, and after
// kMostProposals (ad_psgd.cc) goes on without an average in this iteration, as does who has no
// neighbour left. A rank that has not begun its first iteration has no model and declines.
//
// Who leaves tells its neighbours, who propose to it no more, and ends when none of them will send
// anything any more. It does not go on to serve averages: its model has no more gradients, so that
// averages with it would pull the others back, and its process would have to live as long as the
// slowest. For the same reason a death takes one neighbour out, and the others go on. Workers end
// one by one: stopped() is what the worker itself asked for.
#pragma once

#include <memory>

#include "apps/training/method.h"

namespace dunlin::training {

Result<std::unique_ptr<Method>> prepare_ad_psgd(transport::Fabric& fabric,
                                                const MethodOptions& options);

}  // namespace dunlin::training
