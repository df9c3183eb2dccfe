/* Event sets: a change of a card's `xid` setting is an XID event, everything else a time-out. */
#include "nvml.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { XID_EVENT = 8, SUPPORTED_EVENTS = 1 | 2 | 4 | 8 | 16, POLL_MILLISECONDS = 20 };
enum { NO_INSTANCE = 0xFFFFFFFFu };

struct event_set {
    int watched[MAX_CARDS];
    char seen[MAX_CARDS][32];
};
struct event {
    nvmlDevice_t device;
    u64 type, data;
    unsigned gpu_instance, compute_instance;
};

EXPORT nvmlReturn_t nvmlEventSetCreate(struct event_set **set) {
    struct driver driver;
    NEED(set);
    nvmlReturn_t status = open_driver(__func__, &driver);
    if (status) return status;
    *set = calloc(1, sizeof **set);
    return *set ? SUCCESS : UNKNOWN;
}

EXPORT nvmlReturn_t nvmlEventSetFree(struct event_set *set) {
    NEED(set);
    free(set);
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, u64 *types) {
    NEED(types);
    OPEN(card);
    *types = SUPPORTED_EVENTS;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, u64 types,
                                             struct event_set *set) {
    NEED(set);
    OPEN(card);
    if (types & ~(u64)SUPPORTED_EVENTS) return NOT_SUPPORTED;
    set->watched[card.index] = (types & XID_EVENT) != 0;
    strcpy(set->seen[card.index], card.xid);
    return SUCCESS;
}

static int find_event(struct event_set *set, struct event *event) {
    for (int i = 0; i < MAX_CARDS; i++) {
        struct card card;
        if (!set->watched[i] || read_card(i, &card) || !strcmp(card.xid, set->seen[i])) continue;
        strcpy(set->seen[i], card.xid);
        if (!*card.xid) continue;
        *event = (struct event){device_handle(i, -1), XID_EVENT, strtoull(card.xid, NULL, 10),
                                NO_INSTANCE, NO_INSTANCE};
        return 1;
    }
    return 0;
}

EXPORT nvmlReturn_t nvmlEventSetWait_v2(struct event_set *set, struct event *event,
                                        unsigned timeout_ms) {
    struct driver driver;
    NEED(set && event);
    nvmlReturn_t status = open_driver(__func__, &driver);
    double end = wall_clock() + timeout_ms / 1e3;
    while (!status) {
        if (find_event(set, event)) return SUCCESS;
        double left = end - wall_clock();
        if (left <= 0) return TIMEOUT;
        double step = left < POLL_MILLISECONDS / 1e3 ? left : POLL_MILLISECONDS / 1e3;
        nanosleep(&(struct timespec){0, (long)(step * 1e9)}, NULL);
    }
    return status;
}
