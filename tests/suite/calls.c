/* A program whose functions are called with known values, a round for each number from 1 to its first argument, with a pause of
 * as many milliseconds as its second argument says. In: the two numbers. Out: `b` when it begins. Never depends on
 * anything else. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/sdt.h>
#ifndef STEP
#define STEP 1
#endif
#define KEPT __attribute__((noinline, noclone))
#define BARRIER __asm__ volatile("" ::: "memory")

enum colour { RED = 3, GREEN = 7, BLUE = 1000 };
struct inner { int a; unsigned short b : 3; unsigned short c : 5; char name[8]; };
typedef struct pair { long x; struct inner *in; enum colour colour; } pair_t;
typedef int number_t;

KEPT long work(number_t n, const char *text, pair_t *p) {
    DTRACE_PROBE3(calls, work, n, text, p);
    BARRIER;
    return n * 2L + p->x + text[0];
}
KEPT static int hidden(int n) { BARRIER; return n + 1; }
KEPT int fact(int n) { BARRIER; int r = n <= 1 ? 1 : n * fact(n - 1); BARRIER; return r; }
KEPT int one(int n) { int r = fact(n); BARRIER; return r; }
KEPT int other(int n) { int r = fact(n); BARRIER; return r; }

int main(int argc, char **argv) {
    struct inner in = { 42, 5, 17, "inner" };
    pair_t p = { 0, &in, RED };
    char text[] = "hello";
    int rounds = argc > 1 ? atoi(argv[1]) : 3, pause = argc > 2 ? atoi(argv[2]) : 0;
    long sum = 0;
    putchar('b');
    fflush(stdout);
    for (int n = 1; n <= rounds; n++) {
        p.x = 100 * n;
        p.colour = n & 1 ? RED : BLUE;
        sum += work(n * STEP, text, &p) + hidden(n * STEP) + one(4) + other(2);
        if (pause)
            usleep(pause * 1000);
    }
    return sum == 12345;
}
