/* Dunlin for C (C99 and later): collectives between the processes of a job, averages with
 * neighbors and in groups, windows and mutexes.
 *
 *   dunlin_job* job;
 *   if (dunlin_init(NULL, &job) != DUNLIN_OK) { fputs(dunlin_last_error(), stderr); exit(1); }
 *   dunlin_communicator* world = dunlin_world(job);
 *   dunlin_all_reduce(world, gradients, gradients, count, DUNLIN_FLOAT32, DUNLIN_AVERAGE);
 *   dunlin_finalize(job);
 *
 * Collective calls: all members of a communicator make the same calls in the same order, with the
 * same counts, types and reductions. Where one member gives memory of dunlin_allocate(), all
 * members give memory of the same dunlin_allocate() call, at the same offset. The other calls say
 * who takes part. Pointers must not be NULL unless they are said to be nullable. Every wait has a
 * deadline. Any thread may call. If several threads use one communicator, their calls need an order
 * that is the same on all ranks.
 *
 * Functions return DUNLIN_OK or an error. After an error, handles are not set. Memory is unchanged
 * only where that is stated. dunlin_test() and dunlin_wait() free the request of an operation that
 * is over, also after an error.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
/* The type that C compilers choose: C programs may pass any value, and C++ has to be able to read
 * it. */
#define DUNLIN_UNDERLYING : unsigned
#else
#define DUNLIN_UNDERLYING
#endif

typedef enum dunlin_code DUNLIN_UNDERLYING {
  DUNLIN_OK = 0,
  DUNLIN_BUSY,             /* not over yet */
  DUNLIN_INVALID_ARGUMENT, /* an argument is wrong */
  DUNLIN_OUT_OF_RANGE,
  DUNLIN_NOT_FOUND,
  DUNLIN_ALREADY_EXISTS,
  DUNLIN_PERMISSION_DENIED,
  DUNLIN_UNAVAILABLE, /* the feature is missing on this host or in this build */
  DUNLIN_DEADLINE_EXCEEDED,
  DUNLIN_PEER_DEAD,    /* a peer's process has ended, or its connection is broken */
  DUNLIN_PEER_STALLED, /* at a deadline: the peer lives but makes no progress */
  DUNLIN_CLOSED,       /* the object was shut down */
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
  /* Not 0: a background thread advances operations while no call waits. 0: only calls do. */
  int background_progress;
} dunlin_options;

/* The message of the calling thread's last call that failed; "" if none has. Valid until its next
 * call that fails. */
const char* dunlin_last_error(void);
/* The rank that this error concerns; -1: none. */
int dunlin_last_error_peer(void);
const char* dunlin_code_name(dunlin_code code); /* "peer_dead", ... */

/* Joins the job that the environment describes (dunlin-run, torchrun, PMIx). Without a launcher, it
 * is a job of one rank. Blocks until all ranks have joined. `options`: NULL for a background
 * thread. */
dunlin_code dunlin_init(const dunlin_options* options, dunlin_job** job);
/* Waits until outstanding operations have ended and all ranks have called it, for DUNLIN_DEADLINE
 * at most. Then leaves the job and frees it with its communicators and memory, also if it returns
 * an error. Requests have to be freed before. No other call that uses the job may be in progress or
 * follow. For the other ranks, a process that ends without this call is dead. */
dunlin_code dunlin_finalize(dunlin_job* job);
/* The same without waiting, after an error: ranks that wait for this one get DUNLIN_PEER_DEAD. */
void dunlin_leave(dunlin_job* job);

int dunlin_local_rank(const dunlin_job* job);
int dunlin_local_size(const dunlin_job* job);

/* The communicator of all ranks. It lasts as long as the job. */
dunlin_communicator* dunlin_world(dunlin_job* job);
int dunlin_rank(const dunlin_communicator* communicator);
int dunlin_size(const dunlin_communicator* communicator);
/* Collective: members that give the same color form a communicator, ordered by key and then by
 * rank. No other call on `communicator` may overlap it; other calls may. */
dunlin_code dunlin_split(dunlin_communicator* communicator, int color, int key,
                         dunlin_communicator** part);
/* Collective: makes a communicator of all ranks whose memory, which dunlin_allocate() returns, is
 * that of a GPU. `gpu` is its number in this process, as CUDA counts; ranks may differ. Operations
 * take no other memory. Their input must be complete when they are called, so synchronize the
 * stream that writes it; their output is complete, for every stream, when they are. Returns
 * DUNLIN_UNAVAILABLE if there is no CUDA driver, or if this build has no kernels for GPUs. */
dunlin_code dunlin_on_gpu(dunlin_job* job, int gpu, dunlin_communicator** communicator);
/* Collective: waits until the operations of a communicator of dunlin_split() or dunlin_on_gpu()
 * have ended, and frees it. After an error it still exists. */
dunlin_code dunlin_release(dunlin_communicator* communicator);

/* Collective: returns memory, of the same size on all members, that operations use without copying.
 * Host memory is zeroed; the contents of GPU memory are undefined. It lasts until dunlin_free() or
 * the end of its communicator. dunlin_free() is collective: all members free in the same order. */
dunlin_code dunlin_allocate(dunlin_communicator* communicator, size_t bytes, void** memory);
dunlin_code dunlin_free(dunlin_communicator* communicator, void* memory);

/* clang-format off */
/* P is the number of ranks. Counts are elements.
 *
 *   all_reduce      in: count      out: count        out = op over all ranks' in
 *   reduce          in: count      out: count        the same at the root; out is not used elsewhere
 *   broadcast       buffer: count                    the root's buffer, on all ranks
 *   reduce_scatter  in: P * count  out: count        block r of op over all ranks' in, at rank r
 *   all_gather      in: count      out: P * count    block r is rank r's in
 *   all_to_all      in: P * count  out: P * count    block s at rank r is block r of rank s
 *
 * In place, output is input; in reduce_scatter and all_gather, the smaller one is the rank's own
 * block of the larger one. all_to_all can't be done in place. Memory that overlaps otherwise is
 * refused with DUNLIN_INVALID_ARGUMENT. Calls block for DUNLIN_DEADLINE at most. After a timeout the
 * operation continues: its memory must not be used before dunlin_release() or dunlin_finalize() has
 * returned. */
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

/* Names the calling thread's next operation, of the functions above from dunlin_all_reduce() to
 * dunlin_barrier() or of dunlin_start_all_reduce() to dunlin_start_barrier(), whether it succeeds
 * or not; other calls ignore the name. If the members' calls have different names, each member that
 * waits gets DUNLIN_INVALID_ARGUMENT, with an error that names both calls. So members that make
 * calls in different orders, such as those for the gradients of two layers, do not mix them up:
 * calls are matched by their order, not by their names.
 *
 * If the next one is a partial all-reduce, blocking or started, this becomes its label, which is
 * not its argument `name`: members whose labels differ get DUNLIN_INVALID_ARGUMENT. NULL stands for
 * "". */
dunlin_code dunlin_name_next(const char* name);

/* Start the same operations. The memory belongs to the operation until it is over. Each request has
 * to be given to dunlin_test() or dunlin_wait() until they free it, or to dunlin_forget(). */
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

/* Returns DUNLIN_BUSY while the operation is in progress. Otherwise returns its outcome, frees
 * *request and sets it to NULL. If *request is NULL, returns DUNLIN_OK. */
dunlin_code dunlin_test(dunlin_request** request);
/* Waits until the operation is over; then as dunlin_test(). After `timeout_seconds` (negative:
 * DUNLIN_DEADLINE) it returns DUNLIN_DEADLINE_EXCEEDED or DUNLIN_PEER_STALLED. The operation
 * continues then, and the request stays valid. */
dunlin_code dunlin_wait(dunlin_request** request, double timeout_seconds);
/* Frees a request (nullable). The operation continues: its memory must not be used before the job's
 * end. */
void dunlin_forget(dunlin_request* request);

/* Averages with neighbors and gathers from them. Only the neighbors concerned take part; they may
 * differ from call to call. The k-th call of a name (NULL: "") in which a rank sends to another
 * matches the k-th call of that name in which the other rank receives from it. Other calls in
 * progress don't matter. If neighbors differ in size or type, the receiver gets
 * DUNLIN_INVALID_ARGUMENT, and so does the sender, unless its call has ended. Empty lists may be
 * NULL. */
typedef struct dunlin_neighbor {
  int rank;
  double weight;
} dunlin_neighbor;

/* Collective: DUNLIN_INVALID_ARGUMENT on all ranks, unless each rank is a source at exactly those
 * ranks that it has as destinations. */
dunlin_code dunlin_check_neighbors(dunlin_job* job, const dunlin_neighbor* sources,
                                   size_t source_count, const dunlin_neighbor* destinations,
                                   size_t destination_count);
/* output = self_weight * input + the sum over the sources of (weight here) * (weight at the source)
 * * (its input), of floating-point elements. `output` may be `input`, otherwise they must not
 * overlap. As other calls, it continues after a timeout. */
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
/* The data of each source, in the order of the call's sources. Their counts may differ. The handle
 * of a started gather may be read once the request has ended with DUNLIN_OK. It has to be freed in
 * any case. */
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
/* The number of elements of a source, and their memory, which belongs to the handle; NULL if there
 * are none. */
size_t dunlin_gathered_count(const dunlin_gathered* gathered, size_t source);
const void* dunlin_gathered_data(const dunlin_gathered* gathered, size_t source);
void dunlin_gathered_free(dunlin_gathered* gathered); /* nullable */

/* An all-reduce among the given ranks alone, which include this one. They may differ from call to
 * call, in any order.
 *
 * Calls of one name (NULL: "") are numbered from 1 to 2^39 - 1. All members of a call give the same
 * number. The numbers of a rank's calls increase, and the calls are carried out one after the
 * other. `number` 0 stands for one more than that of this rank's last call of the name; that fits
 * if all ranks make the same number of calls. Each name takes 6 MiB of memory at each rank that
 * uses it.
 *
 * `input` and `output` are the same, or don't overlap, else the call is refused with
 * DUNLIN_INVALID_ARGUMENT.
 *
 * Members that make different calls under one number get DUNLIN_INVALID_ARGUMENT. If a member dies,
 * the error is DUNLIN_PEER_DEAD. If a member has not made its call DUNLIN_DEADLINE after the call's
 * turn has come, the call is given up with DUNLIN_DEADLINE_EXCEEDED or DUNLIN_PEER_STALLED, also if
 * it was only started. Other calls continue. After an error, `output` is undefined. After
 * dunlin_partial_all_reduce() has returned, `input` and `output` are no longer used. */
dunlin_code dunlin_partial_all_reduce(dunlin_job* job, const char* name, uint64_t number,
                                      const int* ranks, size_t rank_count, const void* input,
                                      void* output, size_t count, dunlin_data_type type,
                                      dunlin_op op);
dunlin_code dunlin_start_partial_all_reduce(dunlin_job* job, const char* name, uint64_t number,
                                            const int* ranks, size_t rank_count, const void* input,
                                            void* output, size_t count, dunlin_data_type type,
                                            dunlin_op op, dunlin_request** request);

/* Training in which workers average their models in groups (Ripples / Prague). After each iteration
 * a rank asks for its groups, averages with them, and computes on. Groups are formed by a fixed
 * schedule, at random, or of ranks that are in no group, so that a slow rank delays few others. */
typedef enum dunlin_group_source DUNLIN_UNDERLYING {
  DUNLIN_GROUPS_SMART = 0, /* without ranks that are far behind the one that asks */
  DUNLIN_GROUPS_STATIC,    /* by a fixed schedule, for ranks of equal speed */
  DUNLIN_GROUPS_RANDOM,
  DUNLIN_GROUPS_BUFFERED /* at random, and kept for members that are still busy */
} dunlin_group_source;

/* 0 stands for the default of a field. */
typedef struct dunlin_groups_options {
  dunlin_group_source source;
  int group_size; /* default: 3, or the number of ranks if that is less */
  /* Smart groups leave out ranks that are this many iterations or more behind the rank that asks;
   * default: 4. */
  uint64_t slowdown_threshold;
  /* Ranks are numbered host by host. Give both, or none; default: those of the job. */
  int hosts;
  int workers_per_host;
  uint64_t seed; /* default: 1 */
} dunlin_groups_options;

typedef struct dunlin_groups_statistics {
  uint64_t iterations;
  uint64_t groups;   /* that this rank averaged with */
  uint64_t members;  /* the sum over these groups */
  uint64_t alone;    /* iterations after which this rank continued without a group */
  uint64_t failures; /* groups that were given up, as a member had died or left */
  double waited_seconds;
  int server; /* the rank that forms the groups; -1: none (static schedule) */
} dunlin_groups_statistics;

typedef struct dunlin_groups dunlin_groups;
/* Collective over all ranks, with the same arguments. `count`: the floats of a model. `options`
 * NULL: the defaults. It lasts until the job's end. */
dunlin_code dunlin_groups_create(dunlin_job* job, const char* name, size_t count,
                                 const dunlin_groups_options* options, dunlin_groups** groups);
/* To be called after the rank has computed `iteration`; iterations increase. Returns when it may
 * compute the next one. Averages `model` in place. If it is NULL, averages the memory of
 * dunlin_groups_model(), without copying. After a death, the average is that of the living members;
 * only a static schedule returns DUNLIN_PEER_DEAD. After a timeout the average continues, and
 * `model` must not be used until it is over. After any other error the model is unchanged. */
dunlin_code dunlin_groups_average(dunlin_groups* groups, uint64_t iteration, float* model);
dunlin_code dunlin_start_groups_average(dunlin_groups* groups, uint64_t iteration, float* model,
                                        dunlin_request** request);
/* The memory of the model: zeros at first. Each average moves it, so call this again after each. */
dunlin_code dunlin_groups_model(dunlin_groups* groups, float** model);
/* Takes this rank out of all later groups. Returns at once. The other ranks continue, and this rank
 * serves them where needed as long as the job lasts. */
dunlin_code dunlin_groups_leave(dunlin_groups* groups);
dunlin_code dunlin_groups_get_statistics(dunlin_groups* groups,
                                         dunlin_groups_statistics* statistics);

/* A window: a tensor on every rank, and at each out-neighbor a buffer for this rank's deposits.
 * Only create, flush, get and free wait for other ranks. Between ranks of one host that share
 * memory, deposits go straight into the buffers. Otherwise the receiver's background thread takes
 * them in, or its calls if it has none. Every operation is applied to a scalar p as well, which is
 * 1 at first. If each sender's weights add up to 1, the tensor divided by p converges to the
 * average (push-sum). */
typedef struct dunlin_window dunlin_window;
/* Collective, with the same count and type (DUNLIN_FLOAT32 or DUNLIN_FLOAT64) on all ranks. The
 * tensor begins as `initial`. So do the buffers, or as zeros if `is_zeroed` is not 0. The weights
 * of the sources are the default of dunlin_window_update(). Those of destinations have no effect.
 */
dunlin_code dunlin_window_create(dunlin_job* job, const char* name, const void* initial,
                                 size_t count, dunlin_data_type type, int is_zeroed,
                                 const dunlin_neighbor* sources, size_t source_count,
                                 const dunlin_neighbor* destinations, size_t destination_count,
                                 dunlin_window** window);
/* The same in the memory of a GPU, whose number in this process is `gpu`, at all ranks. The initial
 * tensor is in host memory or on the GPU; all other tensors of the window's functions are on the
 * GPU. Work of the caller on them has to be complete before a call, and the window's work is
 * complete when a call returns. DUNLIN_UNAVAILABLE as for dunlin_on_gpu(), and
 * DUNLIN_OUT_OF_RANGE for a number that no GPU has. */
dunlin_code dunlin_window_create_on_gpu(dunlin_job* job, const char* name, int gpu,
                                        const void* initial, size_t count, dunlin_data_type type,
                                        int is_zeroed, const dunlin_neighbor* sources,
                                        size_t source_count, const dunlin_neighbor* destinations,
                                        size_t destination_count, dunlin_window** window);
/* Collective: waits until all deposits were taken in and all ranks have called it. The window is
 * freed if it returns DUNLIN_OK or DUNLIN_PEER_DEAD; otherwise it lasts until the job's end. */
dunlin_code dunlin_window_free(dunlin_window* window);
/* This rank's tensor. It may be changed between calls, and is valid until the window is freed. */
void* dunlin_window_tensor(const dunlin_window* window);
dunlin_code dunlin_window_get_p(dunlin_window* window, double* p);
dunlin_code dunlin_window_set_p(dunlin_window* window, double p);
/* Deposit weight * tensor at the destinations (NULL: all, with weight 1); then tensor *=
 * self_weight. put replaces the contents of the buffers, accumulate adds to them. Both return at
 * once; then the tensor may be changed. */
dunlin_code dunlin_window_put(dunlin_window* window, const dunlin_neighbor* destinations,
                              size_t destination_count, double self_weight);
dunlin_code dunlin_window_accumulate(dunlin_window* window, const dunlin_neighbor* destinations,
                                     size_t destination_count, double self_weight);
/* Waits until the destinations have taken in all deposits. A negative timeout, here and below,
 * stands for DUNLIN_DEADLINE. */
dunlin_code dunlin_window_flush(dunlin_window* window, double timeout_seconds);
/* Makes the tensor and p visible to gets of other ranks. put, accumulate, and an update of the
 * tensor do so as well. */
dunlin_code dunlin_window_publish(dunlin_window* window);
/* Replaces the buffer of each source with weight * the tensor that it has published last. The
 * sources take no part, except that over ucx and tcp, their progress answers. DUNLIN_UNAVAILABLE if
 * their memory can't be read from here. */
dunlin_code dunlin_window_get(dunlin_window* window, const dunlin_neighbor* sources,
                              size_t source_count, double timeout_seconds);
/* Sets the tensor to self_weight * tensor + the sum of weight * buffer over the sources (NULL: all,
 * with the window's weights), and p likewise. If `output` isn't NULL, it gets the result, and
 * tensor and p stay unchanged. `reset` not 0: sets the buffers that were used to zero. */
dunlin_code dunlin_window_update(dunlin_window* window, double self_weight,
                                 const dunlin_neighbor* sources, size_t source_count, int reset,
                                 void* output);
/* Adds all buffers to the tensor, and sets them to zero. */
dunlin_code dunlin_window_collect(dunlin_window* window);
/* Copies the buffer of a source, its p, and the number of deposits since the last update that used
 * it. All three are nullable. */
dunlin_code dunlin_window_buffer(dunlin_window* window, int source, void* output, double* p,
                                 uint64_t* deposits);

/* Mutual exclusion among all ranks, but not among the threads of a rank. Ranks get the mutex in the
 * order of their requests. The memory of the owner rank holds it: if that rank dies, the mutex
 * can't be used any more. */
typedef struct dunlin_mutex dunlin_mutex;
/* Collective, with the same arguments on all ranks. */
dunlin_code dunlin_mutex_create(dunlin_job* job, const char* name, int owner_rank,
                                dunlin_mutex** mutex);
/* Collective. No rank may hold it. It is freed if this returns DUNLIN_OK or DUNLIN_PEER_DEAD;
 * otherwise it lasts until the job's end. */
dunlin_code dunlin_mutex_free(dunlin_mutex* mutex);
/* After an error it is not locked. `has_holder_died` (nullable): set to 1 if the last holder died,
 * so that the data that the mutex protects may be inconsistent; otherwise to 0. */
dunlin_code dunlin_mutex_lock(dunlin_mutex* mutex, double timeout_seconds, int* has_holder_died);
dunlin_code dunlin_mutex_unlock(dunlin_mutex* mutex);

#ifdef __cplusplus
} /* extern "C" */
#endif
