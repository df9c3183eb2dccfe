/* The part of NVML's binary interface that the simulation answers. */
#ifndef TESTBED_NVML_H
#define TESTBED_NVML_H

#include "scenario.h"

#include <stdint.h>

typedef unsigned nvmlReturn_t;
typedef unsigned long long u64;

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10,
    VERSION_MISMATCH = 25,
    UNKNOWN = 999
};

/* A card (part -1) or one of its MIG devices. */
enum { MAX_MIG_DEVICES = 7 };
struct device {
    int index, part;
};
typedef struct device *nvmlDevice_t;

#define EXPORT __attribute__((visibility("default")))
#define MIB (1024ULL * 1024ULL)

/* Names the calling function's card; the injected delay passes and the injected error returns. */
#define OPEN(card)                                                 \
    struct card card;                                              \
    do {                                                           \
        nvmlReturn_t opened = open_card(device, __func__, &card);  \
        if (opened) return opened;                                 \
    } while (0)
#define NEED(pointer)                                              \
    do {                                                           \
        if (!(pointer)) return INVALID_ARGUMENT;                   \
    } while (0)

nvmlDevice_t device_handle(int index, int part);
nvmlReturn_t open_card(nvmlDevice_t device, const char *function, struct card *card);
nvmlReturn_t open_driver(const char *function, struct driver *driver);
nvmlReturn_t copy_text(const char *text, char *into, unsigned size);
double card_power_mw(const struct card *card);
void mig_uuid(const struct card *card, int part, char *into);

#endif
