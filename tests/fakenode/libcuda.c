/* A stand-in for libcuda.so.1: identity answered from a text file (see answers.h), memory on the host.
 *
 * Beside the values of the identity calls a GPU may have
 *     N cuda.capacity BYTES        what is really there (default: 64 MiB, or the claimed total if that is less);
 *                                  addresses beyond it wrap around, as on a card with a forged size
 *     N cuda.flip OFFSET:BIT ...   bits that read wrong, by their place in the memory that is really there
 *     N cuda.held BYTES            what somebody else holds: neither free nor to be allocated
 *     N cuda.rate H2D D2H D2D      bytes per second of copies; 0 is as fast as the host
 *     N cuda.jit right|wrong|blind what becomes of the kernels of benchmarks/_pattern.py: done here in C under their
 *                                  names; writing every thousandth word wrong; never finding anything. Without it
 *                                  no module can be loaded */
#define _GNU_SOURCE
#include "answers.h"

#include <ctype.h>
#include <stdint.h>
#include <sys/mman.h>

#define GPUS 64
#define BLOCKS 4096
#define GRAIN (2ull << 20) /* allocations are rounded as the driver does */
#define SUCCESS 0
#define INVALID_VALUE 1
#define OUT_OF_MEMORY 2
#define NOT_INITIALIZED 3
#define NO_DEVICE 100
#define INVALID_DEVICE 101
#define INVALID_CONTEXT 201
#define NOT_SUPPORTED 801
#define UNKNOWN 999

typedef int CUresult;
typedef int CUdevice;
typedef unsigned int uint;
typedef unsigned long long CUdeviceptr;
typedef struct context *CUcontext;

struct block {
    size_t offset, size;
};

struct memory {
    pthread_mutex_t lock;
    unsigned char *bytes;
    size_t total, held, capacity;
    struct block blocks[BLOCKS];
    int count;
};

struct context {
    CUdevice device;
};

static struct context contexts[GPUS];
static struct memory memories[GPUS];
static pthread_once_t visible_once = PTHREAD_ONCE_INIT;
static int visible[GPUS];
static int visible_count;
static int initialized;
static _Thread_local CUcontext current;

static const struct {
    CUresult code;
    const char *name, *text;
} errors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {34, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {304, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {800, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {802, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

CUresult cuGetErrorName(CUresult code, const char **out) {
    *out = NULL;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code) *out = errors[i].name;
    return *out == NULL ? INVALID_VALUE : SUCCESS;
}

CUresult cuGetErrorString(CUresult code, const char **out) {
    *out = NULL;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code) *out = errors[i].text;
    return *out == NULL ? INVALID_VALUE : SUCCESS;
}

static CUresult code_of(const char *name) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (strcmp(errors[i].name, name) == 0) return errors[i].code;
    return UNKNOWN;
}

static CUresult ask(int scope, const char **value, const char *format, ...) {
    char name[NAME_MAX_LENGTH];
    va_list parts;
    va_start(parts, format);
    vsnprintf(name, sizeof name, format, parts);
    va_end(parts);
    *value = answer(scope, name);
    if (*value == NULL) return NOT_SUPPORTED;
    return strncmp(*value, "error ", 6) == 0 ? code_of(*value + 6) : SUCCESS;
}

static CUresult ask_number(int scope, unsigned long long *out, const char *name) {
    const char *value;
    CUresult code = ask(scope, &value, "%s", name);
    if (code == SUCCESS) *out = strtoull(value, NULL, 0);
    return code;
}

/* Only what the file says for calls that give nothing back. */
static CUresult allowed(int scope, const char *name) {
    const char *value;
    CUresult code = ask(scope, &value, "%s", name);
    return value == NULL ? SUCCESS : code;
}

/* --- devices ---------------------------------------------------------------------------------------- */

static void see(int device) {
    if (visible_count < GPUS) visible[visible_count++] = device;
}

/* CUDA_VISIBLE_DEVICES by number or by the beginning of a UUID; the first that fits nothing ends the list. */
static void find_visible(void) {
    int count = answers_number(WHOLE_NODE, "cuDeviceGetCount", 0);
    const char *wanted = getenv("CUDA_VISIBLE_DEVICES");
    if (wanted == NULL) {
        for (int i = 0; i < count; i++) see(i);
        return;
    }
    for (; *wanted; wanted += strcspn(wanted, ","), wanted += *wanted == ',') {
        size_t length = strcspn(wanted, ",");
        int found = -1;
        if (isdigit((unsigned char)*wanted)) found = atoi(wanted) < count ? atoi(wanted) : -1;
        for (int i = 0; found < 0 && i < count && length > 0; i++) {
            const char *uuid = answer(i, "cuDeviceGetUuid");
            if (uuid != NULL && strncasecmp(uuid, wanted, length) == 0) found = i;
        }
        if (found < 0) return;
        see(found);
    }
}

#define CHECK(device) \
    do { \
        if (!initialized) return NOT_INITIALIZED; \
        if ((device) < 0 || (device) >= visible_count) return INVALID_DEVICE; \
    } while (0)

CUresult cuInit(uint flags) {
    (void)flags;
    CUresult code = allowed(WHOLE_NODE, "cuInit");
    if (code != SUCCESS) return code;
    pthread_once(&visible_once, find_visible);
    for (int i = 0; i < GPUS; i++) contexts[i].device = i;
    initialized = visible_count > 0;
    return initialized ? SUCCESS : NO_DEVICE;
}

CUresult cuDriverGetVersion(int *out) {
    unsigned long long number = 0;
    CUresult code = ask_number(WHOLE_NODE, &number, "cuDriverGetVersion");
    if (code == SUCCESS) *out = (int)number;
    return code;
}

CUresult cuDeviceGetCount(int *out) {
    if (!initialized) return NOT_INITIALIZED;
    *out = visible_count;
    return SUCCESS;
}

CUresult cuDeviceGet(CUdevice *out, int ordinal) {
    CHECK(ordinal);
    CUresult code = allowed(visible[ordinal], "cuDeviceGet");
    if (code == SUCCESS) *out = ordinal;
    return code;
}

static CUresult give_text(CUdevice device, char *out, int size, const char *name) {
    CHECK(device);
    const char *value;
    CUresult code = ask(visible[device], &value, "%s", name);
    if (code == SUCCESS) snprintf(out, (size_t)size, "%s", value);
    return code;
}

CUresult cuDeviceGetName(char *out, int size, CUdevice device) {
    return give_text(device, out, size, "cuDeviceGetName");
}

CUresult cuDeviceGetPCIBusId(char *out, int size, CUdevice device) {
    return give_text(device, out, size, "cuDeviceGetPCIBusId");
}

CUresult cuDeviceTotalMem_v2(size_t *out, CUdevice device) {
    CHECK(device);
    unsigned long long number = 0;
    CUresult code = ask_number(visible[device], &number, "cuDeviceTotalMem");
    if (code == SUCCESS) *out = number;
    return code;
}

CUresult cuDeviceGetAttribute(int *out, int attribute, CUdevice device) {
    CHECK(device);
    char name[NAME_MAX_LENGTH];
    snprintf(name, sizeof name, "cuDeviceGetAttribute.%d", attribute);
    unsigned long long number = 0;
    CUresult code = ask_number(visible[device], &number, name);
    if (code == SUCCESS) *out = (int)number;
    return code == NOT_SUPPORTED ? INVALID_VALUE : code;
}

/* The text is `GPU-` and 32 hex digits with dashes; CUDA gives 16 bytes. */
CUresult cuDeviceGetUuid_v2(unsigned char *out, CUdevice device) {
    CHECK(device);
    const char *value;
    CUresult code = ask(visible[device], &value, "cuDeviceGetUuid");
    if (code != SUCCESS) return code;
    value += 4;
    for (int i = 0; i < 16; i++) {
        uint byte;
        if (*value == '-') value++;
        if (sscanf(value, "%2x", &byte) != 1) return UNKNOWN;
        out[i] = (unsigned char)byte;
        value += 2;
    }
    return SUCCESS;
}

CUresult cuDeviceGetUuid(unsigned char *out, CUdevice device) {
    return cuDeviceGetUuid_v2(out, device);
}

CUresult cuDeviceGetByPCIBusId(CUdevice *out, const char *slot) {
    for (CUdevice device = 0; device < visible_count; device++) {
        const char *value = answer(visible[device], "cuDeviceGetPCIBusId");
        if (value != NULL && strcasecmp(value, slot) == 0) {
            *out = device;
            return SUCCESS;
        }
    }
    return INVALID_DEVICE;
}

CUresult cuDeviceCanAccessPeer(int *out, CUdevice device, CUdevice peer) {
    CHECK(device);
    CHECK(peer);
    char name[NAME_MAX_LENGTH];
    snprintf(name, sizeof name, "cuDeviceCanAccessPeer.%d", visible[peer]);
    *out = answers_number(visible[device], name, 0);
    return SUCCESS;
}

/* --- contexts --------------------------------------------------------------------------------------- */

CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device) {
    CHECK(device);
    CUresult code = allowed(visible[device], "cuCtxCreate");
    if (code == SUCCESS) *out = &contexts[device];
    return code;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    CHECK(device);
    return SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
    return cuDevicePrimaryCtxRelease_v2(device);
}

CUresult cuCtxCreate_v2(CUcontext *out, uint flags, CUdevice device) {
    (void)flags;
    CUresult code = cuDevicePrimaryCtxRetain(out, device);
    if (code == SUCCESS) current = *out;
    return code;
}

CUresult cuCtxDestroy_v2(CUcontext context) {
    if (context == NULL) return INVALID_CONTEXT;
    if (current == context) current = NULL;
    return SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
    current = context;
    return SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
    return cuCtxSetCurrent(context);
}

CUresult cuCtxPopCurrent_v2(CUcontext *out) {
    if (out != NULL) *out = current;
    current = NULL;
    return SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *out) {
    *out = current;
    return SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *out) {
    if (current == NULL) return INVALID_CONTEXT;
    *out = current->device;
    return SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, uint flags) {
    (void)flags;
    if (current == NULL || peer == NULL) return INVALID_CONTEXT;
    int can = 0;
    cuDeviceCanAccessPeer(&can, current->device, peer->device);
    return can ? SUCCESS : 217; /* CUDA_ERROR_PEER_ACCESS_UNSUPPORTED */
}

CUresult cuCtxSynchronize(void) {
    return current == NULL ? INVALID_CONTEXT : allowed(visible[current->device], "cuCtxSynchronize");
}

/* --- memory ----------------------------------------------------------------------------------------- */

/* Device addresses are made up: GPU + 1 above bit 44, the offset below. Nothing on the host lies there. */
static CUdeviceptr address_of(int gpu, size_t offset) {
    return ((CUdeviceptr)(gpu + 1) << 44) + GRAIN + offset;
}

static struct memory *memory_of(int gpu) {
    static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
    struct memory *memory = &memories[gpu];
    pthread_mutex_lock(&starting);
    if (memory->bytes == NULL) {
        unsigned long long number = 0;
        memory->total = ask_number(gpu, &number, "cuDeviceTotalMem") == SUCCESS ? number : GRAIN;
        memory->capacity = memory->total < (64ull << 20) ? memory->total : 64ull << 20;
        if (ask_number(gpu, &number, "cuda.capacity") == SUCCESS) memory->capacity = number;
        if (ask_number(gpu, &number, "cuda.held") == SUCCESS) memory->held = number;
        memory->bytes = mmap(NULL, memory->capacity, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory->bytes == MAP_FAILED) abort();
        pthread_mutex_init(&memory->lock, NULL);
    }
    pthread_mutex_unlock(&starting);
    return memory;
}

static size_t used(const struct memory *memory) {
    size_t sum = 0;
    for (int i = 0; i < memory->count; i++) sum += memory->blocks[i].size;
    return sum;
}

/* First fit; blocks stay sorted by offset. */
static CUresult place(struct memory *memory, size_t size, size_t *out) {
    size_t offset = 0;
    int at = 0;
    while (at < memory->count && memory->blocks[at].offset - offset < size) {
        offset = memory->blocks[at].offset + memory->blocks[at].size;
        at++;
    }
    if (memory->count == BLOCKS || offset + size > memory->total - memory->held) return OUT_OF_MEMORY;
    memmove(&memory->blocks[at + 1], &memory->blocks[at], (size_t)(memory->count - at) * sizeof *memory->blocks);
    memory->blocks[at] = (struct block){offset, size};
    memory->count++;
    *out = offset;
    return SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t size) {
    if (current == NULL) return INVALID_CONTEXT;
    if (size == 0) return INVALID_VALUE;
    int gpu = visible[current->device];
    CUresult code = allowed(gpu, "cuMemAlloc");
    if (code != SUCCESS) return code;
    struct memory *memory = memory_of(gpu);
    size_t offset = 0;
    pthread_mutex_lock(&memory->lock);
    code = size > memory->total ? OUT_OF_MEMORY : place(memory, (size + GRAIN - 1) / GRAIN * GRAIN, &offset);
    pthread_mutex_unlock(&memory->lock);
    if (code == SUCCESS) *out = address_of(gpu, offset);
    return code;
}

/* The block that holds [address, address + size), or NULL. */
static const struct block *block_of(CUdeviceptr address, size_t size, int *gpu) {
    *gpu = (int)(address >> 44) - 1;
    if (*gpu < 0 || *gpu >= GPUS || memories[*gpu].bytes == NULL) return NULL;
    size_t offset = (size_t)(address - address_of(*gpu, 0));
    for (int i = 0; i < memories[*gpu].count; i++) {
        const struct block *block = &memories[*gpu].blocks[i];
        if (offset >= block->offset && offset + size <= block->offset + block->size) return block;
    }
    return NULL;
}

CUresult cuMemFree_v2(CUdeviceptr address) {
    int gpu;
    const struct block *block = block_of(address, 1, &gpu);
    if (block == NULL || address != address_of(gpu, block->offset)) return INVALID_VALUE;
    struct memory *memory = &memories[gpu];
    pthread_mutex_lock(&memory->lock);
    int at = (int)(block - memory->blocks);
    memory->count--;
    memmove(&memory->blocks[at], &memory->blocks[at + 1], (size_t)(memory->count - at) * sizeof *memory->blocks);
    pthread_mutex_unlock(&memory->lock);
    return SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *available, size_t *total) {
    if (current == NULL) return INVALID_CONTEXT;
    int gpu = visible[current->device];
    CUresult code = allowed(gpu, "cuMemGetInfo");
    if (code != SUCCESS) return code;
    struct memory *memory = memory_of(gpu);
    *total = memory->total;
    *available = memory->total - memory->held - used(memory);
    return SUCCESS;
}

CUresult cuMemAllocHost_v2(void **out, size_t size) {
    if (current == NULL) return INVALID_CONTEXT;
    *out = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
    return *out == NULL ? OUT_OF_MEMORY : SUCCESS;
}

CUresult cuMemHostAlloc(void **out, size_t size, uint flags) {
    (void)flags;
    return cuMemAllocHost_v2(out, size);
}

CUresult cuMemFreeHost(void *address) {
    free(address);
    return SUCCESS;
}

enum direction { TO_DEVICE, TO_HOST, INSIDE };

/* Sleeps for what the copy would have taken at the card's rate. */
static void take_time(int gpu, enum direction direction, size_t size) {
    double rates[3] = {0, 0, 0};
    const char *value = answer(gpu, "cuda.rate");
    if (value == NULL || sscanf(value, "%lf %lf %lf", &rates[0], &rates[1], &rates[2]) != 3) return;
    if (rates[direction] <= 0) return;
    double seconds = (double)size / rates[direction];
    struct timespec pause = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&pause, NULL);
}

/* How far one can go from `offset` before the real memory ends and the addresses begin again. */
static size_t stretch(const struct memory *memory, size_t offset, size_t size) {
    size_t left = memory->capacity - offset % memory->capacity;
    return size < left ? size : left;
}

/* Bits that read wrong, put into what was just read from [offset, offset + size) of the real memory. */
static void flip(int gpu, unsigned char *out, size_t offset, size_t size) {
    const char *value = answer(gpu, "cuda.flip");
    while (value != NULL && isdigit((unsigned char)*value)) {
        char *rest;
        size_t place = strtoull(value, &rest, 0);
        int bit = *rest == ':' ? (int)strtol(rest + 1, &rest, 10) : 0;
        if (place >= offset && place < offset + size) out[place - offset] ^= (unsigned char)(1 << (bit & 7));
        value = *rest == ' ' ? rest + 1 : rest;
    }
}

static void read_from(int gpu, unsigned char *out, size_t offset, size_t size) {
    struct memory *memory = memory_of(gpu);
    for (size_t done = 0, part; done < size; done += part) {
        size_t real = (offset + done) % memory->capacity;
        part = stretch(memory, offset + done, size - done);
        memcpy(out + done, memory->bytes + real, part);
        flip(gpu, out + done, real, part);
    }
}

static void write_to(int gpu, const unsigned char *from, size_t offset, size_t size) {
    struct memory *memory = memory_of(gpu);
    for (size_t done = 0, part; done < size; done += part) {
        part = stretch(memory, offset + done, size - done);
        memcpy(memory->bytes + (offset + done) % memory->capacity, from + done, part);
    }
}

static void fill(int gpu, size_t offset, uint word, size_t size) {
    uint piece[1 << 14];
    for (size_t i = 0; i < sizeof piece / sizeof *piece; i++) piece[i] = word;
    for (size_t done = 0, part; done < size; done += part) {
        part = size - done < sizeof piece ? size - done : sizeof piece;
        write_to(gpu, (const unsigned char *)piece, offset + done, part);
    }
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size) {
    int gpu;
    if (current == NULL) return INVALID_CONTEXT;
    if (block_of(to, size, &gpu) == NULL) return INVALID_VALUE;
    CUresult code = allowed(gpu, "cuMemcpyHtoD");
    if (code != SUCCESS) return code;
    write_to(gpu, from, (size_t)(to - address_of(gpu, 0)), size);
    take_time(gpu, TO_DEVICE, size);
    return SUCCESS;
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size) {
    int gpu;
    if (current == NULL) return INVALID_CONTEXT;
    if (block_of(from, size, &gpu) == NULL) return INVALID_VALUE;
    CUresult code = allowed(gpu, "cuMemcpyDtoH");
    if (code != SUCCESS) return code;
    read_from(gpu, to, (size_t)(from - address_of(gpu, 0)), size);
    take_time(gpu, TO_HOST, size);
    return SUCCESS;
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t size) {
    int source, target;
    if (current == NULL) return INVALID_CONTEXT;
    if (block_of(from, size, &source) == NULL || block_of(to, size, &target) == NULL) return INVALID_VALUE;
    CUresult code = allowed(target, "cuMemcpyDtoD");
    if (code != SUCCESS) return code;
    unsigned char piece[1 << 16];
    for (size_t done = 0, part; done < size; done += part) {
        part = size - done < sizeof piece ? size - done : sizeof piece;
        read_from(source, piece, (size_t)(from - address_of(source, 0)) + done, part);
        write_to(target, piece, (size_t)(to - address_of(target, 0)) + done, part);
    }
    take_time(target, INSIDE, size);
    return SUCCESS;
}

CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext target, CUdeviceptr from, CUcontext source, size_t size) {
    return target == NULL || source == NULL ? INVALID_CONTEXT : cuMemcpyDtoD_v2(to, from, size);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, void *stream) {
    (void)stream;
    return cuMemcpyHtoD_v2(to, from, size);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, void *stream) {
    (void)stream;
    return cuMemcpyDtoH_v2(to, from, size);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, void *stream) {
    (void)stream;
    return cuMemcpyDtoD_v2(to, from, size);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext target, CUdeviceptr from, CUcontext source, size_t size,
                           void *stream) {
    (void)stream;
    return cuMemcpyPeer(to, target, from, source, size);
}

CUresult cuMemsetD32_v2(CUdeviceptr to, uint word, size_t count) {
    int gpu;
    if (current == NULL) return INVALID_CONTEXT;
    if (block_of(to, count * 4, &gpu) == NULL || to % 4) return INVALID_VALUE;
    fill(gpu, (size_t)(to - address_of(gpu, 0)), word, count * 4);
    return SUCCESS;
}

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char byte, size_t count) {
    int gpu;
    if (current == NULL) return INVALID_CONTEXT;
    if (block_of(to, count, &gpu) == NULL) return INVALID_VALUE;
    fill(gpu, (size_t)(to - address_of(gpu, 0)), byte * 0x01010101u, count);
    return SUCCESS;
}

CUresult cuMemsetD32Async(CUdeviceptr to, uint word, size_t count, void *stream) {
    (void)stream;
    return cuMemsetD32_v2(to, word, count);
}

/* --- streams and events: everything is done when the call returns ------------------------------------- */

struct event {
    struct timespec at;
};

CUresult cuStreamCreate(void **out, uint flags) {
    (void)flags;
    if (current == NULL) return INVALID_CONTEXT;
    *out = current;
    return SUCCESS;
}

CUresult cuStreamDestroy_v2(void *stream) {
    (void)stream;
    return SUCCESS;
}

CUresult cuStreamSynchronize(void *stream) {
    (void)stream;
    return cuCtxSynchronize();
}

CUresult cuStreamWaitEvent(void *stream, void *event, uint flags) {
    (void)stream;
    (void)event;
    (void)flags;
    return SUCCESS;
}

CUresult cuEventCreate(struct event **out, uint flags) {
    (void)flags;
    if (current == NULL) return INVALID_CONTEXT;
    *out = calloc(1, sizeof **out);
    return *out == NULL ? OUT_OF_MEMORY : SUCCESS;
}

CUresult cuEventDestroy_v2(struct event *event) {
    free(event);
    return SUCCESS;
}

CUresult cuEventRecord(struct event *event, void *stream) {
    (void)stream;
    clock_gettime(CLOCK_MONOTONIC, &event->at);
    return SUCCESS;
}

CUresult cuEventSynchronize(struct event *event) {
    (void)event;
    return cuCtxSynchronize();
}

CUresult cuEventQuery(struct event *event) {
    (void)event;
    return SUCCESS;
}

CUresult cuEventElapsedTime(float *out, struct event *start, struct event *end) {
    *out = (float)((double)(end->at.tv_sec - start->at.tv_sec) * 1e3 +
                   (double)(end->at.tv_nsec - start->at.tv_nsec) / 1e6);
    return SUCCESS;
}

/* --- the two kernels that our worker brings: not its PTX, which only a real driver compiles ------------ */

static const char *const kernels[] = {"accept_write", "accept_verify"};

static const char *jit(void) {
    return current == NULL ? NULL : answer(visible[current->device], "cuda.jit");
}

CUresult cuModuleLoadData(void **out, const void *image) {
    if (current == NULL) return INVALID_CONTEXT;
    if (jit() == NULL || strstr(image, ".visible .entry") == NULL) return 222;
    *out = current;
    return SUCCESS;
}

CUresult cuModuleGetFunction(const char *const **out, void *module, const char *name) {
    if (module == NULL) return INVALID_VALUE;
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        if (strcmp(kernels[i], name) != 0) continue;
        *out = &kernels[i];
        return SUCCESS;
    }
    return 500;
}

struct task {
    CUdeviceptr memory;
    uint64_t words, first, seed, mask;
    CUdeviceptr report;
    uint64_t most;
};

static uint64_t mixed(const struct task *task, uint64_t word) {
    uint64_t value = (task->first + word) * 0x9E3779B97F4A7C15u + task->seed;
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9u;
    value = (value ^ value >> 27) * 0x94D049BB133111EBu;
    return value ^ value >> 31 ^ task->mask;
}

static void report(const struct task *task, uint64_t number, uint64_t have) {
    int gpu;
    uint64_t count, entry[2] = {number, have};
    if (block_of(task->report, 8, &gpu) == NULL) return;
    size_t offset = (size_t)(task->report - address_of(gpu, 0));
    read_from(gpu, (unsigned char *)&count, offset, sizeof count);
    if (count < task->most) write_to(gpu, (unsigned char *)entry, offset + 8 + 16 * count, sizeof entry);
    count++;
    write_to(gpu, (unsigned char *)&count, offset, sizeof count);
}

#define PIECE 8192

static CUresult run_kernel(const struct task *task, int verify) {
    int gpu;
    uint64_t piece[PIECE];
    const char *how = jit();
    if (block_of(task->memory, task->words * 8, &gpu) == NULL) return 700;
    size_t offset = (size_t)(task->memory - address_of(gpu, 0));
    for (uint64_t done = 0, part; done < task->words; done += part) {
        part = task->words - done < PIECE ? task->words - done : PIECE;
        if (verify) read_from(gpu, (unsigned char *)piece, offset + done * 8, part * 8);
        for (uint64_t i = 0; i < part; i++) {
            uint64_t value = mixed(task, done + i);
            if (verify && piece[i] != value && strcmp(how, "blind") != 0) report(task, task->first + done + i, piece[i]);
            piece[i] = strcmp(how, "wrong") == 0 && (done + i) % 1000 == 0 ? ~value : value;
        }
        if (!verify) write_to(gpu, (unsigned char *)piece, offset + done * 8, part * 8);
    }
    return SUCCESS;
}

CUresult cuLaunchKernel(const char *const *function, uint gx, uint gy, uint gz, uint bx, uint by, uint bz, uint shared,
                        void *stream, void **parameters, void **extra) {
    (void)stream;
    if (current == NULL || function == NULL || parameters == NULL || extra != NULL) return INVALID_VALUE;
    if (gx * gy * gz == 0 || bx * by * bz == 0 || bx * by * bz > 1024 || shared != 0) return INVALID_VALUE;
    CUresult code = allowed(visible[current->device], "cuLaunchKernel");
    if (code != SUCCESS) return code;
    uint64_t n[7] = {0};
    int verify = function == &kernels[1];
    for (int i = 0; i < (verify ? 7 : 5); i++) memcpy(&n[i], parameters[i], sizeof n[i]);
    struct task task = {n[0], n[1], n[2], n[3], n[4], n[5], n[6]};
    return run_kernel(&task, verify);
}
