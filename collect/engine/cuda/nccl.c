#include "collect/engine/cuda/nccl.h"

#include "collect/engine/cuda/kernels.h"

#include <dlfcn.h>
#include <stdlib.h>

#define LIBRARY "libnccl.so.2"

enum { SUCCESS = 0, TYPE_BYTES = 0 }; /* ncclSuccess, ncclInt8 */

typedef struct nccl_communicator communicator;

struct nccl {
    void *library;
    int count;
    communicator *communicators[RANKS_MAXIMUM];
    const char *(*error_text)(int result);
    int (*open_all)(communicator **communicators, int count, const int *devices);
    int (*close)(communicator *);
    int (*begin_group)(void);
    int (*end_group)(void);
    int (*gather)(const void *from, void *to, size_t count, int type, communicator *, cudaStream_t stream);
};

static int find_functions(struct nccl *nccl, struct error *error)
{
    const struct {
        const char *name;
        void *to; /* a pointer to a function */
    } functions[] = {
        {"ncclGetErrorString", &nccl->error_text}, {"ncclCommInitAll", &nccl->open_all},
        {"ncclCommDestroy", &nccl->close},         {"ncclGroupStart", &nccl->begin_group},
        {"ncclGroupEnd", &nccl->end_group},        {"ncclAllGather", &nccl->gather},
    };
    nccl->library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!nccl->library)
        return fail(error, "%s is not here: install NCCL, or say by LD_LIBRARY_PATH where it is", LIBRARY);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        *(void **)functions[i].to = dlsym(nccl->library, functions[i].name);
        if (!*(void **)functions[i].to)
            return fail(error, "%s has no %s", LIBRARY, functions[i].name);
    }
    return 0;
}

struct nccl *nccl_open(const int *devices, int count, struct error *error)
{
    struct nccl *nccl = xcalloc(1, sizeof *nccl);
    int result = find_functions(nccl, error);
    if (!result && (result = nccl->open_all(nccl->communicators, count, devices)) != SUCCESS)
        fail(error, "NCCL does not start over %d GPUs: %s; NCCL_DEBUG=WARN says more", count, nccl->error_text(result));
    if (!result) {
        nccl->count = count;
        return nccl;
    }
    nccl_close(nccl);
    return NULL;
}

void nccl_close(struct nccl *nccl)
{
    if (!nccl)
        return;
    for (int i = 0; i < nccl->count; i++)
        nccl->close(nccl->communicators[i]);
    if (nccl->library)
        dlclose(nccl->library);
    free(nccl);
}

void nccl_gather(const struct nccl *nccl, const void *const *from, void *const *to, size_t bytes,
                 const cudaStream_t *streams)
{
    int result = nccl->begin_group();
    for (int i = 0; result == SUCCESS && i < nccl->count; i++)
        result = nccl->gather(from[i], to[i], bytes, TYPE_BYTES, nccl->communicators[i], streams[i]);
    if (result == SUCCESS)
        result = nccl->end_group();
    if (result != SUCCESS)
        die("NCCL: %s; NCCL_DEBUG=WARN says more", nccl->error_text(result));
}
