/* What `cargo xtask bench-usdt` traces: a USDT probe with three arguments, from two registers and the stack. In: how often it is hit.
 * Out: how many nanoseconds that took. Never prints anything else. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <sys/sdt.h>

__attribute__((noinline)) static void hit(int a, long b, int c) {
    volatile int kept = c;
    DTRACE_PROBE3(bench, hit, a, b, kept);
}

int main(int argc, char **argv) {
    struct timespec from, to;
    long times = argc > 1 ? atol(argv[1]) : 1;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (long n = 0; n < times; n++)
        hit((int)n, n * 3, (int)n & 7);
    clock_gettime(CLOCK_MONOTONIC, &to);
    printf("%lld\n", (to.tv_sec - from.tv_sec) * 1000000000LL + to.tv_nsec - from.tv_nsec);
    return 0;
}
