//! What the IR knows about BPF helpers: number, name, what each argument is, what comes back. Plain tables; never
//! decides whether a kernel has a helper.

use super::inst::{Helper, Space, Type};

/// What a helper takes in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgKind {
    /// The program's context.
    Ctx,
    /// A map.
    Map,
    /// Memory of ours that is read: as many bytes as a key of the map has.
    Key,
    /// Memory of ours that is read: as many bytes as a value of the map has.
    MapValue,
    /// Memory of ours; the next argument says how many bytes.
    Memory,
    /// Memory of ours of eight bytes.
    Word,
    /// A number of bytes.
    Size,
    /// Any number.
    Number,
    /// A kernel address.
    Kernel,
    /// A user address.
    User,
    /// A reserved record, at its start.
    Record,
}

/// Where the place-holders of kernel functions begin.
const KFUNC_FROM: i32 = 0x6b66_0000;

impl Helper {
    /// All of them.
    pub const ALL: [Helper; 28] = [
        Helper::MapLookupElem,
        Helper::MapUpdateElem,
        Helper::MapDeleteElem,
        Helper::KtimeGetNs,
        Helper::GetSmpProcessorId,
        Helper::GetCurrentPidTgid,
        Helper::GetCurrentUidGid,
        Helper::GetCurrentComm,
        Helper::GetCurrentTask,
        Helper::GetCurrentTaskBtf,
        Helper::GetCurrentCgroupId,
        Helper::CurrentTaskUnderCgroup,
        Helper::GetStackid,
        Helper::GetStack,
        Helper::ProbeReadUser,
        Helper::ProbeReadKernel,
        Helper::ProbeReadUserStr,
        Helper::ProbeReadKernelStr,
        Helper::RingbufReserve,
        Helper::RingbufSubmit,
        Helper::RingbufDiscard,
        Helper::RingbufQuery,
        Helper::GetFuncIp,
        Helper::GetAttachCookie,
        Helper::GetFuncArg,
        Helper::GetFuncRet,
        Helper::SessionIsReturn,
        Helper::SessionCookie,
    ];

    /// The kernel function that it is, if it is not a helper proper. Such functions have no fixed number: an instruction
    /// holds [`Helper::number`] until the loader puts the function's BTF id there.
    pub fn kfunc(self) -> Option<&'static str> {
        match self {
            Helper::SessionIsReturn => Some("bpf_session_is_return"),
            Helper::SessionCookie => Some("bpf_session_cookie"),
            Helper::MapLookupElem
            | Helper::MapUpdateElem
            | Helper::MapDeleteElem
            | Helper::KtimeGetNs
            | Helper::GetSmpProcessorId
            | Helper::GetCurrentPidTgid
            | Helper::GetCurrentUidGid
            | Helper::GetCurrentComm
            | Helper::GetCurrentTask
            | Helper::GetCurrentTaskBtf
            | Helper::GetCurrentCgroupId
            | Helper::CurrentTaskUnderCgroup
            | Helper::GetStackid
            | Helper::GetStack
            | Helper::ProbeReadUser
            | Helper::ProbeReadKernel
            | Helper::ProbeReadUserStr
            | Helper::ProbeReadKernelStr
            | Helper::RingbufReserve
            | Helper::RingbufSubmit
            | Helper::RingbufDiscard
            | Helper::RingbufQuery
            | Helper::GetFuncIp
            | Helper::GetAttachCookie
            | Helper::GetFuncArg
            | Helper::GetFuncRet => None,
        }
    }

    /// Its number in `enum bpf_func_id`; for a kernel function a place-holder, which no helper has.
    pub fn number(self) -> i32 {
        match self {
            Helper::MapLookupElem => 1,
            Helper::MapUpdateElem => 2,
            Helper::MapDeleteElem => 3,
            Helper::KtimeGetNs => 5,
            Helper::GetSmpProcessorId => 8,
            Helper::GetCurrentPidTgid => 14,
            Helper::GetCurrentUidGid => 15,
            Helper::GetCurrentComm => 16,
            Helper::GetStackid => 27,
            Helper::GetCurrentTask => 35,
            Helper::CurrentTaskUnderCgroup => 37,
            Helper::GetStack => 67,
            Helper::GetCurrentCgroupId => 80,
            Helper::ProbeReadUser => 112,
            Helper::ProbeReadKernel => 113,
            Helper::ProbeReadUserStr => 114,
            Helper::ProbeReadKernelStr => 115,
            Helper::RingbufReserve => 131,
            Helper::RingbufSubmit => 132,
            Helper::RingbufDiscard => 133,
            Helper::RingbufQuery => 134,
            Helper::GetCurrentTaskBtf => 158,
            Helper::GetFuncIp => 173,
            Helper::GetAttachCookie => 174,
            Helper::GetFuncArg => 183,
            Helper::GetFuncRet => 184,
            Helper::SessionIsReturn => KFUNC_FROM,
            Helper::SessionCookie => KFUNC_FROM + 1,
        }
    }

    /// Its name without `bpf_`, which is also what the IR's text calls it.
    pub fn name(self) -> &'static str {
        match self {
            Helper::MapLookupElem => "map_lookup_elem",
            Helper::MapUpdateElem => "map_update_elem",
            Helper::MapDeleteElem => "map_delete_elem",
            Helper::KtimeGetNs => "ktime_get_ns",
            Helper::GetSmpProcessorId => "get_smp_processor_id",
            Helper::GetCurrentPidTgid => "get_current_pid_tgid",
            Helper::GetCurrentUidGid => "get_current_uid_gid",
            Helper::GetCurrentComm => "get_current_comm",
            Helper::GetCurrentTask => "get_current_task",
            Helper::GetCurrentTaskBtf => "get_current_task_btf",
            Helper::GetCurrentCgroupId => "get_current_cgroup_id",
            Helper::CurrentTaskUnderCgroup => "current_task_under_cgroup",
            Helper::GetStackid => "get_stackid",
            Helper::GetStack => "get_stack",
            Helper::ProbeReadUser => "probe_read_user",
            Helper::ProbeReadKernel => "probe_read_kernel",
            Helper::ProbeReadUserStr => "probe_read_user_str",
            Helper::ProbeReadKernelStr => "probe_read_kernel_str",
            Helper::RingbufReserve => "ringbuf_reserve",
            Helper::RingbufSubmit => "ringbuf_submit",
            Helper::RingbufDiscard => "ringbuf_discard",
            Helper::RingbufQuery => "ringbuf_query",
            Helper::GetFuncIp => "get_func_ip",
            Helper::GetAttachCookie => "get_attach_cookie",
            Helper::GetFuncArg => "get_func_arg",
            Helper::GetFuncRet => "get_func_ret",
            Helper::SessionIsReturn => "session_is_return",
            Helper::SessionCookie => "session_cookie",
        }
    }

    /// What its arguments are.
    pub fn params(self) -> &'static [ArgKind] {
        use ArgKind::{Ctx, Kernel, Key, Map, MapValue, Memory, Number, Record, Size, User, Word};
        match self {
            Helper::MapLookupElem | Helper::MapDeleteElem => &[Map, Key],
            Helper::MapUpdateElem => &[Map, Key, MapValue, Number],
            Helper::KtimeGetNs
            | Helper::GetSmpProcessorId
            | Helper::GetCurrentPidTgid
            | Helper::GetCurrentUidGid
            | Helper::GetCurrentTask
            | Helper::GetCurrentTaskBtf
            | Helper::GetCurrentCgroupId => &[],
            Helper::GetCurrentComm => &[Memory, Size],
            Helper::GetStackid => &[Ctx, Map, Number],
            Helper::GetStack => &[Ctx, Memory, Size, Number],
            Helper::ProbeReadUser | Helper::ProbeReadUserStr => &[Memory, Size, User],
            Helper::ProbeReadKernel | Helper::ProbeReadKernelStr => &[Memory, Size, Kernel],
            Helper::RingbufReserve => &[Map, Size, Number],
            Helper::RingbufSubmit | Helper::RingbufDiscard => &[Record, Number],
            Helper::RingbufQuery | Helper::CurrentTaskUnderCgroup => &[Map, Number],
            Helper::GetFuncIp | Helper::GetAttachCookie | Helper::SessionIsReturn | Helper::SessionCookie => {
                &[Ctx]
            }
            Helper::GetFuncArg => &[Ctx, Number, Word],
            Helper::GetFuncRet => &[Ctx, Word],
        }
    }

    /// What it gives back; `None` for nothing.
    pub fn result(self) -> Option<Type> {
        match self {
            Helper::MapLookupElem => Some(Type::Ptr(Space::MapValueOrNull)),
            Helper::RingbufReserve => Some(Type::Ptr(Space::RecordOrNull)),
            // As memory it is like a map's value: ours, to load and store plainly.
            Helper::SessionCookie => Some(Type::Ptr(Space::MapValue)),
            Helper::GetCurrentTask => Some(Type::Ptr(Space::Kernel)),
            Helper::GetCurrentTaskBtf => Some(Type::Ptr(Space::Btf)),
            Helper::RingbufSubmit | Helper::RingbufDiscard => None,
            Helper::MapUpdateElem
            | Helper::MapDeleteElem
            | Helper::KtimeGetNs
            | Helper::GetSmpProcessorId
            | Helper::GetCurrentPidTgid
            | Helper::GetCurrentUidGid
            | Helper::GetCurrentComm
            | Helper::GetCurrentCgroupId
            | Helper::CurrentTaskUnderCgroup
            | Helper::GetStackid
            | Helper::GetStack
            | Helper::ProbeReadUser
            | Helper::ProbeReadKernel
            | Helper::ProbeReadUserStr
            | Helper::ProbeReadKernelStr
            | Helper::RingbufQuery
            | Helper::GetFuncIp
            | Helper::GetAttachCookie
            | Helper::GetFuncArg
            | Helper::GetFuncRet
            | Helper::SessionIsReturn => Some(Type::Int),
        }
    }
}
