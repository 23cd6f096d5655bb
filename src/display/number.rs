//! Numbers and short memory as leaves: what type and format make of them. Part of the walk. In: bits and a shape. Out:
//! one leaf told to the sink. Never descends into a type.

use crate::wire::Format;

use super::bytes::{c_string, sign_extend};
use super::escape;
use super::leaf::err_ptr;
use super::shape::{Enum, Hint, Shape, ShapeKind};
use super::sink::{Leaf, Sink, Tail};
use super::walk::{Place, Walker};
use super::{Place as Location, Symbol};

impl<'w, S: Sink> Walker<'w, '_, S> {
    /// Shows memory as a whole if the format says so.
    pub(super) fn formatted_bytes(&mut self, cast: Option<&str>, bytes: &[u8], full: u32) -> bool {
        let tail = if bytes.len() < full as usize {
            Tail::Of(full)
        } else {
            Tail::Whole
        };
        let leaf = match self.format {
            Some(Format::String) => {
                let shown = c_string(bytes);
                let ends = shown.len() < bytes.len() || tail == Tail::Whole;
                self.text(shown, if ends { shown.len() as u32 } else { full }, false)
            }
            Some(Format::Dump) => Leaf::Dump(bytes, tail),
            Some(Format::Ip) => match (<[u8; 4]>::try_from(bytes), <[u8; 16]>::try_from(bytes)) {
                (Ok(four), _) => Leaf::Ip4(four),
                (_, Ok(sixteen)) => Leaf::Ip6(sixteen),
                (Err(_), Err(_)) => return false,
            },
            Some(Format::Mac) => match bytes.first_chunk::<6>() {
                Some(six) => Leaf::Mac(*six),
                None => return false,
            },
            Some(
                Format::Signed
                | Format::Unsigned
                | Format::Hex
                | Format::Octal
                | Format::Binary
                | Format::Char
                | Format::Symbol
                | Format::Errno
                | Format::BigEndian,
            )
            | None => return false,
        };
        self.sink.leaf(cast, leaf);
        true
    }

    /// Whether the format is one for numbers, so that characters are shown as such.
    pub(super) fn wants_numbers(&self) -> bool {
        match self.format {
            Some(
                Format::Signed
                | Format::Unsigned
                | Format::Hex
                | Format::Octal
                | Format::Binary
                | Format::BigEndian,
            ) => true,
            Some(
                Format::Char
                | Format::String
                | Format::Ip
                | Format::Mac
                | Format::Symbol
                | Format::Errno
                | Format::Dump,
            )
            | None => false,
        }
    }

    /// A string of `full` bytes, the first of which are `bytes`; `filled` if there may be more of it, as reading ended there.
    pub(super) fn text<'x>(&self, bytes: &'x [u8], full: u32, filled: bool) -> Leaf<'x> {
        let shown = escape::cut_at(bytes, self.options.max_string as usize);
        let tail = if filled {
            // How long the string is nobody has seen.
            Tail::Maybe
        } else if shown < full as usize {
            Tail::Of(full)
        } else {
            Tail::Whole
        };
        Leaf::Text(bytes.get(..shown).unwrap_or(bytes), tail)
    }

    /// Shows a number of `width` bits, the others of which are zero.
    pub(super) fn number(&mut self, shape: &Shape, raw: u128, width: u32, place: Place) {
        let cast = place.cast(shape);
        if self.formatted_number(cast, shape, raw, width, place) {
            return;
        }
        let address = raw as u64;
        let leaf = match &shape.kind {
            ShapeKind::Int { signed: true } => Leaf::Signed(sign_extend(raw, width)),
            ShapeKind::Int { signed: false } => match if shape.hint == Hint::None {
                place.hint
            } else {
                shape.hint
            } {
                Hint::Hex => Leaf::Hex(raw),
                Hint::Octal => Leaf::Octal(raw),
                Hint::Word if width == 64 && address < IMAGE => Leaf::Hex(raw),
                // Return addresses and the like are kept as numbers.
                Hint::None | Hint::Word if width == 64 && address >= IMAGE && err_ptr(address).is_none() => {
                    self.in_image(address, Leaf::Hex(raw))
                }
                Hint::None | Hint::Word if width == 64 && raw >= KERNEL => Leaf::Hex(raw),
                Hint::None | Hint::Word => Leaf::Unsigned(raw),
            },
            ShapeKind::Bool => Leaf::Bool(raw != 0),
            ShapeKind::Char { signed } => {
                let value = if *signed {
                    sign_extend(raw, width)
                } else {
                    raw as i128
                };
                // A bitfield of a character type is a number.
                if width == 8 {
                    Leaf::Byte(value)
                } else {
                    Leaf::Signed(value)
                }
            }
            ShapeKind::Float => match width {
                32 => Leaf::Float(f32::from_bits(raw as u32)),
                64 => Leaf::Double(f64::from_bits(raw as u64)),
                _ => Leaf::Hex(raw),
            },
            ShapeKind::Enum(e) => enum_leaf(e, raw, width),
            ShapeKind::Pointer { function } => match (address, err_ptr(address)) {
                (0, _) => Leaf::Null,
                (_, Some(number)) => Leaf::ErrPtr(number),
                (_, None) if *function => Leaf::Symbol(address, self.symbol(address)),
                (_, None) if address >= IMAGE => self.in_image(address, Leaf::Pointer(address)),
                (_, None) => Leaf::Pointer(address),
            },
            ShapeKind::Void | ShapeKind::Opaque | ShapeKind::Composite { .. } | ShapeKind::Array { .. } => {
                Leaf::Hex(raw)
            }
        };
        self.sink.leaf(cast, leaf);
    }

    /// The symbol at an address, of the kernel or of the record's process.
    fn symbol<'x>(&self, address: u64) -> Option<Symbol<'x>>
    where
        'w: 'x,
    {
        let symbols = self.symbols;
        match self.pid {
            Some(pid) if (1..USER_END).contains(&address) => match symbols.resolve_user(pid, address) {
                Location::Symbol(symbol) => Some(symbol),
                Location::Mapped { .. } | Location::Unknown | Location::Gone => None,
            },
            Some(_) | None => symbols.resolve(address),
        }
    }

    /// An address of the kernel's image, where symbols are; `otherwise` if none is near.
    fn in_image<'x>(&self, address: u64, otherwise: Leaf<'x>) -> Leaf<'x>
    where
        'w: 'x,
    {
        match self.symbols.resolve(address) {
            Some(symbol) if symbol.offset < SYMBOL_REACH => Leaf::Located(address, symbol),
            Some(_) | None => otherwise,
        }
    }

    /// Shows a number in the item's format, if it has one that fits.
    fn formatted_number(
        &mut self,
        cast: Option<&str>,
        shape: &Shape,
        raw: u128,
        width: u32,
        place: Place,
    ) -> bool {
        let Some(format) = self.format else {
            return false;
        };
        let is_pointer = matches!(shape.kind, ShapeKind::Pointer { .. });
        // A format for the numbers of a struct is not meant for its pointers, and none fits what is not whole.
        if matches!(shape.kind, ShapeKind::Float)
            || (is_pointer && place.depth > 0 && format != Format::Symbol)
        {
            return false;
        }
        let memory = raw.to_le_bytes();
        let size = (width / 8) as usize;
        let whole = width.is_multiple_of(8);
        let leaf = match format {
            Format::Signed => Leaf::Signed(sign_extend(raw, width)),
            Format::Unsigned => Leaf::Unsigned(raw),
            Format::Hex => Leaf::Hex(raw),
            Format::Octal => Leaf::Octal(raw),
            Format::Binary => Leaf::Binary(raw),
            Format::Char => Leaf::Char(raw as u8),
            Format::Symbol => Leaf::Symbol(raw as u64, self.symbol(raw as u64)),
            Format::Errno => Leaf::Errno(sign_extend(raw, width)),
            Format::BigEndian if whole => {
                let swapped = memory
                    .iter()
                    .take(size)
                    .fold(0u128, |sum, byte| (sum << 8) | u128::from(*byte));
                if matches!(shape.kind, ShapeKind::Int { signed: true }) {
                    Leaf::Signed(sign_extend(swapped, width))
                } else {
                    Leaf::Unsigned(swapped)
                }
            }
            Format::String | Format::Ip | Format::Mac | Format::Dump if whole => {
                let bytes = memory.get(..size).unwrap_or(&memory);
                return self.formatted_bytes(cast, bytes, size as u32);
            }
            Format::BigEndian | Format::String | Format::Ip | Format::Mac | Format::Dump => return false,
        };
        self.sink.leaf(cast, leaf);
        true
    }
}

/// Addresses of processes lie below this on x86-64, with page tables of five levels (Documentation/arch/x86/x86_64/mm.rst).
const USER_END: u64 = 1 << 56;

/// From here on up there are only the kernel's image and its modules on x86-64: pointers to there have symbols.
const IMAGE: u64 = 0xffff_ffff_8000_0000;

/// Symbols whose nearest neighbour is farther away than this are of something else.
const SYMBOL_REACH: u64 = 1 << 16;

/// Unsigned numbers from here on up are kernel addresses, or all ones.
const KERNEL: u128 = 0xffff_8000_0000_0000;

fn enum_leaf(e: &Enum, raw: u128, width: u32) -> Leaf<'_> {
    let value = if e.signed {
        sign_extend(raw, width)
    } else {
        raw as i128
    };
    match e.name(value) {
        Some(name) => Leaf::Name(name),
        None if e.flags && raw != 0 => Leaf::Flags(e, raw),
        None => Leaf::Signed(value),
    }
}
