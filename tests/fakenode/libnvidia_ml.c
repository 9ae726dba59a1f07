/* A stand-in for libnvidia-ml.so.1: the reading calls of NVML, answered from a text file (see answers.h).
 *
 * Signatures, structures and return codes are NVML's public interface. A call that the file does not answer
 * returns NVML_ERROR_NOT_SUPPORTED, a call that is not here is a symbol that an older driver lacks.
 * There are no setters: nothing that changes a card can be called by mistake. */
#define _GNU_SOURCE
#include "answers.h"

#include <ctype.h>
#include <stdint.h>

#define GPUS 64
#define SUCCESS 0
#define UNINITIALIZED 1
#define INVALID_ARGUMENT 2
#define NOT_SUPPORTED 3
#define NOT_FOUND 6
#define INSUFFICIENT_SIZE 7
#define TIMED_OUT 10
#define VERSION_MISMATCH 25
#define UNKNOWN 999
#define NOT_AVAILABLE 0xffffffffffffffffull

typedef int nvmlReturn_t;
typedef unsigned int uint;
typedef unsigned long long ull;
typedef struct gpu *nvmlDevice_t;

struct gpu {
    int index;
};

static struct gpu gpus[GPUS];
static int users;
static int event_given;

static const struct {
    nvmlReturn_t code;
    const char *name, *text;
} errors[] = {
    {0, "NVML_SUCCESS", "Success"},
    {1, "NVML_ERROR_UNINITIALIZED", "Uninitialized"},
    {2, "NVML_ERROR_INVALID_ARGUMENT", "Invalid Argument"},
    {3, "NVML_ERROR_NOT_SUPPORTED", "Not Supported"},
    {4, "NVML_ERROR_NO_PERMISSION", "Insufficient Permissions"},
    {5, "NVML_ERROR_ALREADY_INITIALIZED", "Already Initialized"},
    {6, "NVML_ERROR_NOT_FOUND", "Not Found"},
    {7, "NVML_ERROR_INSUFFICIENT_SIZE", "Insufficient Size"},
    {8, "NVML_ERROR_INSUFFICIENT_POWER", "Insufficient External Power"},
    {9, "NVML_ERROR_DRIVER_NOT_LOADED", "Driver Not Loaded"},
    {10, "NVML_ERROR_TIMEOUT", "Timeout"},
    {11, "NVML_ERROR_IRQ_ISSUE", "Interrupt Request Issue"},
    {12, "NVML_ERROR_LIBRARY_NOT_FOUND", "NVML Shared Library Not Found"},
    {13, "NVML_ERROR_FUNCTION_NOT_FOUND", "Function Not Found"},
    {14, "NVML_ERROR_CORRUPTED_INFOROM", "Corrupted infoROM"},
    {15, "NVML_ERROR_GPU_IS_LOST", "GPU is lost"},
    {16, "NVML_ERROR_RESET_REQUIRED", "GPU requires restart"},
    {17, "NVML_ERROR_OPERATING_SYSTEM", "The operating system has blocked the request."},
    {18, "NVML_ERROR_LIB_RM_VERSION_MISMATCH", "RM has detected an NVML/RM version mismatch."},
    {19, "NVML_ERROR_IN_USE", "In use by another client"},
    {20, "NVML_ERROR_MEMORY", "Insufficient Memory"},
    {21, "NVML_ERROR_NO_DATA", "No data"},
    {22, "NVML_ERROR_VGPU_ECC_NOT_SUPPORTED", "The vGPU operation is not available with ECC enabled"},
    {23, "NVML_ERROR_INSUFFICIENT_RESOURCES", "Insufficient resources"},
    {24, "NVML_ERROR_FREQ_NOT_SUPPORTED", "Frequency not supported"},
    {25, "NVML_ERROR_ARGUMENT_VERSION_MISMATCH", "Argument version mismatch"},
    {26, "NVML_ERROR_DEPRECATED", "Deprecated"},
    {27, "NVML_ERROR_NOT_READY", "Not ready"},
    {28, "NVML_ERROR_GPU_NOT_FOUND", "GPU not found"},
    {29, "NVML_ERROR_INVALID_STATE", "Invalid state"},
    {30, "NVML_ERROR_RESET_TYPE_NOT_SUPPORTED", "Reset type not supported"},
    {999, "NVML_ERROR_UNKNOWN", "Unknown Error"},
};

const char *nvmlErrorString(nvmlReturn_t code) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code) return errors[i].text;
    return "Unknown Error";
}

static nvmlReturn_t code_of(const char *name) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (strcmp(errors[i].name, name) == 0) return errors[i].code;
    return UNKNOWN;
}

/* The value of a call whose name is made of `format`; its error where the file gives one. */
static nvmlReturn_t ask(int scope, const char **value, const char *format, ...) {
    char name[NAME_MAX_LENGTH];
    va_list parts;
    va_start(parts, format);
    vsnprintf(name, sizeof name, format, parts);
    va_end(parts);
    *value = answer(scope, name);
    if (*value == NULL) return NOT_SUPPORTED;
    return strncmp(*value, "error ", 6) == 0 ? code_of(*value + 6) : SUCCESS;
}

/* Which GPU a handle means; -1 is never a GPU. */
static int index_of(nvmlDevice_t device) {
    return device >= gpus && device < gpus + GPUS ? device->index : -1;
}

#define CHECK(device) \
    do { \
        if (users == 0) return UNINITIALIZED; \
        if (index_of(device) < 0) return INVALID_ARGUMENT; \
    } while (0)

static nvmlReturn_t give_text(int scope, char *out, uint size, const char *name) {
    const char *value;
    nvmlReturn_t code = ask(scope, &value, "%s", name);
    if (code != SUCCESS) return code;
    if (out == NULL) return INVALID_ARGUMENT;
    if (strlen(value) >= size) return INSUFFICIENT_SIZE;
    strcpy(out, value);
    return SUCCESS;
}

/* As many numbers as there are places for; decimal or 0x. */
static nvmlReturn_t give_numbers(int scope, ull *out, int count, const char *format, ...) {
    char name[NAME_MAX_LENGTH];
    va_list parts;
    va_start(parts, format);
    vsnprintf(name, sizeof name, format, parts);
    va_end(parts);
    const char *value;
    nvmlReturn_t code = ask(scope, &value, "%s", name);
    for (int i = 0; code == SUCCESS && i < count; i++) {
        char *rest;
        out[i] = strtoull(value, &rest, 0);
        if (rest == value) return UNKNOWN;
        value = rest;
    }
    return code;
}

/* --- the library ----------------------------------------------------------------------------------- */

nvmlReturn_t nvmlInitWithFlags(uint flags) {
    (void)flags;
    const char *value;
    nvmlReturn_t code = ask(WHOLE_NODE, &value, "nvmlInit");
    if (code != SUCCESS && code != NOT_SUPPORTED) return code;
    for (int i = 0; i < GPUS; i++) gpus[i].index = i;
    users++;
    return SUCCESS;
}

nvmlReturn_t nvmlInit_v2(void) {
    return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlShutdown(void) {
    if (users == 0) return UNINITIALIZED;
    users--;
    return SUCCESS;
}

#define SYSTEM_TEXT(call) \
    nvmlReturn_t call(char *out, uint size) { \
        return users == 0 ? UNINITIALIZED : give_text(WHOLE_NODE, out, size, #call); \
    }

SYSTEM_TEXT(nvmlSystemGetDriverVersion)
SYSTEM_TEXT(nvmlSystemGetNVMLVersion)

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *out) {
    ull number = 0;
    nvmlReturn_t code = give_numbers(WHOLE_NODE, &number, 1, "nvmlSystemGetCudaDriverVersion");
    if (code == SUCCESS) *out = (int)number;
    return code;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *out) {
    return nvmlSystemGetCudaDriverVersion(out);
}

nvmlReturn_t nvmlSystemGetProcessName(uint pid, char *out, uint size) {
    if (users == 0) return UNINITIALIZED;
    char name[NAME_MAX_LENGTH];
    snprintf(name, sizeof name, "nvmlSystemGetProcessName.%u", pid);
    nvmlReturn_t code = give_text(WHOLE_NODE, out, size, name);
    return code == NOT_SUPPORTED ? NOT_FOUND : code;
}

nvmlReturn_t nvmlDeviceGetCount_v2(uint *out) {
    if (users == 0) return UNINITIALIZED;
    ull number = 0;
    nvmlReturn_t code = give_numbers(WHOLE_NODE, &number, 1, "nvmlDeviceGetCount");
    if (code == SUCCESS) *out = (uint)number;
    return code;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(uint index, nvmlDevice_t *out) {
    if (users == 0) return UNINITIALIZED;
    if (index >= GPUS || (int)index >= answers_number(WHOLE_NODE, "nvmlDeviceGetCount", 0)) return INVALID_ARGUMENT;
    const char *value;
    nvmlReturn_t code = ask((int)index, &value, "nvmlDeviceGetHandleByIndex");
    if (code != SUCCESS && code != NOT_SUPPORTED) return code;
    *out = &gpus[index];
    return SUCCESS;
}

/* By a text that another call gives: a UUID, a serial number, the slot. */
static nvmlReturn_t find_by(const char *name, const char *text, nvmlDevice_t *out) {
    if (users == 0) return UNINITIALIZED;
    if (text == NULL) return INVALID_ARGUMENT;
    for (int i = 0; i < answers_number(WHOLE_NODE, "nvmlDeviceGetCount", 0) && i < GPUS; i++) {
        const char *value;
        if (ask(i, &value, "%s", name) == SUCCESS && strncasecmp(value, text, strcspn(value, " ")) == 0)
            return nvmlDeviceGetHandleByIndex_v2((uint)i, out);
    }
    return NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *out) {
    return find_by("nvmlDeviceGetUUID", uuid, out);
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *out) {
    return find_by("nvmlDeviceGetSerial", serial, out);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *slot, nvmlDevice_t *out) {
    if (slot != NULL && strspn(slot, "0123456789") == 8) slot += 4; /* the file writes four digits of domain */
    return find_by("nvmlDeviceGetPciInfo", slot, out);
}

/* --- calls of one shape ----------------------------------------------------------------------------- */

#define TEXT(call) \
    nvmlReturn_t call(nvmlDevice_t device, char *out, uint size) { \
        CHECK(device); \
        return give_text(index_of(device), out, size, #call); \
    }

#define NUMBER_OF(call, type) \
    nvmlReturn_t call(nvmlDevice_t device, type *out) { \
        CHECK(device); \
        ull number = 0; \
        nvmlReturn_t code = give_numbers(index_of(device), &number, 1, #call); \
        if (code == SUCCESS) *out = (type)number; \
        return code; \
    }

#define NUMBER(call) NUMBER_OF(call, uint)

#define TWO(call, type) \
    nvmlReturn_t call(nvmlDevice_t device, type *first, type *second) { \
        CHECK(device); \
        ull numbers[2] = {0, 0}; \
        nvmlReturn_t code = give_numbers(index_of(device), numbers, 2, #call); \
        if (code == SUCCESS) *first = (type)numbers[0], *second = (type)numbers[1]; \
        return code; \
    }

#define BY_ONE(call, type) \
    nvmlReturn_t call(nvmlDevice_t device, uint key, type *out) { \
        CHECK(device); \
        ull number = 0; \
        nvmlReturn_t code = give_numbers(index_of(device), &number, 1, "%s.%u", #call, key); \
        if (code == SUCCESS) *out = (type)number; \
        return code; \
    }

#define BY_TWO(call, type) \
    nvmlReturn_t call(nvmlDevice_t device, uint key, uint second, type *out) { \
        CHECK(device); \
        ull number = 0; \
        nvmlReturn_t code = give_numbers(index_of(device), &number, 1, "%s.%u.%u", #call, key, second); \
        if (code == SUCCESS) *out = (type)number; \
        return code; \
    }

TEXT(nvmlDeviceGetName)
TEXT(nvmlDeviceGetUUID)
TEXT(nvmlDeviceGetSerial)
TEXT(nvmlDeviceGetBoardPartNumber)
TEXT(nvmlDeviceGetVbiosVersion)
TEXT(nvmlDeviceGetInforomImageVersion)
TEXT(nvmlDeviceGetPgpuMetadataString)

NUMBER(nvmlDeviceGetIndex)
NUMBER(nvmlDeviceGetBoardId)
NUMBER(nvmlDeviceGetMinorNumber)
NUMBER(nvmlDeviceGetModuleId)
NUMBER(nvmlDeviceGetMultiGpuBoard)
NUMBER(nvmlDeviceGetBrand)
NUMBER(nvmlDeviceGetArchitecture)
NUMBER(nvmlDeviceGetNumGpuCores)
NUMBER(nvmlDeviceGetMemoryBusWidth)
NUMBER(nvmlDeviceGetPowerUsage)
NUMBER(nvmlDeviceGetPowerManagementMode)
NUMBER(nvmlDeviceGetPowerManagementLimit)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit)
NUMBER(nvmlDeviceGetEnforcedPowerLimit)
NUMBER(nvmlDeviceGetPowerSource)
NUMBER(nvmlDeviceGetPerformanceState)
NUMBER(nvmlDeviceGetPowerState)
NUMBER(nvmlDeviceGetPersistenceMode)
NUMBER(nvmlDeviceGetComputeMode)
NUMBER(nvmlDeviceGetDisplayMode)
NUMBER(nvmlDeviceGetDisplayActive)
NUMBER(nvmlDeviceGetAccountingMode)
NUMBER(nvmlDeviceGetDefaultEccMode)
NUMBER(nvmlDeviceGetVirtualizationMode)
NUMBER(nvmlDeviceGetHostVgpuMode)
NUMBER(nvmlDeviceGetMaxMigDeviceCount)
NUMBER(nvmlDeviceIsMigDeviceHandle)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth)
NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration)
NUMBER(nvmlDeviceGetPcieLinkMaxSpeed)
NUMBER(nvmlDeviceGetPcieSpeed)
NUMBER(nvmlDeviceGetPcieReplayCounter)
NUMBER(nvmlDeviceGetRetiredPagesPendingStatus)
NUMBER(nvmlDeviceGetFanSpeed)
NUMBER(nvmlDeviceGetNumFans)
NUMBER(nvmlDeviceGetBusType)
NUMBER(nvmlDeviceGetIrqNum)
NUMBER(nvmlDeviceGetInforomConfigurationChecksum)
NUMBER_OF(nvmlDeviceGetNumaNodeId, int)
NUMBER_OF(nvmlDeviceGetCurrentClocksEventReasons, ull)
NUMBER_OF(nvmlDeviceGetCurrentClocksThrottleReasons, ull)
NUMBER_OF(nvmlDeviceGetSupportedClocksEventReasons, ull)
NUMBER_OF(nvmlDeviceGetSupportedClocksThrottleReasons, ull)
NUMBER_OF(nvmlDeviceGetSupportedEventTypes, ull)
NUMBER_OF(nvmlDeviceGetTotalEnergyConsumption, ull)

TWO(nvmlDeviceGetEccMode, uint)
TWO(nvmlDeviceGetMigMode, uint)
TWO(nvmlDeviceGetPowerManagementLimitConstraints, uint)
TWO(nvmlDeviceGetCudaComputeCapability, int)
TWO(nvmlDeviceGetGspFirmwareMode, uint)
TWO(nvmlDeviceGetDriverModel_v2, uint)
TWO(nvmlDeviceGetEncoderUtilization, uint)
TWO(nvmlDeviceGetDecoderUtilization, uint)
TWO(nvmlDeviceGetAutoBoostedClocksEnabled, uint)

BY_ONE(nvmlDeviceGetTemperature, uint)
BY_ONE(nvmlDeviceGetTemperatureThreshold, int)
BY_ONE(nvmlDeviceGetClockInfo, uint)
BY_ONE(nvmlDeviceGetMaxClockInfo, uint)
BY_ONE(nvmlDeviceGetApplicationsClock, uint)
BY_ONE(nvmlDeviceGetDefaultApplicationsClock, uint)
BY_ONE(nvmlDeviceGetMaxCustomerBoostClock, uint)
BY_ONE(nvmlDeviceGetPcieThroughput, uint)
BY_ONE(nvmlDeviceGetNvLinkState, uint)
BY_ONE(nvmlDeviceGetNvLinkVersion, uint)
BY_ONE(nvmlDeviceGetNvLinkRemoteDeviceType, uint)
BY_ONE(nvmlDeviceGetVgpuCapabilities, uint)

BY_TWO(nvmlDeviceGetClock, uint)
BY_TWO(nvmlDeviceGetNvLinkCapability, uint)
BY_TWO(nvmlDeviceGetNvLinkErrorCounter, ull)
BY_TWO(nvmlDeviceGetTotalEccErrors, ull)

/* --- calls with shapes of their own ----------------------------------------------------------------- */

nvmlReturn_t nvmlDeviceGetInforomVersion(nvmlDevice_t device, uint object, char *out, uint size) {
    CHECK(device);
    char name[NAME_MAX_LENGTH];
    snprintf(name, sizeof name, "nvmlDeviceGetInforomVersion.%u", object);
    return give_text(index_of(device), out, size, name);
}

nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t device, char *out) {
    CHECK(device);
    return give_text(index_of(device), out, 64, "nvmlDeviceGetGspFirmwareVersion");
}

nvmlReturn_t nvmlDeviceValidateInforom(nvmlDevice_t device) {
    CHECK(device);
    const char *value;
    return ask(index_of(device), &value, "nvmlDeviceValidateInforom");
}

nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device, void *out) {
    CHECK(device);
    (void)out;
    const char *value;
    nvmlReturn_t code = ask(index_of(device), &value, "nvmlDeviceGetSramEccErrorStatus");
    return code == SUCCESS ? NOT_SUPPORTED : code;
}

struct memory {
    ull total, free, used;
};

struct memory_v2 {
    uint version;
    ull total, reserved, free, used;
};

/* The value is: total reserved free used, in bytes. The old form counts the reserved part as used. */
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, struct memory *out) {
    CHECK(device);
    ull n[4];
    nvmlReturn_t code = give_numbers(index_of(device), n, 4, "nvmlDeviceGetMemoryInfo");
    if (code == SUCCESS) *out = (struct memory){n[0], n[2], n[1] + n[3]};
    return code;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, struct memory_v2 *out) {
    CHECK(device);
    if (out->version != 0x02000028) return VERSION_MISMATCH;
    ull n[4];
    nvmlReturn_t code = give_numbers(index_of(device), n, 4, "nvmlDeviceGetMemoryInfo");
    if (code == SUCCESS) *out = (struct memory_v2){out->version, n[0], n[1], n[2], n[3]};
    return code;
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, struct memory *out) {
    CHECK(device);
    ull n[3];
    nvmlReturn_t code = give_numbers(index_of(device), n, 3, "nvmlDeviceGetBAR1MemoryInfo");
    if (code == SUCCESS) *out = (struct memory){n[0], n[1], n[2]};
    return code;
}

struct pci_info {
    char legacy[16];
    uint domain, bus, device, device_id, subsystem_id;
    char slot[32];
};

/* `0000:1b:00.0 0x233010de 0x16c110de` */
static nvmlReturn_t read_slot(const char *value, struct pci_info *out) {
    uint function;
    memset(out, 0, sizeof *out);
    if (sscanf(value, "%x:%x:%x.%x %x %x", &out->domain, &out->bus, &out->device, &function, &out->device_id,
               &out->subsystem_id) != 6)
        return UNKNOWN;
    snprintf(out->legacy, sizeof out->legacy, "%04X:%02X:%02X.%X", out->domain & 0xffff, out->bus & 0xff,
             out->device & 0x1f, function & 7);
    snprintf(out->slot, sizeof out->slot, "%08X:%02X:%02X.%X", out->domain, out->bus & 0xff, out->device & 0x1f,
             function & 7);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, struct pci_info *out) {
    CHECK(device);
    const char *value;
    nvmlReturn_t code = ask(index_of(device), &value, "nvmlDeviceGetPciInfo");
    return code == SUCCESS ? read_slot(value, out) : code;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, uint link, struct pci_info *out) {
    CHECK(device);
    const char *value;
    nvmlReturn_t code = ask(index_of(device), &value, "nvmlDeviceGetNvLinkRemotePciInfo.%u", link);
    return code == SUCCESS ? read_slot(value, out) : code;
}

struct utilization {
    uint gpu, memory;
};

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, struct utilization *out) {
    CHECK(device);
    ull n[2];
    nvmlReturn_t code = give_numbers(index_of(device), n, 2, "nvmlDeviceGetUtilizationRates");
    if (code == SUCCESS) *out = (struct utilization){(uint)n[0], (uint)n[1]};
    return code;
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, uint *corrected, uint *uncorrected, uint *pending,
                                       uint *failed) {
    CHECK(device);
    ull n[4];
    nvmlReturn_t code = give_numbers(index_of(device), n, 4, "nvmlDeviceGetRemappedRows");
    if (code != SUCCESS) return code;
    *corrected = (uint)n[0];
    *uncorrected = (uint)n[1];
    *pending = (uint)n[2];
    *failed = (uint)n[3];
    return SUCCESS;
}

struct histogram {
    uint max, high, partial, low, none;
};

nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device, struct histogram *out) {
    CHECK(device);
    ull n[5];
    nvmlReturn_t code = give_numbers(index_of(device), n, 5, "nvmlDeviceGetRowRemapperHistogram");
    if (code == SUCCESS) *out = (struct histogram){(uint)n[0], (uint)n[1], (uint)n[2], (uint)n[3], (uint)n[4]};
    return code;
}

/* `none`, or numbers with blanks between. */
nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, uint cause, uint *count, ull *out) {
    CHECK(device);
    const char *value;
    nvmlReturn_t code = ask(index_of(device), &value, "nvmlDeviceGetRetiredPages.%u", cause);
    if (code != SUCCESS) return code;
    uint found = 0, room = *count;
    for (char *rest = NULL; isdigit((unsigned char)*value); value = *rest ? rest + 1 : rest) {
        ull page = strtoull(value, &rest, 0);
        if (out != NULL && found < room) out[found] = page;
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, uint cause, uint *count, ull *out, ull *times) {
    uint room = *count;
    nvmlReturn_t code = nvmlDeviceGetRetiredPages(device, cause, count, out);
    if (times != NULL && code == SUCCESS) memset(times, 0, (room < *count ? room : *count) * sizeof *times);
    return code;
}

nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, uint error, uint span, uint place, ull *out) {
    CHECK(device);
    return give_numbers(index_of(device), out, 1, "nvmlDeviceGetMemoryErrorCounter.%u.%u.%u", error, span, place);
}

struct violation {
    ull reference, violation;
};

nvmlReturn_t nvmlDeviceGetViolationStatus(nvmlDevice_t device, uint policy, struct violation *out) {
    CHECK(device);
    ull n[2];
    nvmlReturn_t code = give_numbers(index_of(device), n, 2, "nvmlDeviceGetViolationStatus.%u", policy);
    if (code == SUCCESS) *out = (struct violation){n[0], n[1]};
    return code;
}

struct temperature {
    uint version, sensor;
    int value;
};

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, struct temperature *out) {
    if (out->version != 0x100000C) return VERSION_MISMATCH;
    return nvmlDeviceGetTemperature(device, out->sensor, (uint *)&out->value);
}

struct process {
    uint pid;
    ull used;
    uint instance, compute_instance;
};

/* `none`, or `PID:MIB` with blanks between; the MiB may be `-` where the driver does not know them. */
static nvmlReturn_t processes(nvmlDevice_t device, const char *name, uint *count, struct process *out) {
    CHECK(device);
    const char *value;
    nvmlReturn_t code = ask(index_of(device), &value, "%s", name);
    if (code != SUCCESS) return code;
    uint found = 0, room = *count;
    while (isdigit((unsigned char)*value)) {
        char *rest;
        uint pid = (uint)strtoul(value, &rest, 10);
        ull used = *rest == ':' && rest[1] == '-' ? NOT_AVAILABLE : strtoull(rest + (*rest == ':'), NULL, 10) << 20;
        if (out != NULL && found < room) out[found] = (struct process){pid, used, 0xffffffff, 0xffffffff};
        found++;
        value = rest + strcspn(rest, " ");
        if (*value == ' ') value++;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

#define PROCESSES(call) \
    nvmlReturn_t call##_v3(nvmlDevice_t device, uint *count, struct process *out) { \
        return processes(device, #call, count, out); \
    } \
    nvmlReturn_t call##_v2(nvmlDevice_t device, uint *count, struct process *out) { \
        return processes(device, #call, count, out); \
    }

PROCESSES(nvmlDeviceGetComputeRunningProcesses)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses)

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t other, uint what, uint *out) {
    CHECK(device);
    CHECK(other);
    ull number = 0;
    nvmlReturn_t code =
        give_numbers(index_of(device), &number, 1, "nvmlDeviceGetP2PStatus.%d.%u", index_of(other), what);
    if (code == SUCCESS) *out = (uint)number;
    return code;
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device, nvmlDevice_t other, uint *out) {
    CHECK(device);
    CHECK(other);
    ull number = 0;
    nvmlReturn_t code =
        give_numbers(index_of(device), &number, 1, "nvmlDeviceGetTopologyCommonAncestor.%d", index_of(other));
    if (code == SUCCESS) *out = (uint)number;
    return code;
}

nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t device, nvmlDevice_t other, int *out) {
    CHECK(device);
    CHECK(other);
    *out = device == other;
    return SUCCESS;
}

/* Words of 64 CPUs, lowest first, in hex: `0xffffffffffffffff 0x0`. */
nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, uint size, unsigned long *out) {
    CHECK(device);
    const char *value;
    nvmlReturn_t code = ask(index_of(device), &value, "nvmlDeviceGetCpuAffinity");
    for (uint i = 0; code == SUCCESS && i < size; i++) {
        char *rest;
        out[i] = strtoul(value, &rest, 0);
        value = rest;
    }
    return code;
}

nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, uint size, unsigned long *out, uint scope) {
    CHECK(device);
    (void)scope;
    ull nodes;
    nvmlReturn_t code = give_numbers(index_of(device), &nodes, 1, "nvmlDeviceGetMemoryAffinity");
    if (code != SUCCESS) return code;
    memset(out, 0, size * sizeof *out);
    if (size > 0) out[0] = (unsigned long)nodes;
    return SUCCESS;
}

struct field {
    uint32_t id, scope;
    int64_t timestamp, latency;
    uint type;
    nvmlReturn_t code;
    union {
        double number;
        ull whole;
    } value;
};

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, struct field *fields) {
    CHECK(device);
    for (int i = 0; i < count; i++) {
        fields[i].type = 3; /* NVML_VALUE_TYPE_UNSIGNED_LONG_LONG */
        fields[i].value.whole = 0;
        fields[i].code = give_numbers(index_of(device), &fields[i].value.whole, 1, "nvmlDeviceGetFieldValues.%u.%u",
                                      fields[i].id, fields[i].scope);
    }
    return SUCCESS;
}

struct fabric_v1 {
    unsigned char cluster[16];
    nvmlReturn_t status;
    uint32_t clique;
    unsigned char state;
};

struct fabric_v3 {
    uint version;
    unsigned char cluster[16];
    nvmlReturn_t status;
    uint32_t clique;
    unsigned char state;
    uint32_t health;
    unsigned char summary; /* not in version 2 */
};

/* `STATE STATUS CLIQUE HEALTHMASK SUMMARY` */
nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, struct fabric_v3 *out) {
    CHECK(device);
    if (out->version != 0x02000024 && out->version != 0x03000028) return VERSION_MISMATCH;
    ull n[5];
    nvmlReturn_t code = give_numbers(index_of(device), n, 5, "nvmlDeviceGetGpuFabricInfo");
    if (code != SUCCESS) return code;
    memset(out->cluster, 0, sizeof out->cluster);
    out->state = (unsigned char)n[0];
    out->status = (nvmlReturn_t)n[1];
    out->clique = (uint32_t)n[2];
    out->health = (uint32_t)n[3];
    if (out->version == 0x03000028) out->summary = (unsigned char)n[4];
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, struct fabric_v1 *out) {
    CHECK(device);
    ull n[3];
    nvmlReturn_t code = give_numbers(index_of(device), n, 3, "nvmlDeviceGetGpuFabricInfo");
    if (code != SUCCESS) return code;
    memset(out, 0, sizeof *out);
    out->state = (unsigned char)n[0];
    out->status = (nvmlReturn_t)n[1];
    out->clique = (uint32_t)n[2];
    return SUCCESS;
}

struct licence_expiry {
    uint32_t year;
    uint16_t month, day, hour, minute, second;
    uint8_t status;
};

struct licensable {
    uint code, state;
    char info[128], product[128];
    uint enabled;
    struct licence_expiry expiry;
};

struct licences {
    int supported;
    uint count;
    struct licensable features[3];
};

/* `STATE PRODUCT NAME`: 1 licensed, 0 not. */
nvmlReturn_t nvmlDeviceGetGridLicensableFeatures_v4(nvmlDevice_t device, struct licences *out) {
    CHECK(device);
    const char *value;
    nvmlReturn_t code = ask(index_of(device), &value, "nvmlDeviceGetGridLicensableFeatures");
    if (code != SUCCESS) return code;
    memset(out, 0, sizeof *out);
    out->supported = 1;
    out->count = 1;
    out->features[0].code = 4; /* NVML_GRID_LICENSE_FEATURE_CODE_COMPUTE */
    out->features[0].state = out->features[0].enabled = value[0] == '1';
    snprintf(out->features[0].product, sizeof out->features[0].product, "%s", value + (value[1] == ' ' ? 2 : 1));
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, uint index, nvmlDevice_t *out) {
    CHECK(device);
    (void)index;
    (void)out;
    return NOT_FOUND;
}

/* --- events ------------------------------------------------------------------------------------------ */

struct event {
    nvmlDevice_t device;
    ull type, data;
    uint instance, compute_instance;
};

nvmlReturn_t nvmlEventSetCreate(void **out) {
    if (users == 0) return UNINITIALIZED;
    *out = &event_given;
    event_given = 0;
    return SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(void *set) {
    (void)set;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, ull types, void *set) {
    CHECK(device);
    (void)types;
    (void)set;
    const char *value;
    nvmlReturn_t code = ask(index_of(device), &value, "nvmlDeviceRegisterEvents");
    return value == NULL ? SUCCESS : code;
}

/* `GPU XID` happens once; then there is only the timeout. */
nvmlReturn_t nvmlEventSetWait_v2(void *set, struct event *out, uint timeout_ms) {
    (void)set;
    if (users == 0) return UNINITIALIZED;
    ull n[2];
    if (event_given == 0 && give_numbers(WHOLE_NODE, n, 2, "nvmlEventSetWait") == SUCCESS && n[0] < GPUS) {
        event_given = 1;
        *out = (struct event){&gpus[n[0]], 8, n[1], 0xffffffff, 0xffffffff}; /* nvmlEventTypeXidCriticalError */
        return SUCCESS;
    }
    answers_sleep(timeout_ms);
    return TIMED_OUT;
}
