//! The instructions of the IR, one variant for each shape. Every value is one 64-bit register. A plain load of an
//! untyped kernel pointer cannot pass the verifier (`super::verify`): only a call of a probe-read helper reads it.

use super::entities::{Block, MapRef, Reloc, Slot, Value};

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// A number.
    Int,
    /// An address, and what memory it is in.
    Ptr(Space),
    /// A map, as helpers take it.
    Map,
}

/// The memory that a pointer points into; it decides which instructions may read or write through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// The program's context: plain loads.
    Ctx,
    /// The BPF stack: plain loads and stores.
    Stack,
    /// The value of a map, not NULL: plain loads and stores.
    MapValue,
    /// The value of a map or NULL: only comparisons with 0, then a `cast`.
    MapValueOrNull,
    /// A reserved ring buffer record, not NULL: plain loads and stores.
    Record,
    /// A reserved record or NULL: only comparisons with 0, then a `cast`.
    RecordOrNull,
    /// A kernel address of no type that the kernel's verifier knows: only probe reads.
    Kernel,
    /// A user address: only user probe reads.
    User,
    /// A kernel address whose BTF type the kernel's verifier knows: plain loads with a relocation, and probe reads.
    Btf,
}

/// How many bytes a memory access or an extension is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Width {
    /// 1 byte.
    B1,
    /// 2 bytes.
    B2,
    /// 4 bytes.
    B4,
    /// 8 bytes.
    B8,
}

/// Whether an operation works on all 64 bits or on the low 32 (the result is then zero-extended).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bits {
    /// The low 32.
    W32,
    /// All 64.
    W64,
}

/// The right-hand side of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A value.
    Value(Value),
    /// A constant, sign-extended to 64 bits.
    Imm(i32),
}

/// Two-operand arithmetic. Division is unsigned: BPF has no signed one before its version 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryOp {
    /// Addition.
    Add,
    /// Subtraction.
    Sub,
    /// Multiplication.
    Mul,
    /// Unsigned division; by zero gives 0.
    Udiv,
    /// Unsigned remainder; by zero gives the dividend.
    Urem,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
    /// Shift left.
    Shl,
    /// Shift right, zeroes come in.
    Lshr,
    /// Shift right, the sign comes in.
    Ashr,
}

/// Comparisons that a branch can make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CmpOp {
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// Unsigned less.
    Ult,
    /// Unsigned less or equal.
    Ule,
    /// Unsigned greater.
    Ugt,
    /// Unsigned greater or equal.
    Uge,
    /// Signed less.
    Slt,
    /// Signed less or equal.
    Sle,
    /// Signed greater.
    Sgt,
    /// Signed greater or equal.
    Sge,
    /// Any common bit set.
    Set,
}

/// The distance of an access from its base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offset {
    /// Bytes, in memory whose layout is ours or the ABI's: context, stack, map value, record.
    Bytes(i16),
    /// A relocation, in a kernel struct.
    Reloc(Reloc),
}

/// The helpers that generated code calls (`include/uapi/linux/bpf.h`, `___BPF_FUNC_MAPPER`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Helper {
    /// `map_lookup_elem(map, key)`.
    MapLookupElem,
    /// `map_update_elem(map, key, value, flags)`.
    MapUpdateElem,
    /// `map_delete_elem(map, key)`.
    MapDeleteElem,
    /// `ktime_get_ns()`.
    KtimeGetNs,
    /// `get_smp_processor_id()`.
    GetSmpProcessorId,
    /// `get_current_pid_tgid()`.
    GetCurrentPidTgid,
    /// `get_current_uid_gid()`.
    GetCurrentUidGid,
    /// `get_current_comm(buf, size)`.
    GetCurrentComm,
    /// `get_current_task()`.
    GetCurrentTask,
    /// `get_current_task_btf()` (5.11).
    GetCurrentTaskBtf,
    /// `get_current_cgroup_id()`.
    GetCurrentCgroupId,
    /// `current_task_under_cgroup(map, index)`.
    CurrentTaskUnderCgroup,
    /// `get_stackid(ctx, map, flags)`.
    GetStackid,
    /// `get_stack(ctx, buf, size, flags)`.
    GetStack,
    /// `probe_read_user(dst, size, src)`.
    ProbeReadUser,
    /// `probe_read_kernel(dst, size, src)`.
    ProbeReadKernel,
    /// `probe_read_user_str(dst, size, src)`.
    ProbeReadUserStr,
    /// `probe_read_kernel_str(dst, size, src)`.
    ProbeReadKernelStr,
    /// `ringbuf_reserve(map, size, flags)`.
    RingbufReserve,
    /// `ringbuf_submit(record, flags)`.
    RingbufSubmit,
    /// `ringbuf_discard(record, flags)`.
    RingbufDiscard,
    /// `ringbuf_query(map, flags)`.
    RingbufQuery,
    /// `get_func_ip(ctx)` (5.15).
    GetFuncIp,
    /// `get_attach_cookie(ctx)` (5.15).
    GetAttachCookie,
    /// `get_func_arg(ctx, n, value)` (5.17).
    GetFuncArg,
    /// `get_func_ret(ctx, value)` (5.17).
    GetFuncRet,
    /// The kernel function `bpf_session_is_return(ctx)` (6.10 for kprobes, 7.2 for trampolines).
    SessionIsReturn,
    /// The kernel function `bpf_session_cookie(ctx)`: eight bytes of the call's own.
    SessionCookie,
}

/// An instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstData {
    /// The program's context; only as the first instruction of the first block.
    Ctx,
    /// A constant.
    Iconst(i64),
    /// Arithmetic. On a pointer only `add` and `sub` with [`Bits::W64`]; the result points into the same memory.
    Binary {
        /// The operation.
        op: BinaryOp,
        /// On how many bits.
        bits: Bits,
        /// Left operand.
        lhs: Value,
        /// Right operand.
        rhs: Operand,
    },
    /// Negation.
    Neg {
        /// On how many bits.
        bits: Bits,
        /// What is negated.
        src: Value,
    },
    /// The low bytes, extended to 64 bits. Never [`Width::B8`].
    Extend {
        /// How many bytes count.
        from: Width,
        /// By the sign, else by zeroes.
        signed: bool,
        /// What is extended.
        src: Value,
    },
    /// The low bytes in the other byte order, zero-extended. Never [`Width::B1`].
    Bswap {
        /// How many bytes.
        width: Width,
        /// What is swapped.
        src: Value,
    },
    /// A plain load, zero-extended; from [`Space::Ctx`], `Stack`, `MapValue`, `Record` at a byte offset, from `Btf`
    /// at a relocated one; so too from a copy of a kernel struct on the `Stack`. What comes out is `ty`.
    Load {
        /// What the loaded value is: a number, or a pointer that the kernel's verifier is to know.
        ty: Type,
        /// Size of the access.
        width: Width,
        /// The address.
        base: Value,
        /// The distance.
        offset: Offset,
    },
    /// A plain store to `Stack`, `MapValue` or `Record`.
    Store {
        /// Size of the access.
        width: Width,
        /// The address.
        base: Value,
        /// The distance.
        offset: i16,
        /// What is stored.
        value: Operand,
    },
    /// Adds to memory in one step that nothing can come between; [`Width::B4`] or `B8` of `MapValue` or `Record`. Every kernel
    /// has it (`BPF_XADD`, later `BPF_ATOMIC | BPF_ADD` with the same encoding).
    AtomicAdd {
        /// Size of the access.
        width: Width,
        /// The address.
        base: Value,
        /// The distance, a multiple of the width.
        offset: i16,
        /// What is added.
        value: Value,
    },
    /// The address of a field: a pointer plus a relocated distance, into the same memory as the base (a `Btf` base
    /// gives `Kernel`: its verifier type is that of the outer struct).
    FieldAddr {
        /// Address of the struct.
        base: Value,
        /// The distance.
        reloc: Reloc,
    },
    /// A relocated constant: a size, an enum value, whether something exists.
    RelocConst(Reloc),
    /// A shift by a relocated number of bits (bitfields). `op` is `Shl`, `Lshr` or `Ashr`, on 64 bits.
    RelocShift {
        /// The shift.
        op: BinaryOp,
        /// What is shifted.
        src: Value,
        /// The number of bits.
        reloc: Reloc,
    },
    /// The address of a stack slot.
    SlotAddr(Slot),
    /// A map.
    MapAddr(MapRef),
    /// A helper call; numbers and pointers go to R1 to R5 in order. Its result is [`Helper`]'s.
    Call {
        /// Which helper.
        helper: Helper,
        /// At most five.
        args: Vec<Operand>,
    },
    /// The same bits seen as something else: a number as a kernel or user address, a typed pointer as an untyped one,
    /// a number again; `RecordOrNull` as `Record` and `MapValueOrNull` as `MapValue` only where a branch on
    /// "not 0" of that value dominates.
    Cast {
        /// What it is from here on.
        ty: Type,
        /// The value.
        src: Value,
    },
}

/// A jump and the values for its target's parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockCall {
    /// Where to. Always later in the layout than the jump: there are no loops.
    pub block: Block,
    /// One for each parameter.
    pub args: Vec<Value>,
}

/// How a block ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Terminator {
    /// Go on there.
    Jump(BlockCall),
    /// Compare and go to one of two.
    Branch {
        /// The comparison.
        op: CmpOp,
        /// On how many bits.
        bits: Bits,
        /// Its left side.
        lhs: Value,
        /// Its right side.
        rhs: Operand,
        /// If it holds.
        then: BlockCall,
        /// If not.
        otherwise: BlockCall,
    },
    /// The end of the program, with this in R0.
    Return(i32),
}
