/* Initialisation, versions, errors in words, and finding a card. */
#include "nvml.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <errno.h>

static atomic_int users;
static struct device devices[MAX_CARDS][1 + MAX_MIG_DEVICES];

nvmlDevice_t device_handle(int index, int part) {
    struct device *device = &devices[index][part + 1];
    device->index = index;
    device->part = part;
    return device;
}

static void pass_time(long milliseconds) {
    if (milliseconds <= 0) return;
    struct timespec left = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    while (nanosleep(&left, &left) && errno == EINTR) continue;
}

static nvmlReturn_t meet_faults(const struct faults *faults, const char *function) {
    pass_time(find_fault(faults->delays, faults->delay_count, function));
    long error = find_fault(faults->errors, faults->error_count, function);
    return error > 0 ? (nvmlReturn_t)error : SUCCESS;
}

nvmlReturn_t open_driver(const char *function, struct driver *driver) {
    if (!users) return UNINITIALIZED;
    nvmlReturn_t status = (nvmlReturn_t)read_driver(driver);
    return status ? status : meet_faults(&driver->faults, function);
}

nvmlReturn_t open_card(nvmlDevice_t device, const char *function, struct card *card) {
    struct driver driver;
    uintptr_t first = (uintptr_t)&devices[0][0], place = (uintptr_t)device;
    nvmlReturn_t status = open_driver(function, &driver);
    if (status) return status;
    if (place < first || place >= first + sizeof devices) return INVALID_ARGUMENT;
    if ((place - first) % sizeof **devices) return INVALID_ARGUMENT;
    status = (nvmlReturn_t)read_card(device->index, card);
    return status ? status : meet_faults(&card->faults, function);
}

nvmlReturn_t copy_text(const char *text, char *into, unsigned size) {
    if (!into) return INVALID_ARGUMENT;
    if (strlen(text) >= size) return INSUFFICIENT_SIZE;
    strcpy(into, text);
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    struct driver driver;
    (void)flags;
    nvmlReturn_t status = users ? SUCCESS : (nvmlReturn_t)open_state_directory();
    if (!status) status = (nvmlReturn_t)read_driver(&driver);
    if (!status) status = meet_faults(&driver.faults, "Init");
    if (!status) users++;
    return status;
}

EXPORT nvmlReturn_t nvmlInit_v2(void) {
    return nvmlInitWithFlags(0);
}

EXPORT nvmlReturn_t nvmlInit(void) {
    return nvmlInitWithFlags(0);
}

EXPORT nvmlReturn_t nvmlShutdown(void) {
    if (!users) return UNINITIALIZED;
    users--;
    return SUCCESS;
}

EXPORT const char *nvmlErrorString(nvmlReturn_t code) {
    static const char *const words[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported",
        "Insufficient Permissions", "Already Initialized", "Not Found", "Insufficient Size",
        "Insufficient External Power", "Driver Not Loaded", "Timeout", "Interrupt Request Issue",
        "NVML Shared Library Not Found", "Function Not Found", "Corrupted infoROM",
        "GPU is lost", "GPU requires reset", "The operating system has blocked the request",
        "RM has detected an NVML/RM version mismatch", "GPU is currently in use by client(s)",
        "Insufficient Memory", "No data", "ECC operation not supported for vGPU",
        "Insufficient Resources", "Frequency not supported", "Argument version mismatch",
        "Deprecated", "Not ready", "GPU not found", "Invalid state", "Reset type not supported",
    };
    return code < sizeof words / sizeof *words ? words[code] : "Unknown Error";
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length) {
    struct driver driver;
    nvmlReturn_t status = open_driver(__func__, &driver);
    return status ? status : copy_text(driver.driver_version, version, length);
}

EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length) {
    struct driver driver;
    nvmlReturn_t status = open_driver(__func__, &driver);
    return status ? status : copy_text(driver.nvml_version, version, length);
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    struct driver driver;
    NEED(version);
    nvmlReturn_t status = open_driver(__func__, &driver);
    if (!status) *version = (int)driver.cuda_version;
    return status;
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    return nvmlSystemGetCudaDriverVersion(version);
}

EXPORT nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length) {
    struct driver driver;
    char path[64], text[4096];
    NEED(name && length);
    nvmlReturn_t status = open_driver(__func__, &driver);
    if (status) return status;
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    if (read_text(path, text, sizeof text) <= 0) return NOT_FOUND;
    snprintf(name, length, "%s", text);
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
    struct driver driver;
    NEED(count);
    nvmlReturn_t status = open_driver(__func__, &driver);
    if (!status) *count = (unsigned)count_cards();
    return status;
}

/* What a lookup of this card answers, by whatever key it was found. */
static nvmlReturn_t give(int index, const char *function, nvmlDevice_t *device) {
    struct card card;
    nvmlReturn_t status = open_card(device_handle(index, -1), function, &card);
    if (status == UNKNOWN) status = SUCCESS; /* a malformed file: the card is there, mute */
    if (!status) *device = device_handle(index, -1);
    return status;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
    struct driver driver;
    NEED(device);
    nvmlReturn_t status = open_driver(__func__, &driver);
    if (status) return status;
    if (index >= (unsigned)count_cards()) return INVALID_ARGUMENT;
    return give((int)index, __func__, device);
}

static int is_bus_id(const struct card *card, const char *text) {
    unsigned domain = 0, bus = 0, slot = 0, function = 0;
    if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) return 0;
    return !domain && !slot && !function && bus == (unsigned)(16 + 8 * card->index);
}

static nvmlReturn_t find_card(const char *function, const char *key, nvmlDevice_t *device) {
    struct driver driver;
    NEED(key && device);
    nvmlReturn_t status = open_driver(function, &driver);
    if (status) return status;
    int count = count_cards();
    for (int i = 0; i < count; i++) {
        struct card card;
        if (read_card(i, &card)) continue;
        for (int part = 0; card.mig > 0 && part < card.mig_devices; part++) {
            char uuid[TEXT_SIZE];
            mig_uuid(&card, part, uuid);
            if (strcmp(uuid, key)) continue;
            *device = device_handle(i, part);
            return SUCCESS;
        }
        if (!strcmp(card.uuid, key) || !strcmp(card.serial, key) || is_bus_id(&card, key))
            return give(i, function, device);
    }
    return NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    return find_card(__func__, uuid, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device) {
    return find_card(__func__, bus_id, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device) {
    return find_card(__func__, serial, device);
}
