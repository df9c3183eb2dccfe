/* What a simulated card is told to be: the state directory, read afresh at each call. */
#ifndef TESTBED_SCENARIO_H
#define TESTBED_SCENARIO_H

#include <stddef.h>
#include <sys/types.h>

enum {
    MAX_CARDS = 32,
    MAX_FAULTS = 48,
    MAX_PARTS = 48,
    MAX_PROCESSES = 64,
    MAX_USES = 256,
    FUNCTION_SIZE = 56,
    TEXT_SIZE = 96
};

/* VALUE:SECONDS,VALUE:SECONDS,... repeated; a part without seconds lasts for ever. */
struct schedule {
    int count;
    struct { double value, seconds; } parts[MAX_PARTS];
};

struct fault {
    char function[FUNCTION_SIZE]; /* GetUtilizationRates, or * */
    long value;
};

struct faults {
    int error_count, delay_count;
    struct fault errors[MAX_FAULTS], delays[MAX_FAULTS];
};

struct process {
    unsigned pid;
    unsigned long long memory_mib;
    unsigned util;
};

/* One card as its file says; numbers are -1 where the file says nothing. */
struct card {
    int index;
    char uuid[TEXT_SIZE], name[TEXT_SIZE], serial[32];
    long minor, mig, mig_devices;
    long memory_used_mib, memory_total_mib, power_mw, power_limit_mw, temperature;
    long sm_clock_mhz, clocks_event_reasons, ecc_corrected, ecc_uncorrected;
    double energy_mj, since;
    char xid[32];
    struct schedule util;
    int file_process_count;
    struct process file_processes[MAX_PROCESSES];
    struct faults faults;

    /* Follows from the file and from the programs that use the card now. */
    double util_now;
    int process_count;
    struct process processes[MAX_PROCESSES];
};

struct driver {
    char driver_version[TEXT_SIZE], nvml_version[TEXT_SIZE];
    long cuda_version;
    struct faults faults;
};

/* 0, or the NVML error that tells why not. */
int open_state_directory(void);
int read_driver(struct driver *driver);
int read_card(int index, struct card *card);
int count_cards(void);
long find_fault(const struct fault *faults, int count, const char *function);
double read_energy_mj(const struct card *card, double power_mw);
double wall_clock(void);

/* Shared with the readers of use files. */
int parse_schedule(const char *text, struct schedule *schedule);
double schedule_value(const struct schedule *schedule, double elapsed);
int parse_number(const char *text, double low, double high, double *value);
int for_each_line(char *text, int (*take)(void *into, const char *key, char *value), void *into);
ssize_t read_text(const char *path, char *buffer, size_t size);
void read_uses(const char *directory, struct card *card);

#endif
