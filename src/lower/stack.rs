//! Call stacks, written where they are shown or compared. In: how many frames, and whose. Out: the frames' return addresses from
//! the innermost on, and how many bytes of them there are. A stack that can't be walked has none, which is no fault.

use super::program::Lower;
use crate::ir::{Bits, CmpOp, Helper, Operand, Type, Value, Width};
use crate::typed::Builtin;
use crate::wire::OWN_FRAMES;

/// `BPF_F_USER_STACK`, include/uapi/linux/bpf.h.
const USER_STACK: i32 = 1 << 8;

impl Lower<'_> {
    /// Writes a stack there, behind the process id if it is the user's; gives the bytes of its frames.
    pub(super) fn stack(&mut self, to: Value, depth: u32, user: bool) -> Value {
        let (to, frames, flags) = match user {
            true => {
                let process = self.builtin(Builtin::Pid);
                self.b.store(Width::B8, to, 0, process);
                (self.b.add(to, 8), depth, USER_STACK)
            }
            false => (to, depth + OWN_FRAMES, 0),
        };
        let ctx = self.ctx;
        let size = Operand::Imm(8 * frames as i32);
        let got = self.call(
            Helper::GetStack,
            &[ctx.into(), to.into(), size, Operand::Imm(flags)],
        );
        let (join, params) = self.b.block_with("", &[Type::Int]);
        let none = self.b.block("no stack");
        let some = self.b.block("");
        self.b.branch(CmpOp::Slt, Bits::W64, got, 0, none, some);
        self.b.switch_to(some);
        self.b.jump(join, &[got]);
        self.b.switch_to(none);
        let zero = self.b.iconst(0);
        self.b.jump(join, &[zero]);
        self.b.switch_to(join);
        params[0]
    }
}
