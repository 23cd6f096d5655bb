/* Attaches libbpf's side of `cargo xtask bench-usdt`. In: a BPF object, a program with the probe. Out: it stays attached until its
 * input ends. Never does anything at a hit itself: that is the object's work. */
#include <stdio.h>
#include <bpf/libbpf.h>

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    struct bpf_object *object = bpf_object__open_file(argv[1], NULL);
    if (!object || bpf_object__load(object))
        return 1;
    struct bpf_program *program = bpf_object__next_program(object, NULL);
    if (!program || !bpf_program__attach_usdt(program, -1, argv[2], "bench", "hit", NULL))
        return 1;
    getchar();
    return 0;
}
