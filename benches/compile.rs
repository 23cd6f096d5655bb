//! How long a query takes from text to object. In: the running kernel's BTF, or the file that `KSJ_BTF` names. Out:
//! criterion's report, twice for each query: with the kernel's types just opened, as a run of the tool finds them, and with
//! all that was looked up before still known. Never loads anything.

use std::hint::black_box;
use std::path::PathBuf;

use criterion::{Criterion, criterion_group, criterion_main};
use ksnoop_jit::compile::{self, Job, Way};
use ksnoop_jit::lower::Target;
use ksnoop_jit::sema::Limits;
use ksnoop_jit::types::Types;
use ksnoop_jit_runtime::btf;

const QUERIES: [(&str, &str); 5] = [
    ("struct", "ip_rcv(skb->len > 0xff, skb)"),
    ("pointer", "ip_send_skb(skb->sk)"),
    ("path", "vfs_open(path->dentry->d_parent->d_inode->i_ino)"),
    ("union", "tcp_sendmsg(sk->__sk_common.skc_daddr, size >= 1)"),
    ("everything", "do_sys_openat2"),
];

/// Text to bytes; how many they are.
fn object(text: &str, types: &Types) -> usize {
    let resolved = compile::understand(text, types, Limits::default())
        .unwrap_or_else(|diags| panic!("{text} is refused: {diags:?}"));
    let job = Job::alone(Way::Trampoline);
    let artifact = compile::generate(&resolved.query, types, &Target::default(), job)
        .unwrap_or_else(|error| panic!("{text}: {error}"));
    artifact.object.elf.len()
}

fn compile(criterion: &mut Criterion) {
    let path = std::env::var_os("KSJ_BTF").map(PathBuf::from);
    let open = || btf::open_vmlinux(path.as_deref()).map(Types::new);
    let types = match open() {
        Ok(types) => types,
        Err(error) => {
            eprintln!("nothing to measure with: {error}; KSJ_BTF=FILE names other BTF");
            return;
        }
    };
    for (name, text) in QUERIES {
        criterion.bench_function(&format!("first/{name}"), |bencher| {
            bencher.iter_batched(
                || open().unwrap_or_else(|error| panic!("BTF could be opened before: {error}")),
                |types| object(black_box(text), &types),
                criterion::BatchSize::PerIteration,
            );
        });
        criterion.bench_function(&format!("again/{name}"), |bencher| {
            bencher.iter(|| object(black_box(text), &types));
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(30);
    targets = compile
}
criterion_main!(benches);
