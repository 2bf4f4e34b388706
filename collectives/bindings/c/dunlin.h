/* Dunlin for C (C99 and later): collectives between the processes of a job, averages with
 * neighbours and in groups, windows and mutexes.
 *
 *   dunlin_job* job;
 *   if (dunlin_init(NULL, &job) != DUNLIN_OK) { fputs(dunlin_last_error(), stderr); exit(1); }
 *   dunlin_communicator* world = dunlin_world(job);
 *   dunlin_all_reduce(world, gradients, gradients, count, DUNLIN_FLOAT32, DUNLIN_AVERAGE);
 *   dunlin_finalize(job);
 *
 * All ranks make the same calls in the same order, with the same counts, types and operations, and
 * with memory from the same dunlin_allocate() calls at the same places, or all with other memory.
 * Pointers that are not said to be nullable aren't. Every wait has a deadline. Any thread may call;
 * calls on one communicator need an order that is the same on all ranks.
 *
 * Functions return DUNLIN_OK or what went wrong, and then leave their results as they were.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
/* What C compilers take: C programs may pass any value, which C++ has to be able to look at. */
#define DUNLIN_UNDERLYING : unsigned
#else
#define DUNLIN_UNDERLYING
#endif

typedef enum dunlin_code DUNLIN_UNDERLYING {
  DUNLIN_OK = 0,
  DUNLIN_BUSY,             /* not over yet */
  DUNLIN_INVALID_ARGUMENT, /* the caller's mistake: a value that can never work */
  DUNLIN_OUT_OF_RANGE,
  DUNLIN_NOT_FOUND,
  DUNLIN_ALREADY_EXISTS,
  DUNLIN_PERMISSION_DENIED,
  DUNLIN_UNAVAILABLE, /* not on this machine or not in this build */
  DUNLIN_DEADLINE_EXCEEDED,
  DUNLIN_PEER_DEAD,    /* a peer's process or connection is gone */
  DUNLIN_PEER_STALLED, /* the peer lives but makes no progress; noticed at a deadline */
  DUNLIN_CLOSED,       /* what was used was shut down */
  DUNLIN_CORRUPTED,
  DUNLIN_RESOURCE_EXHAUSTED,
  DUNLIN_IO_ERROR,
  DUNLIN_INTERNAL /* a bug in Dunlin */
} dunlin_code;

typedef enum dunlin_data_type DUNLIN_UNDERLYING {
  DUNLIN_INT8 = 0,
  DUNLIN_UINT8,
  DUNLIN_INT32,
  DUNLIN_INT64,
  DUNLIN_FLOAT16,
  DUNLIN_BFLOAT16,
  DUNLIN_FLOAT32,
  DUNLIN_FLOAT64
} dunlin_data_type;

typedef enum dunlin_op DUNLIN_UNDERLYING {
  DUNLIN_SUM = 0,
  DUNLIN_PRODUCT,
  DUNLIN_MIN,
  DUNLIN_MAX,
  DUNLIN_AVERAGE
} dunlin_op;

typedef struct dunlin_job dunlin_job;
typedef struct dunlin_communicator dunlin_communicator;
typedef struct dunlin_request dunlin_request;

typedef struct dunlin_options {
  /* Not 0: a thread moves on what was started and nobody waits for. 0: only calls do. */
  int background_progress;
} dunlin_options;

/* What the calling thread's last call that failed has to say, in words; "" before any has. Valid
 * until its next call that fails. */
const char* dunlin_last_error(void);
/* The rank that it concerns; -1: none. */
int dunlin_last_error_peer(void);
const char* dunlin_code_name(dunlin_code code); /* "peer_dead", ... */

/* Joins the job that the environment describes (dunlin-run, torchrun, PMIx; else one of one rank).
 * Blocks until all ranks have come. `options`: NULL for a background thread. */
dunlin_code dunlin_init(const dunlin_options* options, dunlin_job** job);
/* Waits until what is under way has ended and all ranks have come here (DUNLIN_DEADLINE at most),
 * leaves the job, and frees it with its communicators and memory, also where it reports an error.
 * No other call is under way, nor made later, with any of them; requests are to be freed before. A
 * process that ends without it is dead to the others. */
dunlin_code dunlin_finalize(dunlin_job* job);
/* The same at once, after an error: who waits for this rank gets DUNLIN_PEER_DEAD. */
void dunlin_leave(dunlin_job* job);

int dunlin_local_rank(const dunlin_job* job);
int dunlin_local_size(const dunlin_job* job);

/* Of all ranks; lasts as long as the job. */
dunlin_communicator* dunlin_world(dunlin_job* job);
int dunlin_rank(const dunlin_communicator* communicator);
int dunlin_size(const dunlin_communicator* communicator);
/* Collective: members that give the same color form a communicator, ordered by key, then by rank.
 */
dunlin_code dunlin_split(dunlin_communicator* communicator, int color, int key,
                         dunlin_communicator** part);
/* Collective: frees a communicator of dunlin_split(), when what is under way has ended. It is gone
 * unless an error is returned. */
dunlin_code dunlin_release(dunlin_communicator* communicator);

/* Collective: zeroed memory that operations use without copying, as much on all members. It lasts
 * until dunlin_free() (collective, in the same order), or its communicator's end. */
dunlin_code dunlin_allocate(dunlin_communicator* communicator, size_t bytes, void** memory);
dunlin_code dunlin_free(dunlin_communicator* communicator, void* memory);

/* clang-format off */
/* With P ranks; counts are elements.
 *
 *   all_reduce      in: count      out: count        out = op over all ranks' in
 *   reduce          in: count      out: count        the same at the root; out is not used elsewhere
 *   broadcast       buffer: count                    the root's, everywhere
 *   reduce_scatter  in: P * count  out: count        block r of op over all ranks' in, at rank r
 *   all_gather      in: count      out: P * count    block r is rank r's in
 *   all_to_all      in: P * count  out: P * count    block s at rank r is block r of rank s
 *
 * In place: output is input; in reduce_scatter and all_gather, the smaller one is the rank's own
 * block of the larger one. all_to_all can't be done in place. Blocks for DUNLIN_DEADLINE at most;
 * what had to be waited for too long goes on, so that its memory can't be used again. */
/* clang-format on */
dunlin_code dunlin_all_reduce(dunlin_communicator* communicator, const void* input, void* output,
                              size_t count, dunlin_data_type type, dunlin_op op);
dunlin_code dunlin_reduce(dunlin_communicator* communicator, const void* input, void* output,
                          size_t count, dunlin_data_type type, dunlin_op op, int root);
dunlin_code dunlin_broadcast(dunlin_communicator* communicator, void* buffer, size_t count,
                             dunlin_data_type type, int root);
dunlin_code dunlin_reduce_scatter(dunlin_communicator* communicator, const void* input,
                                  void* output, size_t count, dunlin_data_type type, dunlin_op op);
dunlin_code dunlin_all_gather(dunlin_communicator* communicator, const void* input, void* output,
                              size_t count, dunlin_data_type type);
dunlin_code dunlin_all_to_all(dunlin_communicator* communicator, const void* input, void* output,
                              size_t count, dunlin_data_type type);
dunlin_code dunlin_barrier(dunlin_communicator* communicator);

/* The same, started only. The memory is the operation's until it is over. Each request has to be
 * given to dunlin_test() or dunlin_wait() until they free it, or to dunlin_forget(). */
dunlin_code dunlin_start_all_reduce(dunlin_communicator* communicator, const void* input,
                                    void* output, size_t count, dunlin_data_type type, dunlin_op op,
                                    dunlin_request** request);
dunlin_code dunlin_start_reduce(dunlin_communicator* communicator, const void* input, void* output,
                                size_t count, dunlin_data_type type, dunlin_op op, int root,
                                dunlin_request** request);
dunlin_code dunlin_start_broadcast(dunlin_communicator* communicator, void* buffer, size_t count,
                                   dunlin_data_type type, int root, dunlin_request** request);
dunlin_code dunlin_start_reduce_scatter(dunlin_communicator* communicator, const void* input,
                                        void* output, size_t count, dunlin_data_type type,
                                        dunlin_op op, dunlin_request** request);
dunlin_code dunlin_start_all_gather(dunlin_communicator* communicator, const void* input,
                                    void* output, size_t count, dunlin_data_type type,
                                    dunlin_request** request);
dunlin_code dunlin_start_all_to_all(dunlin_communicator* communicator, const void* input,
                                    void* output, size_t count, dunlin_data_type type,
                                    dunlin_request** request);
dunlin_code dunlin_start_barrier(dunlin_communicator* communicator, dunlin_request** request);

/* DUNLIN_BUSY while it is under way. Else its outcome; *request is freed, and becomes NULL. A NULL
 * *request is over, and ok. */
dunlin_code dunlin_test(dunlin_request** request);
/* Waits until it is over; then as dunlin_test(). After `timeout_seconds` (negative:
 * DUNLIN_DEADLINE) DUNLIN_DEADLINE_EXCEEDED or DUNLIN_PEER_STALLED leaves it under way. */
dunlin_code dunlin_wait(dunlin_request** request, double timeout_seconds);
/* Frees a request (nullable), not the operation: its memory is not to be touched before the job's
 * end. */
void dunlin_forget(dunlin_request* request);

/* Averages with and gathers from neighbours. Only the neighbours concerned take part; they may be
 * others in each call. Calls of the same name (NULL: "") meet: the k-th in which one rank sends to
 * another, and the k-th in which that one expects it, whatever else is under way. Where neighbours
 * disagree about size or type, both get DUNLIN_INVALID_ARGUMENT. Lists may be NULL where they are
 * empty. */
typedef struct dunlin_neighbor {
  int rank;
  double weight;
} dunlin_neighbor;

/* Collective: DUNLIN_INVALID_ARGUMENT on all ranks, unless each rank is a source of exactly those
 * that are its destinations. */
dunlin_code dunlin_check_neighbors(dunlin_job* job, const dunlin_neighbor* sources,
                                   size_t source_count, const dunlin_neighbor* destinations,
                                   size_t destination_count);
/* output = self_weight * input + the sum over the sources of (weight here) * (weight there) *
 * (their input), of floating-point elements. `output` may be `input`; else they don't overlap. As
 * other calls, it goes on when it had to be waited for too long. */
dunlin_code dunlin_neighbor_average(dunlin_job* job, const char* name, const void* input,
                                    void* output, size_t count, dunlin_data_type type,
                                    double self_weight, const dunlin_neighbor* sources,
                                    size_t source_count, const dunlin_neighbor* destinations,
                                    size_t destination_count);
dunlin_code dunlin_start_neighbor_average(dunlin_job* job, const char* name, const void* input,
                                          void* output, size_t count, dunlin_data_type type,
                                          double self_weight, const dunlin_neighbor* sources,
                                          size_t source_count, const dunlin_neighbor* destinations,
                                          size_t destination_count, dunlin_request** request);
/* What came from each source, in the order in which they were given; each may have sent another
 * count. Of a started gather: once the request is over with DUNLIN_OK. To be freed in any case. */
typedef struct dunlin_gathered dunlin_gathered;
dunlin_code dunlin_neighbor_gather(dunlin_job* job, const char* name, const void* input,
                                   size_t count, dunlin_data_type type,
                                   const dunlin_neighbor* sources, size_t source_count,
                                   const dunlin_neighbor* destinations, size_t destination_count,
                                   dunlin_gathered** gathered);
dunlin_code dunlin_start_neighbor_gather(dunlin_job* job, const char* name, const void* input,
                                         size_t count, dunlin_data_type type,
                                         const dunlin_neighbor* sources, size_t source_count,
                                         const dunlin_neighbor* destinations,
                                         size_t destination_count, dunlin_gathered** gathered,
                                         dunlin_request** request);
/* Elements, and their memory, which is the handle's (nullable where there are none). */
size_t dunlin_gathered_count(const dunlin_gathered* gathered, size_t source);
const void* dunlin_gathered_data(const dunlin_gathered* gathered, size_t source);
void dunlin_gathered_free(dunlin_gathered* gathered); /* nullable */

/* An all-reduce among the ranks given, this one among them, in any order; they may be others in
 * each call, and nobody else takes part. Calls of one name (NULL: "") have numbers, from 1 to 2^39
 * - 1, that all their members know them by and that go up at each rank: a rank carries them out one
 * after the other. `number` 0: one more than that of this rank's last call of the name, which is
 * the same at all members where all ranks make as many. Each name takes 6 MiB of memory at who uses
 * it. Members that call different things under one number get DUNLIN_INVALID_ARGUMENT. One that
 * dies is DUNLIN_PEER_DEAD; one that has not come after DUNLIN_DEADLINE, DUNLIN_DEADLINE_EXCEEDED
 * or DUNLIN_PEER_STALLED, also where it was only started: it is given up when its turn has lasted
 * so long. Others go on. After an error, `output` is undefined; once dunlin_partial_all_reduce()
 * has returned, nobody uses `input` and `output` any more. */
dunlin_code dunlin_partial_all_reduce(dunlin_job* job, const char* name, uint64_t number,
                                      const int* ranks, size_t rank_count, const void* input,
                                      void* output, size_t count, dunlin_data_type type,
                                      dunlin_op op);
dunlin_code dunlin_start_partial_all_reduce(dunlin_job* job, const char* name, uint64_t number,
                                            const int* ranks, size_t rank_count, const void* input,
                                            void* output, size_t count, dunlin_data_type type,
                                            dunlin_op op, dunlin_request** request);

/* Training whose workers average their models in groups (Ripples / Prague): after each iteration, a
 * rank asks for its groups, averages with them, and computes on. Groups are formed of those who
 * come, so that a slow rank holds up few; by a schedule that all know; or at random. */
typedef enum dunlin_group_source DUNLIN_UNDERLYING {
  DUNLIN_GROUPS_SMART = 0, /* of those who wait, none of them far behind */
  DUNLIN_GROUPS_STATIC,    /* by a schedule, which asks nobody: for ranks of equal speed */
  DUNLIN_GROUPS_RANDOM,
  DUNLIN_GROUPS_BUFFERED /* random ones, kept for the members that are still busy */
} dunlin_group_source;

/* 0 stands for the default. */
typedef struct dunlin_groups_options {
  dunlin_group_source source;
  int group_size; /* 3, at most the number of ranks */
  uint64_t
      slowdown_threshold; /* 4: so many iterations ahead may a rank be of others in its group */
  int nodes;              /* the hosts, ranks being numbered host by host; both or none */
  int workers_per_node;
  uint64_t seed; /* 1 */
} dunlin_groups_options;

typedef struct dunlin_groups_statistics {
  uint64_t iterations;
  uint64_t groups;   /* averaged with */
  uint64_t members;  /* of these, together */
  uint64_t alone;    /* times that the rank was told to go on without others */
  uint64_t failures; /* groups that were given up: a member had died, or left */
  double waited_seconds;
  int server; /* the rank that forms the groups; -1: none does */
} dunlin_groups_statistics;

typedef struct dunlin_groups dunlin_groups;
/* Collective over all ranks, with the same arguments; `options` NULL: all are the defaults. Of
 * models of `count` floats. It lasts until the job's end. */
dunlin_code dunlin_groups_create(dunlin_job* job, const char* name, size_t count,
                                 const dunlin_groups_options* options, dunlin_groups** groups);
/* The rank has computed `iteration`, which goes up; returns when it may compute the next. Averages
 * `model` in place, or, without copying, what dunlin_groups_model() has, if it is NULL. Deaths are
 * survived: the average is one of those who live. Only a static schedule ends with
 * DUNLIN_PEER_DEAD. After an error, the model is what it was. An average that is waited for too
 * long goes on. */
dunlin_code dunlin_groups_average(dunlin_groups* groups, uint64_t iteration, float* model);
dunlin_code dunlin_start_groups_average(dunlin_groups* groups, uint64_t iteration, float* model,
                                        dunlin_request** request);
/* Zeros at first; to be asked for after each average, which puts it somewhere else. */
dunlin_code dunlin_groups_model(dunlin_groups* groups, float** model);
/* The rank is in no more groups; the others go on. Returns at once; as long as the job lasts, this
 * rank serves them if it has to. */
dunlin_code dunlin_groups_leave(dunlin_groups* groups);
dunlin_code dunlin_groups_get_statistics(dunlin_groups* groups,
                                         dunlin_groups_statistics* statistics);

/* A window: a tensor on every rank, and at each out-neighbour a buffer for what this rank deposits
 * with it. Nobody waits for anybody but in create, flush, get and free; background threads take
 * over what comes. A scalar p, 1 at first, goes the way of the tensor: divided by it, what came of
 * weights that add up to 1 at each sender is the average (push-sum). */
typedef struct dunlin_window dunlin_window;
/* Collective, with the same count and type (DUNLIN_FLOAT32 or DUNLIN_FLOAT64) on all ranks. The
 * tensor begins as `initial`, and so do the buffers, or as zeros where `is_zeroed` isn't 0. The
 * weights of sources are those of an update that names none; those of destinations don't count. */
dunlin_code dunlin_window_create(dunlin_job* job, const char* name, const void* initial,
                                 size_t count, dunlin_data_type type, int is_zeroed,
                                 const dunlin_neighbor* sources, size_t source_count,
                                 const dunlin_neighbor* destinations, size_t destination_count,
                                 dunlin_window** window);
/* Collective: waits until all deposits are taken over and all ranks have come. The window is gone
 * unless an error other than DUNLIN_PEER_DEAD is returned; else it lasts until the job's end. */
dunlin_code dunlin_window_free(dunlin_window* window);
/* May be changed between calls; valid until the window is freed. */
void* dunlin_window_tensor(const dunlin_window* window);
dunlin_code dunlin_window_get_p(dunlin_window* window, double* p);
dunlin_code dunlin_window_set_p(dunlin_window* window, double p);
/* Deposit weight * tensor (`destinations` NULL: with all, weight 1), then tensor *= self_weight.
 * Return at once; the tensor may be changed. */
dunlin_code dunlin_window_put(dunlin_window* window, const dunlin_neighbor* destinations,
                              size_t destination_count, double self_weight);
dunlin_code dunlin_window_accumulate(dunlin_window* window, const dunlin_neighbor* destinations,
                                     size_t destination_count, double self_weight);
/* Waits until all that was deposited is taken over; negative: DUNLIN_DEADLINE, here and below. */
dunlin_code dunlin_window_flush(dunlin_window* window, double timeout_seconds);
/* Makes the tensor and p what others' gets read; so do put, accumulate, and update into it. */
dunlin_code dunlin_window_publish(dunlin_window* window);
/* Makes the buffers of these sources weight * what each has published last. They take no part.
 * DUNLIN_UNAVAILABLE where their memory can't be read from here. */
dunlin_code dunlin_window_get(dunlin_window* window, const dunlin_neighbor* sources,
                              size_t source_count, double timeout_seconds);
/* self_weight * tensor + the sum of weight * buffer (`sources` NULL: of all, with the window's
 * weights), and the same for p: the new tensor and p, or, where `output` isn't NULL, there alone.
 * `reset`: the buffers that were used are zero afterwards. */
dunlin_code dunlin_window_update(dunlin_window* window, double self_weight,
                                 const dunlin_neighbor* sources, size_t source_count, int reset,
                                 void* output);
/* Adds all buffers to the tensor, and empties them. */
dunlin_code dunlin_window_collect(dunlin_window* window);
/* Copies what a source has deposited; its p; the deposits since the last update with it. Each
 * nullable. */
dunlin_code dunlin_window_buffer(dunlin_window* window, int source, void* output, double* p,
                                 uint64_t* deposits);

/* Mutual exclusion among all ranks, not the threads of one; first come, first served. When its home
 * is gone, the mutex is, too. */
typedef struct dunlin_mutex dunlin_mutex;
dunlin_code dunlin_mutex_create(dunlin_job* job, const char* name, int home,
                                dunlin_mutex** mutex); /* collective */
/* Collective, held by nobody; gone as a window is. */
dunlin_code dunlin_mutex_free(dunlin_mutex* mutex);
/* After an error it is not locked. `has_owner_died` (nullable): not 0 where the former owner died,
 * and what the mutex protects may be half done. */
dunlin_code dunlin_mutex_lock(dunlin_mutex* mutex, double timeout_seconds, int* has_owner_died);
dunlin_code dunlin_mutex_unlock(dunlin_mutex* mutex);

#ifdef __cplusplus
} /* extern "C" */
#endif
