/* The program that tests of user space trace. In: nothing. Out: the values that it passes to its probe, a line for each time, in the
 * words that the tracer uses. It passes values of every size and sign from constants, registers, the stack and
 * arrays. `work`, `poke` and `hidden` are for function probes; the probe `far` has two places at the same distance
 * from where their pages begin. Never depends on the time or its environment. */
#include <stdint.h>
#include <stdio.h>
#ifdef SEMAPHORES
#define _SDT_HAS_SEMAPHORES 1
#endif
#include <sys/sdt.h>
#ifdef SEMAPHORES
unsigned short demo_sizes_semaphore __attribute__((section(".probes"), visibility("hidden")));
unsigned short demo_far_semaphore __attribute__((section(".probes"), visibility("hidden")));
#endif
#define HIT(a, b, c, d, e, f, g, h) do { \
    printf("arg0=%lld, arg1=%llu, arg2=%lld, arg3=%llu, arg4=%lld, arg5=%llu, arg6=%lld, arg7=%llu\n", \
        (long long)(int8_t)(a), (unsigned long long)(uint8_t)(b), (long long)(int16_t)(c), (unsigned long long)(uint16_t)(d), \
        (long long)(int32_t)(e), (unsigned long long)(uint32_t)(f), (long long)(int64_t)(g), (unsigned long long)(uint64_t)(h)); \
    DTRACE_PROBE8(demo, sizes, (int8_t)(a), (uint8_t)(b), (int16_t)(c), (uint16_t)(d), \
        (int32_t)(e), (uint32_t)(f), (int64_t)(g), (uint64_t)(h)); \
} while (0)

struct inner { int8_t a; uint16_t b; int32_t c; uint64_t d; };
static volatile int seed = 1;
static int8_t bytes[64]; static uint16_t shorts[64]; static int32_t ints[64]; static uint64_t longs[64];

static inline __attribute__((always_inline)) void inlined(int n) {
    HIT(n, n, n * 3, n * 3, n * 1000, n * 1000, n * 100000000000LL, n * 100000000000ULL);
}

__attribute__((noinline)) static void arrays(int from, int to, int8_t *b, uint16_t *s, int32_t *i, uint64_t *l) {
    for (int n = from; n < to; n++)
        HIT(b[n], b[n + 1], s[n], s[n + 2], i[n], i[n + 3], l[n], l[n + 4]);
}

__attribute__((noinline)) static void fields(struct inner *x, volatile struct inner *y) {
    HIT(x->a, y->a, x->b, y->b, x->c, y->c, x->d, y->d);
}

__attribute__((noinline)) long work(int a, const char *text, unsigned char c, long *out) {
    *out = a * 2L;
    __asm__ volatile("" ::: "memory");
    return a - c;
}

int poke(int n) __asm__("_ZN4demo6Widget4pokeEi");
__attribute__((noinline)) int poke(int n) { __asm__ volatile("" ::: "memory"); return n + seed; }

__attribute__((noinline)) static int hidden(int n) { __asm__ volatile("" ::: "memory"); return n ^ seed; }

#define AT_PAGE __attribute__((noinline, noclone, aligned(4096)))
AT_PAGE static void far_first(long n, long other) { DTRACE_PROBE1(demo, far, n); __asm__ volatile("" :: "r"(other) : "memory"); }
AT_PAGE static void far_second(long other, long n) { DTRACE_PROBE1(demo, far, n); __asm__ volatile("" :: "r"(other) : "memory"); }

int run(void) {
    for (int n = 0; n < 64; n++) {
        bytes[n] = n * 37; shorts[n] = n * 4099; ints[n] = n * -100003; longs[n] = n * 0x123456789abcdefULL;
    }
    HIT(-1, -1, -1, -1, -1, -1, -1, -1);
    HIT(127, 255, 32767, 65535, 2147483647, 4294967295u, 9223372036854775807LL, 18446744073709551615ULL);
    HIT(-128, 0, -32768, 0, -2147483648LL, 0, -9223372036854775807LL - 1, 0);
    inlined(5);
    inlined(-7);
    for (int n = seed; n < 5; n++) inlined(n * 50);
    arrays(seed, 6, bytes, shorts, ints, longs);
    struct inner x = { -5, 60000, -70000, 0xfedcba9876543210ULL };
    struct inner y = { seed, seed + 1, seed + 2, seed + 3 };
    fields(&x, &y);
    int local[16];
    for (int n = 0; n < 16; n++) local[n] = n * seed * -3;
    for (int n = seed; n < 4; n++) HIT(local[n], local[n + 1], local[n + 2], local[n + 3], local[n + 4], local[n + 5], local[n + 6], local[n + 7]);
    for (int n = seed; n < 4; n++) { far_first(n, -1); far_second(-2, 10 * n); }
    long out = 0, sum = 0;
    for (int n = seed; n < 4; n++) sum += work(n * -10, "some text", 200 + n, &out) + poke(n) + hidden(n);
#ifdef SEMAPHORES
    fprintf(stderr, "watchers %d\n", demo_sizes_semaphore);
#endif
    return sum == 12345;
}
#ifndef LIBRARY
int main(void) { return run(); }
#endif
