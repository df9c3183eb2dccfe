/* The state directory of a node: its card and driver files, cached until they change. */
#define _GNU_SOURCE
#include "scenario.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ERROR_DRIVER_NOT_LOADED = 9, ERROR_GPU_IS_LOST = 15, ERROR_UNKNOWN = 999 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char state[400];

struct stamp {
    struct timespec changed;
    off_t size;
    ino_t inode;
    int filled, broken;
};
static struct { struct stamp stamp; struct card card; } cards[MAX_CARDS];
static struct { struct stamp stamp; struct driver driver; } node;

/* "nvmlDeviceGetMemoryInfo_v2" and "GetMemoryInfo" name the same function. */
static void shorten(const char *function, char *into) {
    if (!strncmp(function, "nvml", 4)) function += 4;
    if (!strncmp(function, "Device", 6)) function += 6;
    snprintf(into, FUNCTION_SIZE, "%s", function);
    size_t length = strlen(into);
    if (length > 3 && into[length - 3] == '_' && into[length - 2] == 'v') into[length - 3] = '\0';
}

static int take_fault(struct fault *faults, int *count, const char *function, const char *value) {
    double number;
    if (*count == MAX_FAULTS || !*function || parse_number(value, 0, 3.6e6, &number)) return -1;
    shorten(function, faults[*count].function);
    faults[(*count)++].value = (long)number;
    return 0;
}

static int take_faults(struct faults *faults, const char *key, const char *value) {
    if (!strncmp(key, "error.", 6))
        return take_fault(faults->errors, &faults->error_count, key + 6, value);
    if (!strncmp(key, "delay.", 6))
        return take_fault(faults->delays, &faults->delay_count, key + 6, value);
    return -1;
}

static int take_text(char *into, size_t size, const char *value) {
    return (size_t)snprintf(into, size, "%s", value) < size ? 0 : -1;
}

/* PID:MIB,PID:MIB: processes on the card that no program of the testbed stands for. */
static int take_processes(struct card *card, char *value) {
    char *rest = value;
    for (char *part; (part = strsep(&rest, ",")) != NULL;) {
        double pid, memory;
        char *after = part;
        char *first = strsep(&after, ":");
        if (card->file_process_count == MAX_PROCESSES) return -1;
        if (parse_number(first, 1, 4e9, &pid)) return -1;
        if (parse_number(after ? after : "0", 0, 1e9, &memory)) return -1;
        struct process *process = &card->file_processes[card->file_process_count++];
        *process = (struct process){(unsigned)pid, (unsigned long long)memory, 0};
    }
    return 0;
}

static int take_card_line(void *into, const char *key, char *value) {
    struct card *card = into;
    struct { const char *key; long *into; } numbers[] = {
        {"minor", &card->minor}, {"mig", &card->mig}, {"mig_devices", &card->mig_devices},
        {"memory_used_mib", &card->memory_used_mib},
        {"memory_total_mib", &card->memory_total_mib}, {"power_mw", &card->power_mw},
        {"power_limit_mw", &card->power_limit_mw}, {"temperature", &card->temperature},
        {"sm_clock_mhz", &card->sm_clock_mhz},
        {"clocks_event_reasons", &card->clocks_event_reasons},
        {"ecc_corrected", &card->ecc_corrected}, {"ecc_uncorrected", &card->ecc_uncorrected},
    };
    double number;
    if (!strcmp(key, "uuid")) return take_text(card->uuid, sizeof card->uuid, value);
    if (!strcmp(key, "name")) return take_text(card->name, sizeof card->name, value);
    if (!strcmp(key, "serial")) return take_text(card->serial, sizeof card->serial, value);
    if (!strcmp(key, "xid")) return take_text(card->xid, sizeof card->xid, value);
    if (!strcmp(key, "util")) return parse_schedule(value, &card->util);
    if (!strcmp(key, "processes")) return take_processes(card, value);
    if (!strcmp(key, "since")) return parse_number(value, 0, 1e12, &card->since);
    if (!strcmp(key, "energy_mj")) return parse_number(value, 0, 1e18, &card->energy_mj);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (strcmp(key, numbers[i].key)) continue;
        if (parse_number(value, 0, 1e12, &number)) return -1;
        *numbers[i].into = (long)number;
        return 0;
    }
    return take_faults(&card->faults, key, value);
}

static int take_driver_line(void *into, const char *key, char *value) {
    struct driver *driver = into;
    double number;
    if (!strcmp(key, "driver_version"))
        return take_text(driver->driver_version, sizeof driver->driver_version, value);
    if (!strcmp(key, "nvml_version"))
        return take_text(driver->nvml_version, sizeof driver->nvml_version, value);
    if (!strcmp(key, "cuda_version")) {
        if (parse_number(value, 0, 1e6, &number)) return -1;
        driver->cuda_version = (long)number;
        return 0;
    }
    return take_faults(&driver->faults, key, value);
}

static void set_card_defaults(struct card *card, int index) {
    memset(card, 0, sizeof *card);
    card->index = index;
    snprintf(card->uuid, sizeof card->uuid, "GPU-00000000-0000-0000-0000-%012d", index);
    snprintf(card->name, sizeof card->name, "NVIDIA A100-SXM4-80GB");
    snprintf(card->serial, sizeof card->serial, "16500%08d", index);
    card->minor = index;
    card->memory_total_mib = 81920;
    card->power_limit_mw = 400000;
    card->memory_used_mib = card->power_mw = card->temperature = card->sm_clock_mhz = -1;
    card->clocks_event_reasons = -1;
    card->energy_mj = -1;
}

static void set_driver_defaults(struct driver *driver) {
    memset(driver, 0, sizeof *driver);
    snprintf(driver->driver_version, sizeof driver->driver_version, "580.95.05");
    snprintf(driver->nvml_version, sizeof driver->nvml_version, "13.580.95.05");
    driver->cuda_version = 13000;
}

/* 1 when the file changed since `stamp`, 0 when not, -1 when there is none. */
static int has_changed(const char *path, struct stamp *stamp) {
    struct stat found;
    if (stat(path, &found) || !S_ISREG(found.st_mode)) {
        stamp->filled = 0;
        return -1;
    }
    int settled = wall_clock() - (double)found.st_mtim.tv_sec > 2;
    if (stamp->filled && settled && found.st_size == stamp->size && found.st_ino == stamp->inode
        && !memcmp(&found.st_mtim, &stamp->changed, sizeof found.st_mtim)) return 0;
    *stamp = (struct stamp){found.st_mtim, found.st_size, found.st_ino, 1, 0};
    return 1;
}

int open_state_directory(void) {
    char path[sizeof state] = "";
    const char *given = getenv("SLURMWRAP_TESTBED_NVML");
    const char *testbed = getenv("SLURMWRAP_TESTBED"), *name = getenv("SLURMWRAP_TESTBED_NODE");
    Dl_info here;
    int length = 0;
    if (given && *given) {
        length = snprintf(path, sizeof path, "%s", given);
    } else if (testbed && name && *name && !strchr(name, '/')) {
        length = snprintf(path, sizeof path, "%s/nodes/%s/nvml", testbed, name);
    } else if (dladdr((void *)open_state_directory, &here) && strrchr(here.dli_fname, '/')) {
        int folder = (int)(strrchr(here.dli_fname, '/') - here.dli_fname);
        length = snprintf(path, sizeof path, "%.*s/../nvml", folder, here.dli_fname);
    }
    struct stat found;
    if (length <= 0 || length >= (int)sizeof path) return ERROR_DRIVER_NOT_LOADED;
    if (stat(path, &found) || !S_ISDIR(found.st_mode)) return ERROR_DRIVER_NOT_LOADED;
    pthread_mutex_lock(&lock);
    if (strcmp(path, state)) {
        strcpy(state, path);
        memset(cards, 0, sizeof cards);
        memset(&node, 0, sizeof node);
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

int read_driver(struct driver *driver) {
    char path[512], text[8192];
    pthread_mutex_lock(&lock);
    snprintf(path, sizeof path, "%s/driver", state);
    int changed = has_changed(path, &node.stamp);
    if (changed) set_driver_defaults(&node.driver);
    if (changed > 0) {
        node.stamp.broken = read_text(path, text, sizeof text) < 0
            || for_each_line(text, take_driver_line, &node.driver);
    }
    int broken = changed >= 0 && node.stamp.broken;
    *driver = node.driver;
    pthread_mutex_unlock(&lock);
    return broken ? ERROR_UNKNOWN : 0;
}

static int read_card_file(int index, struct card *card) {
    char path[512], text[16384];
    snprintf(path, sizeof path, "%s/card%d", state, index);
    struct stamp *stamp = &cards[index].stamp;
    int changed = has_changed(path, stamp);
    if (changed < 0) return ERROR_GPU_IS_LOST;
    if (changed) {
        set_card_defaults(&cards[index].card, index);
        ssize_t length = read_text(path, text, sizeof text);
        stamp->broken = length < 0 || length == (ssize_t)sizeof text - 1
            || strlen(text) != (size_t)length
            || for_each_line(text, take_card_line, &cards[index].card);
        if (!cards[index].card.since) {
            cards[index].card.since =
                (double)stamp->changed.tv_sec + (double)stamp->changed.tv_nsec / 1e9;
        }
    }
    *card = cards[index].card;
    return stamp->broken ? ERROR_UNKNOWN : 0;
}

int read_card(int index, struct card *card) {
    char uses[sizeof state + 8];
    pthread_mutex_lock(&lock);
    int status = read_card_file(index, card);
    snprintf(uses, sizeof uses, "%s/use", state);
    pthread_mutex_unlock(&lock);
    if (status) return status;
    for (int i = 0; i < card->file_process_count; i++) {
        card->processes[card->process_count++] = card->file_processes[i];
    }
    read_uses(uses, card);
    if (card->util.count) card->util_now = schedule_value(&card->util, wall_clock() - card->since);
    return 0;
}

int count_cards(void) {
    char path[512];
    int count = 0;
    for (; count < MAX_CARDS; count++) {
        snprintf(path, sizeof path, "%s/card%d", state, count);
        if (access(path, F_OK)) break;
    }
    return count;
}

/* The value set for a function, by its name or by *, or -1. */
long find_fault(const struct fault *faults, int count, const char *function) {
    char name[FUNCTION_SIZE];
    if (!count) return -1;
    shorten(function, name);
    for (int i = 0; i < count; i++) {
        if (!strcmp(faults[i].function, name) || !strcmp(faults[i].function, "*"))
            return faults[i].value;
    }
    return -1;
}

/* Energy is power summed between calls, kept in a file that all readers share. */
double read_energy_mj(const struct card *card, double power_mw) {
    char path[512], text[128];
    if (card->energy_mj >= 0) return card->energy_mj;
    snprintf(path, sizeof path, "%s/energy%d", state, card->index);
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return 0;
    flock(file, LOCK_EX);
    double energy = 0, before = 0, power_before = power_mw, now = wall_clock();
    ssize_t length = pread(file, text, sizeof text - 1, 0);
    text[length > 0 ? length : 0] = '\0';
    if (sscanf(text, "%lf %lf %lf", &energy, &before, &power_before) == 3 && now > before) {
        energy += (now - before) * (power_before + power_mw) / 2;
    }
    int size = snprintf(text, sizeof text, "%.3f %.6f %.0f        \n", energy, now, power_mw);
    if (pwrite(file, text, (size_t)size, 0) != size) energy = -1;
    close(file);
    return energy < 0 ? 0 : energy;
}
