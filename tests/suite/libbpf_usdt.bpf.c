/* What a USDT probe with three arguments is for libbpf: the same condition as the query of user_instructions.rs,
 * which never holds. In: the probe. Out: nothing. Compiled for BPF by clang. */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/usdt.bpf.h>

SEC("usdt")
int hit(struct pt_regs *ctx) {
    long a, b, c;
    bpf_usdt_arg(ctx, 0, &a);
    bpf_usdt_arg(ctx, 1, &b);
    bpf_usdt_arg(ctx, 2, &c);
    if (a + b + c == 123456789)
        bpf_printk("hit");
    return 0;
}
char LICENSE[] SEC("license") = "GPL";
