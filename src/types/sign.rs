//! Whether an enum is signed, where BTF doesn't say. The flag for it came with `BTF_KIND_ENUM64` (Linux 6.0, pahole 1.24,
//! clang 15, gcc 13); in what older tools wrote it is 0 for every enum, and constants are the low 32 bits of their values. In:
//! an object, an enum's constants. Out: a verdict. It never doubts an object that uses the flag.

use super::{Object, TypeId, Types};

/// The constants above this are taken for negative: they are as far from 0 as errors are (`MAX_ERRNO`, include/linux/err.h).
const NEGATIVE: u32 = 4095u32.wrapping_neg();

/// Whether an enum is likely to be signed, of an object that does not say it. C makes one signed if a constant of it is negative
/// (gcc and clang alike). A constant of 4 bytes with its top bit set may be a large positive one as well. Small
/// negative numbers (`-1` for "none", errors, priorities) are frequent in the kernel, masks of all bits are rare, and other
/// numbers with that bit are mostly flags, magic numbers and ends of ranges. Of the 44 enums of 4 bytes of 5.10 with such a
/// constant, 6 can be told apart only by their source: three masks and limits of `0xffffffff` are taken for -1, two enums
/// with `INT_MIN` for unsigned, and so is one with `1 << 31`. To compare with `==` is right for those, too.
pub(super) fn guess(size: u32, constants: impl Iterator<Item = u32>) -> bool {
    let mut high = constants.filter(|constant| *constant > i32::MAX as u32);
    match size {
        // Nothing positive that fits has that bit.
        0..=3 => high.next().is_some(),
        4 => high.any(|constant| constant >= NEGATIVE),
        // It takes 8 bytes because of a constant that does not fit into 32 bits, of which only the low ones are left.
        _ => false,
    }
}

impl Types {
    /// Whether the enums of an object say if they are signed. What made a module's BTF made the kernel's as well.
    pub(super) fn tells_signs(&self, module: u16) -> bool {
        let tells = |object: &Object| *object.signs.get_or_init(|| object.has_signs());
        let Some(object) = self.object(module) else {
            return false;
        };
        let program = TypeId { module, id: 1 }.is_program();
        tells(object) || (!program && self.objects.first().is_some_and(tells))
    }
}

impl Object {
    /// Whether anything in it was written by a tool that knows the flag. Asked at most once, and only when the answer
    /// matters: it may take a look at every type.
    fn has_signs(&self) -> bool {
        (self.first..self.end).any(|id| match self.btf.resolve_type_by_id(id) {
            Ok(btf_rs::Type::Enum64(_)) => true,
            Ok(btf_rs::Type::Enum(e)) => e.is_signed(),
            Ok(_) | Err(_) => false,
        })
    }
}
