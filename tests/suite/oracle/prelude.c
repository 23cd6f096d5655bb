/* What the generated part stands on. Memory of the kernel and of the user lies here at KHERE and UHERE; the addresses in it,
 * and those that expressions see, are the ones that the traced world has: from kbase and ubase on. An address that leads
 * nowhere is a fault; one that may lead somewhere in a real kernel, but not here, is `wild`, and a fault here. */
#include <fcntl.h>
#include <fnmatch.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char s8;
typedef short s16;
typedef int s32;
typedef long long s64;
typedef _Bool bool;

#define KHERE 0x100000000000ULL
#define UHERE 0x200000000000ULL

static u64 kbase, ubase;
static jmp_buf out;
static int wild, undefined;

static void fault(void) { longjmp(out, 1); }
static void lost(void) { wild = 1; longjmp(out, 1); }

/* Too near the end of what is here to say whether a step from there still ends in it. */
static void edge(u64 p, u64 base)
{
	if (p - base + MARGIN < ARENA + 2 * MARGIN) {
		undefined = 1;
		longjmp(out, 1);
	}
}

/* A bool is read as the byte that it is. One that holds neither 0 nor 1 is undefined. */
static u8 bool_at(volatile void *p)
{
	u8 byte = *(volatile u8 *)p;
	if (byte > 1)
		undefined = 1;
	return byte;
}

static u64 kernel(u64 p)
{
	if (p - kbase - MARGIN < ARENA - 2 * MARGIN)
		return p - kbase + KHERE;
	edge(p, kbase);
	if (p >= 0xff00000000000000ULL && p < (u64)-4095LL)
		lost();
	fault();
	return 0;
}

static u64 user(u64 p)
{
	if (p - ubase - MARGIN < ARENA - 2 * MARGIN)
		return p - ubase + UHERE;
	edge(p, ubase);
	if (p >= 0x1000 && p < 1ULL << 47)
		lost();
	fault();
	return 0;
}

#define K(T, p) ((volatile __typeof__(T) *)kernel((u64)(p)))
#define U(T, p) ((volatile __typeof__(T) *)user((u64)(p)))
/* For an address of which nothing is read. */
#define K_FREE(T, p) ((volatile __typeof__(T) *)((u64)(p) - kbase + KHERE))
#define U_FREE(T, p) ((volatile __typeof__(T) *)((u64)(p) - ubase + UHERE))
#define AT_K(p) ((u64)(p) - KHERE + kbase)
#define AT_U(p) ((u64)(p) - UHERE + ubase)

static long bound(long i, long n)
{
	if (i < 0 || i >= n)
		fault();
	return i;
}

/* The largest negative number divided by -1 is itself: BPF wraps, where the processor traps. */
#define DIVISION(a, b, op, by_minus_one) ({ \
	__auto_type a_ = +(a); __auto_type b_ = +(b); \
	__typeof__(a_ + b_) x_ = a_, y_ = b_; \
	if (!y_) fault(); \
	(__typeof__(x_))-1 < 0 && y_ == (__typeof__(x_))-1 ? (by_minus_one) : x_ op y_; })
#define DIV(a, b) DIVISION(a, b, /, -x_)
#define REM(a, b) DIVISION(a, b, %, 0 * x_)

#define IS_ERR(p) ((int)((u64)(p) >= (u64)-4095LL))
#define ntohs_(x) __builtin_bswap16(x)
#define htons_(x) __builtin_bswap16(x)
#define ntohl_(x) __builtin_bswap32(x)
#define htonl_(x) __builtin_bswap32(x)
#define ntohll_(x) ((u64)__builtin_bswap64(x))
#define htonll_(x) ((u64)__builtin_bswap64(x))

/* At most so many bytes of a string, which may end before. */
static const char *text(int is_user, u64 p, u64 limit)
{
	static char copy[64];
	const volatile char *from = (void *)(is_user || !(p >> 63) ? user(p) : kernel(p));
	u64 n = 0;
	while (n < limit && n < sizeof copy - 1 && from[n]) {
		copy[n] = from[n];
		n++;
	}
	copy[n] = 0;
	return copy;
}

static int same(int is_user, u64 p, u32 limit, const char *literal)
{
	return !strcmp(text(is_user, p, limit), literal);
}

static int glob(int is_user, u64 p, u32 limit, const char *pattern)
{
	return !fnmatch(pattern, text(is_user, p, limit), 0);
}

/* A condition in which a fault happens is false. */
#define LEAF(e) ({ jmp_buf before_; memcpy(&before_, &out, sizeof out); \
	int holds_ = _setjmp(out) ? 0 : !!(e); memcpy(&out, &before_, sizeof out); holds_; })

/* Twice the bytes of a type, and one more if it has a sign. */
#define CODE(v) _Generic((v), _Bool: 2, char: 3, signed char: 3, unsigned char: 2, short: 5, unsigned short: 4, int: 9, \
	unsigned: 8, long: 17, long long: 17, unsigned long: 16, unsigned long long: 16, default: 100)

#define LOWEST(T, path) ({ T x_; memset(&x_, 0, sizeof x_); x_.path = -1; lowest(&x_, sizeof x_); })

static int lowest(const void *of, size_t size)
{
	const u8 *bytes = of;
	for (size_t bit = 0; bit < 8 * size; bit++)
		if (bytes[bit / 8] >> bit % 8 & 1)
			return bit;
	return -1;
}
