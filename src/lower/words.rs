//! Words that come from outside: of the context, from helpers, what the built-ins stand for. In: which is asked for. Out: its value,
//! asked for once where it can't change. It reads no memory of the kernel's.

use super::program::{Key, Lower};
use super::{ProgramKind, abi};
use crate::ir::{BinaryOp, Bits, Helper, Operand, Space, Type, Value, Width};
use crate::typed::Builtin;

impl Lower<'_> {
    /// A word of the context: of `struct pt_regs`, or a slot of a trampoline.
    pub(super) fn context_word(&mut self, ty: Type, offset: i16) -> Value {
        let ctx = self.ctx;
        match self.kind {
            // The verifier knows no prototype, so it lets nobody look; the helper counts words too, though it says arguments
            // (kernel/trace/bpf_trace.c, `bpf_get_func_arg`).
            ProgramKind::FentryMulti | ProgramKind::FexitMulti => {
                let slot = self.scratch();
                let to = self.b.slot_addr(slot);
                let number = Operand::Imm(i32::from(offset) / 8);
                self.call(Helper::GetFuncArg, &[ctx.into(), number, to.into()]);
                let to = self.b.slot_addr(slot);
                let word = self.b.load(Type::Int, Width::B8, to, 0);
                if ty == Type::Int {
                    word
                } else {
                    self.b.cast(ty, word)
                }
            }
            ProgramKind::Fentry
            | ProgramKind::Fexit
            | ProgramKind::TpBtf
            | ProgramKind::RawTp
            | ProgramKind::Kprobe
            | ProgramKind::Kretprobe
            | ProgramKind::Fsession
            | ProgramKind::FsessionMulti
            | ProgramKind::KprobeSession
            | ProgramKind::Uprobe
            | ProgramKind::Uretprobe
            | ProgramKind::UprobeSession => self.b.load(ty, Width::B8, ctx, offset),
        }
    }

    /// What a function returned, where the helper has to be asked.
    pub(super) fn result_word(&mut self) -> Value {
        let (ctx, slot) = (self.ctx, self.scratch());
        let to = self.b.slot_addr(slot);
        self.call(Helper::GetFuncRet, &[ctx.into(), to.into()]);
        let to = self.b.slot_addr(slot);
        self.b.load(Type::Int, Width::B8, to, 0)
    }

    /// Which of the functions it is that the program serves, from 0.
    pub(super) fn which(&mut self) -> Value {
        if let Some(value) = self.find(&Key::Which) {
            return value;
        }
        let ctx = self.ctx;
        let value = self.call(Helper::GetAttachCookie, &[ctx.into()]);
        self.learn(Key::Which, value);
        value
    }

    /// Which of the layout's names is that of what was hit.
    pub(super) fn number_of_name(&mut self) -> Operand {
        match self.id.shared {
            true => Operand::Value(self.which()),
            false => Operand::Imm(0),
        }
    }

    /// A word that a helper gives, asked for once.
    pub(super) fn word(&mut self, helper: Helper) -> Value {
        let key = Key::Word(helper);
        if let Some(value) = self.find(&key) {
            return value;
        }
        let value = self.call(helper, &[]);
        self.learn(key, value);
        value
    }

    pub(super) fn builtin(&mut self, builtin: Builtin) -> Value {
        match builtin {
            Builtin::Pid | Builtin::Gid => {
                let word = self.word(if let Builtin::Pid = builtin {
                    Helper::GetCurrentPidTgid
                } else {
                    Helper::GetCurrentUidGid
                });
                self.b.binary(BinaryOp::Lshr, Bits::W64, word, 32)
            }
            Builtin::Tid | Builtin::Uid => {
                let word = self.word(if let Builtin::Tid = builtin {
                    Helper::GetCurrentPidTgid
                } else {
                    Helper::GetCurrentUidGid
                });
                self.b.extend(Width::B4, false, word)
            }
            Builtin::Cpu => self.word(Helper::GetSmpProcessorId),
            Builtin::Ktime => self.word(Helper::KtimeGetNs),
            Builtin::Cgroup => self.word(Helper::GetCurrentCgroupId),
            Builtin::Task if self.target.current_task_btf => self.word(Helper::GetCurrentTaskBtf),
            Builtin::Task => self.word(Helper::GetCurrentTask),
            Builtin::Duration => self.duration(),
            Builtin::Register(register) => self.register(register),
            Builtin::Stack => {
                let ctx = self.ctx;
                let (at, space) = match self.query.probe.user() {
                    Some(probe) => (probe.arch.stack_pointer().offset, Space::User),
                    None => (abi::SP, Space::Kernel),
                };
                let sp = self.b.load(Type::Int, Width::B8, ctx, at);
                self.b.as_ptr(space, sp)
            }
        }
    }
}
