/* What a card is: names, numbers, places, modes, MIG devices. */
#include "nvml.h"

#include <stdio.h>
#include <string.h>

struct pci {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
};

void mig_uuid(const struct card *card, int part, char *into) {
    const char *body = strncmp(card->uuid, "GPU-", 4) ? card->uuid : card->uuid + 4;
    snprintf(into, TEXT_SIZE, "MIG-%.*s", TEXT_SIZE - 8, body);
    size_t length = strlen(into);
    into[length - 1] = (char)('0' + part);
}

static int is_hopper(const struct card *card) {
    return strstr(card->name, "H800") || strstr(card->name, "H100") || strstr(card->name, "H200");
}

EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index) {
    NEED(index);
    OPEN(card);
    *index = (unsigned)(device->part < 0 ? card.index : device->part);
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length) {
    OPEN(card);
    char text[TEXT_SIZE + 16];
    snprintf(text, sizeof text, device->part < 0 ? "%s" : "%s MIG 1g.10gb", card.name);
    return copy_text(text, name, length);
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length) {
    OPEN(card);
    char text[TEXT_SIZE];
    if (device->part < 0) strcpy(text, card.uuid);
    else mig_uuid(&card, device->part, text);
    return copy_text(text, uuid, length);
}

EXPORT nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned length) {
    OPEN(card);
    return copy_text(card.serial, serial, length);
}

EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *minor) {
    NEED(minor);
    OPEN(card);
    if (device->part >= 0) return NOT_SUPPORTED;
    *minor = (unsigned)card.minor;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, struct pci *pci) {
    NEED(pci);
    OPEN(card);
    memset(pci, 0, sizeof *pci);
    pci->bus = (unsigned)(16 + 8 * card.index);
    pci->pci_device_id = is_hopper(&card) ? 0x232410DEu : 0x20B210DEu;
    pci->pci_subsystem_id = pci->pci_device_id;
    snprintf(pci->bus_id_legacy, sizeof pci->bus_id_legacy, "0000:%02X:00.0", pci->bus & 0xFF);
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", pci->bus & 0xFF);
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, unsigned *brand) {
    NEED(brand);
    OPEN(card);
    *brand = 14; /* NVIDIA */
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned *architecture) {
    NEED(architecture);
    OPEN(card);
    *architecture = is_hopper(&card) ? 9 : 7;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major,
                                                       int *minor) {
    NEED(major && minor);
    OPEN(card);
    *major = is_hopper(&card) ? 9 : 8;
    *minor = 0;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *text, unsigned length) {
    OPEN(card);
    return copy_text("92.00.45.00.03", text, length);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned *mode) {
    NEED(mode);
    OPEN(card);
    *mode = 0; /* default: shared */
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned *mode) {
    NEED(mode);
    OPEN(card);
    *mode = 1;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t device, unsigned *mode) {
    NEED(mode);
    OPEN(card);
    *mode = 0;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned *current,
                                         unsigned *pending) {
    NEED(current && pending);
    OPEN(card);
    *current = *pending = 1;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current,
                                         unsigned *pending) {
    NEED(current && pending);
    OPEN(card);
    if (device->part >= 0) return NOT_SUPPORTED;
    *current = *pending = card.mig > 0;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *answer) {
    NEED(answer);
    OPEN(card);
    *answer = device->part >= 0;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count) {
    NEED(count);
    OPEN(card);
    *count = MAX_MIG_DEVICES;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index,
                                                        nvmlDevice_t *mig) {
    NEED(mig);
    OPEN(card);
    if (device->part >= 0 || index >= MAX_MIG_DEVICES) return INVALID_ARGUMENT;
    if (card.mig <= 0 || (long)index >= card.mig_devices) return NOT_FOUND;
    *mig = device_handle(card.index, (int)index);
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device,
                                                                 nvmlDevice_t *parent) {
    NEED(parent);
    OPEN(card);
    if (device->part < 0) return INVALID_ARGUMENT;
    *parent = device_handle(card.index, -1);
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *id) {
    NEED(id);
    OPEN(card);
    if (device->part < 0) return NOT_SUPPORTED;
    *id = (unsigned)device->part + 7;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned *id) {
    NEED(id);
    OPEN(card);
    if (device->part < 0) return NOT_SUPPORTED;
    *id = 0;
    return SUCCESS;
}
