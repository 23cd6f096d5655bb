//! Reads the text that [`super::print`] writes. In: any text. Out: a function, or the first line that is wrong. Total: never
//! panics, and a short text can't ask for much memory. Comments are dropped. Whether the function keeps the IR's
//! rules is for [`super::verify`] to say.

use std::fmt;

use cranelift_entity::{EntityRef, PrimaryMap};
use nom::branch::alt;
use nom::bytes::complete::{tag, take_while, take_while1};
use nom::character::complete::{char, digit1, one_of};
use nom::combinator::{all_consuming, map_opt, opt, recognize};
use nom::multi::{many0, separated_list0};
use nom::sequence::{delimited, pair, preceded, terminated};
use nom::{IResult, Parser};

use super::inst::{Bits, BlockCall, Helper, InstData, Offset, Operand, Terminator, Type};
use super::print::{all, binary_name, cmp_name, map_kind, reloc_kind, type_name, width_name};
use super::{Block, BlockData, Func, Inst, MapData, MapRef, Reloc, RelocData, Slot, SlotData, Value};
use crate::types::TypeId;

/// Where the text is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

impl std::error::Error for ParseError {}

/// Numbers of blocks and values end here, so that a short text can't ask for much memory.
const NUMBER_MAX: usize = 1 << 16;

/// Reads one function.
pub fn parse(text: &str) -> Result<Func, ParseError> {
    let mut reader = Reader {
        func: Func::new(String::new(), String::new()),
        state: State::Before,
        current: None,
        placed: cranelift_entity::SecondaryMap::new(),
        defined: cranelift_entity::SecondaryMap::new(),
    };
    let mut last = 0;
    for (index, line) in text.lines().enumerate() {
        last = index + 1;
        let wrong = |reason: String| ParseError { line: last, reason };
        let content = strip_comment(line).trim();
        if !content.is_empty() {
            reader.line(content).map_err(wrong)?;
        }
    }
    if reader.state != State::After {
        return Err(ParseError {
            line: last,
            reason: "the text ends before the function does".to_string(),
        });
    }
    Ok(reader.func)
}

/// Cuts the comment off, which begins with a semicolon outside of a string.
fn strip_comment(line: &str) -> &str {
    let mut in_string = false;
    let mut escaped = false;
    for (at, c) in line.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if in_string => escaped = true,
            '"' => in_string = !in_string,
            ';' if !in_string => return &line[..at],
            _ => {}
        }
    }
    line
}

#[derive(PartialEq, Eq)]
enum State {
    Before,
    Inside,
    After,
}

struct Reader {
    func: Func,
    state: State,
    current: Option<Block>,
    /// Blocks that are in the layout.
    placed: cranelift_entity::SecondaryMap<Block, bool>,
    /// Values that have been defined: their types are known.
    defined: cranelift_entity::SecondaryMap<Value, bool>,
}

/// One line inside a function.
enum Line {
    Slot(usize, SlotData),
    Reloc(usize, RelocData),
    Map(usize, MapData),
    Block(Block, Vec<(Value, Type)>),
    Inst(Option<(Value, Option<Type>)>, InstData),
    End(Terminator),
    Close,
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<(), String> {
        match self.state {
            State::After => Err("something follows the function".to_string()),
            State::Before => {
                let header = (
                    preceded(word("func"), quoted),
                    preceded(word("section"), quoted),
                    symbol('{'),
                );
                let (name, section, _) = complete(header, line)?;
                (self.func.name, self.func.section) = (name, section);
                self.state = State::Inside;
                Ok(())
            }
            State::Inside => self.add(complete(item, line)?),
        }
    }

    fn add(&mut self, line: Line) -> Result<(), String> {
        match line {
            Line::Slot(number, data) => next(&mut self.func.slots, number, data),
            Line::Reloc(number, data) => next(&mut self.func.relocs, number, data),
            Line::Map(number, data) => next(&mut self.func.maps, number, data),
            Line::Block(block, params) => {
                while self.func.blocks.len() <= block.index() {
                    self.func.blocks.push(BlockData::default());
                }
                if std::mem::replace(&mut self.placed[block], true) {
                    return Err(format!("{block} is here twice"));
                }
                self.func.layout.push(block);
                for (param, ty) in &params {
                    self.define(*param, *ty);
                }
                self.func.blocks[block].params = params.into_iter().map(|(param, _)| param).collect();
                self.current = Some(block);
                Ok(())
            }
            Line::Inst(result, data) => {
                let block = self.open()?;
                let inferred = data.result_type(|value| match self.defined[value] {
                    true => self.func.values[value],
                    false => Type::Int,
                });
                let inst: Inst = self.func.insts.push(data);
                if let Some((value, ty)) = result {
                    self.define(value, ty.or(inferred).unwrap_or(Type::Int));
                    self.func.results[inst] = Some(value);
                }
                self.func.blocks[block].insts.push(inst);
                Ok(())
            }
            Line::End(end) => {
                let block = self.open()?;
                self.func.blocks[block].end = Some(end);
                Ok(())
            }
            Line::Close => {
                self.state = State::After;
                Ok(())
            }
        }
    }

    /// The current block, which must not have ended.
    fn open(&self) -> Result<Block, String> {
        let block = self.current.ok_or("this stands in no block")?;
        match self.func.blocks[block].end {
            None => Ok(block),
            Some(_) => Err(format!("{block} has already ended")),
        }
    }

    fn define(&mut self, value: Value, ty: Type) {
        while self.func.values.len() <= value.index() {
            self.func.values.push(Type::Int);
        }
        self.func.values[value] = ty;
        self.defined[value] = true;
    }
}

/// Slots, relocations and maps are numbered in order.
fn next<E: EntityRef + fmt::Display, T>(
    list: &mut PrimaryMap<E, T>,
    number: usize,
    data: T,
) -> Result<(), String> {
    if list.next_key().index() != number {
        return Err(format!("{} should come here", list.next_key()));
    }
    list.push(data);
    Ok(())
}

type Text<'a> = &'a str;

fn complete<'a, T>(
    parser: impl Parser<Text<'a>, Output = T, Error = nom::error::Error<Text<'a>>>,
    line: Text<'a>,
) -> Result<T, String> {
    match all_consuming(parser).parse(line) {
        Ok((_, value)) => Ok(value),
        Err(nom::Err::Error(error) | nom::Err::Failure(error)) if error.input.is_empty() => {
            Err("the line ends too early".to_string())
        }
        Err(nom::Err::Error(error) | nom::Err::Failure(error)) => {
            let rest: String = error.input.chars().take(32).collect();
            Err(format!("not understood: `{rest}`"))
        }
        Err(nom::Err::Incomplete(_)) => Err("the line ends too early".to_string()),
    }
}

fn item(input: Text<'_>) -> IResult<Text<'_>, Line> {
    alt((close, block, slot, reloc, map, end, inst)).parse(input)
}

fn close(input: Text<'_>) -> IResult<Text<'_>, Line> {
    symbol('}').map(|_| Line::Close).parse(input)
}

fn slot(input: Text<'_>) -> IResult<Text<'_>, Line> {
    let (input, number) = terminated(numbered("slot"), symbol('=')).parse(input)?;
    let (input, size) = preceded(word("bytes"), number_u32).parse(input)?;
    Ok((input, Line::Slot(number, SlotData { size })))
}

fn reloc(input: Text<'_>) -> IResult<Text<'_>, Line> {
    let (input, number) = terminated(numbered("reloc"), symbol('=')).parse(input)?;
    let (input, kind) = named(&all::RELOCS, reloc_kind).parse(input)?;
    let (input, module) = map_opt(number_u32, |module| u16::try_from(module).ok()).parse(input)?;
    let (input, id) = preceded(symbol(':'), number_u32).parse(input)?;
    let access = separated_list0(symbol(','), number_u32);
    let (input, access) = delimited(symbol('['), access, symbol(']')).parse(input)?;
    let (input, text) = quoted(input)?;
    let (input, kernel) = preceded(word("kernel"), parsed(digit1)).parse(input)?;
    let data = RelocData {
        kind,
        root: TypeId { module, id },
        access,
        text,
        kernel,
    };
    Ok((input, Line::Reloc(number, data)))
}

fn map(input: Text<'_>) -> IResult<Text<'_>, Line> {
    let (input, number) = terminated(numbered("map"), symbol('=')).parse(input)?;
    let (input, kind) = named(&all::MAPS, map_kind).parse(input)?;
    let (input, name) = quoted(input)?;
    let (input, key_size) = preceded(word("key"), number_u32).parse(input)?;
    let (input, value_size) = preceded(word("value"), number_u32).parse(input)?;
    let (input, max_entries) = preceded(word("entries"), number_u32).parse(input)?;
    let data = MapData {
        name,
        kind,
        key_size,
        value_size,
        max_entries,
    };
    Ok((input, Line::Map(number, data)))
}

fn block(input: Text<'_>) -> IResult<Text<'_>, Line> {
    let (input, block) = block_name(input)?;
    let param = pair(terminated(value, symbol(':')), ty);
    let list = delimited(symbol('('), separated_list0(symbol(','), param), symbol(')'));
    let (input, params) = opt(list).parse(input)?;
    let (input, _) = symbol(':').parse(input)?;
    Ok((input, Line::Block(block, params.unwrap_or_default())))
}

fn end(input: Text<'_>) -> IResult<Text<'_>, Line> {
    let jump = preceded(word("jump"), block_call).map(Terminator::Jump);
    let ret = preceded(word("return"), parsed(signed)).map(Terminator::Return);
    alt((jump, ret, branch)).map(Line::End).parse(input)
}

fn branch(input: Text<'_>) -> IResult<Text<'_>, Terminator> {
    let (input, op) = preceded(tag("branch."), named(&all::CMP, cmp_name)).parse(input)?;
    let (input, bits) = bits(input)?;
    let (input, lhs) = terminated(value, symbol(',')).parse(input)?;
    let (input, rhs) = terminated(operand, symbol(',')).parse(input)?;
    let (input, then) = terminated(block_call, symbol(',')).parse(input)?;
    let (input, otherwise) = block_call(input)?;
    let end = Terminator::Branch {
        op,
        bits,
        lhs,
        rhs,
        then,
        otherwise,
    };
    Ok((input, end))
}

fn inst(input: Text<'_>) -> IResult<Text<'_>, Line> {
    let result = (value, opt(preceded(symbol(':'), ty)), symbol('='));
    let (input, result) = opt(result.map(|(value, ty, _)| (value, ty))).parse(input)?;
    let (input, data) = alt((simple, memory, binary)).parse(input)?;
    Ok((input, Line::Inst(result, data)))
}

fn simple(input: Text<'_>) -> IResult<Text<'_>, InstData> {
    alt((
        word("ctx").map(|_| InstData::Ctx),
        preceded(word("iconst"), parsed(signed)).map(InstData::Iconst),
        preceded(word("slot_addr"), numbered("slot")).map(|slot| InstData::SlotAddr(Slot::new(slot))),
        preceded(word("map_addr"), numbered("map")).map(|map| InstData::MapAddr(MapRef::new(map))),
        preceded(word("reloc_const"), reloc_name).map(InstData::RelocConst),
        call,
        cast,
    ))
    .parse(input)
}

fn memory(input: Text<'_>) -> IResult<Text<'_>, InstData> {
    alt((load, store, atomic_add, field_addr)).parse(input)
}

fn binary(input: Text<'_>) -> IResult<Text<'_>, InstData> {
    alt((two_operands, reloc_shift, neg, extend, bswap)).parse(input)
}

fn two_operands(input: Text<'_>) -> IResult<Text<'_>, InstData> {
    let (input, op) = named(&all::BINARY, binary_name).parse(input)?;
    let (input, bits) = bits(input)?;
    let (input, lhs) = terminated(value, symbol(',')).parse(input)?;
    let (input, rhs) = operand(input)?;
    Ok((input, InstData::Binary { op, bits, lhs, rhs }))
}

fn reloc_shift(input: Text<'_>) -> IResult<Text<'_>, InstData> {
    let (input, op) = preceded(tag("reloc_shift."), named(&all::BINARY, binary_name)).parse(input)?;
    let (input, src) = terminated(value, symbol(',')).parse(input)?;
    let (input, reloc) = reloc_name(input)?;
    Ok((input, InstData::RelocShift { op, src, reloc }))
}

fn neg(input: Text<'_>) -> IResult<Text<'_>, InstData> {
    let mut names = alt((word("neg").map(|_| Bits::W64), word("neg.w32").map(|_| Bits::W32)));
    let (input, bits) = names.parse(input)?;
    let (input, src) = value(input)?;
    Ok((input, InstData::Neg { bits, src }))
}

fn extend(input: Text<'_>) -> IResult<Text<'_>, InstData> {
    let (input, signed) = alt((tag("sext.").map(|_| true), tag("zext.").map(|_| false))).parse(input)?;
    let (input, from) = named(&all::WIDTHS, width_name).parse(input)?;
    let (input, src) = value(input)?;
    Ok((input, InstData::Extend { from, signed, src }))
}

fn bswap(input: Text<'_>) -> IResult<Text<'_>, InstData> {
    let (input, width) = preceded(tag("bswap."), named(&all::WIDTHS, width_name)).parse(input)?;
    let (input, src) = value(input)?;
    Ok((input, InstData::Bswap { width, src }))
}

fn load(input: Text<'_>) -> IResult<Text<'_>, InstData> {
    let (input, width) = preceded(tag("load."), named(&all::WIDTHS, width_name)).parse(input)?;
    let (input, ty) = opt(preceded(char('.'), ty)).parse(input)?;
    let (input, base) = value(input)?;
    let relocated = preceded(symbol('+'), reloc_name).map(Offset::Reloc);
    let (input, offset) = alt((relocated, distance.map(Offset::Bytes))).parse(input)?;
    let data = InstData::Load {
        ty: ty.unwrap_or(Type::Int),
        width,
        base,
        offset,
    };
    Ok((input, data))
}

fn store(input: Text<'_>) -> IResult<Text<'_>, InstData> {
    let (input, width) = preceded(tag("store."), named(&all::WIDTHS, width_name)).parse(input)?;
    let (input, (base, offset)) = terminated(pair(value, distance), symbol(',')).parse(input)?;
    let (input, value) = operand(input)?;
    let data = InstData::Store {
        width,
        base,
        offset,
        value,
    };
    Ok((input, data))
}

fn atomic_add(input: Text<'_>) -> IResult<Text<'_>, InstData> {
    let (input, width) = preceded(tag("atomic_add."), named(&all::WIDTHS, width_name)).parse(input)?;
    let (input, (base, offset)) = terminated(pair(value, distance), symbol(',')).parse(input)?;
    let (input, value) = value(input)?;
    let data = InstData::AtomicAdd {
        width,
        base,
        offset,
        value,
    };
    Ok((input, data))
}

fn field_addr(input: Text<'_>) -> IResult<Text<'_>, InstData> {
    let (input, base) = preceded(word("field_addr"), value).parse(input)?;
    let (input, reloc) = preceded(symbol('+'), reloc_name).parse(input)?;
    Ok((input, InstData::FieldAddr { base, reloc }))
}

fn call(input: Text<'_>) -> IResult<Text<'_>, InstData> {
    let (input, helper) = preceded(word("call"), named(&Helper::ALL, Helper::name)).parse(input)?;
    let args = separated_list0(symbol(','), operand);
    let (input, args) = delimited(symbol('('), args, symbol(')')).parse(input)?;
    Ok((input, InstData::Call { helper, args }))
}

fn cast(input: Text<'_>) -> IResult<Text<'_>, InstData> {
    let (input, ty) = preceded(tag("cast."), ty).parse(input)?;
    let (input, src) = value(input)?;
    Ok((input, InstData::Cast { ty, src }))
}

fn block_call(input: Text<'_>) -> IResult<Text<'_>, BlockCall> {
    let (input, block) = block_name(input)?;
    let list = delimited(symbol('('), separated_list0(symbol(','), value), symbol(')'));
    let (input, args) = opt(list).parse(input)?;
    let args = args.unwrap_or_default();
    Ok((input, BlockCall { block, args }))
}

fn bits(input: Text<'_>) -> IResult<Text<'_>, Bits> {
    let (input, narrow) = opt(word(".w32")).parse(input)?;
    let bits = if narrow.is_some() { Bits::W32 } else { Bits::W64 };
    Ok((input, bits))
}

fn operand(input: Text<'_>) -> IResult<Text<'_>, Operand> {
    alt((value.map(Operand::Value), parsed(signed).map(Operand::Imm))).parse(input)
}

fn value(input: Text<'_>) -> IResult<Text<'_>, Value> {
    numbered("v").map(Value::new).parse(input)
}

fn block_name(input: Text<'_>) -> IResult<Text<'_>, Block> {
    numbered("block").map(Block::new).parse(input)
}

fn reloc_name(input: Text<'_>) -> IResult<Text<'_>, Reloc> {
    numbered("reloc").map(Reloc::new).parse(input)
}

fn ty(input: Text<'_>) -> IResult<Text<'_>, Type> {
    named(&all::TYPES, type_name).parse(input)
}

/// A distance with its sign.
fn distance(input: Text<'_>) -> IResult<Text<'_>, i16> {
    let number = recognize(pair(one_of("+-"), digit1));
    parsed(number).parse(input)
}

fn signed(input: Text<'_>) -> IResult<Text<'_>, Text<'_>> {
    recognize(pair(opt(char('-')), digit1)).parse(input)
}

fn number_u32(input: Text<'_>) -> IResult<Text<'_>, u32> {
    parsed(digit1).parse(input)
}

/// Whitespace after anything.
fn space(input: Text<'_>) -> IResult<Text<'_>, Text<'_>> {
    take_while(|c: char| c == ' ' || c == '\t').parse(input)
}

fn symbol<'a>(c: char) -> impl Parser<Text<'a>, Output = char, Error = nom::error::Error<Text<'a>>> {
    terminated(char(c), space)
}

/// A number, if it fits.
fn parsed<'a, T: std::str::FromStr>(
    digits: impl Parser<Text<'a>, Output = Text<'a>, Error = nom::error::Error<Text<'a>>>,
) -> impl Parser<Text<'a>, Output = T, Error = nom::error::Error<Text<'a>>> {
    terminated(map_opt(digits, |digits: &str| digits.parse().ok()), space)
}

/// A whole word.
fn word<'a>(
    expected: &'static str,
) -> impl Parser<Text<'a>, Output = Text<'a>, Error = nom::error::Error<Text<'a>>> {
    terminated(
        map_opt(
            take_while1(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.'),
            move |word: &str| (word == expected).then_some(word),
        ),
        space,
    )
}

/// The prefix of an entity and its number.
fn numbered<'a>(
    prefix: &'static str,
) -> impl Parser<Text<'a>, Output = usize, Error = nom::error::Error<Text<'a>>> {
    // Only the canonical spelling, so that the text of an entity is its name.
    let number = map_opt(digit1, |digits: &str| {
        let number: usize = digits.parse().ok()?;
        (number < NUMBER_MAX && (digits == "0" || !digits.starts_with('0'))).then_some(number)
    });
    terminated(preceded(tag(prefix), number), space)
}

/// One of a list of things by its name.
fn named<'a, T: Copy>(
    list: &'static [T],
    name: impl Fn(T) -> &'static str,
) -> impl Parser<Text<'a>, Output = T, Error = nom::error::Error<Text<'a>>> {
    let word = take_while1(|c: char| c.is_ascii_alphanumeric() || c == '_');
    terminated(
        map_opt(word, move |word: &str| {
            list.iter().copied().find(|thing| name(*thing) == word)
        }),
        space,
    )
}

/// A string in quotes.
fn quoted(input: Text<'_>) -> IResult<Text<'_>, String> {
    let plain = take_while1(|c: char| c != '"' && c != '\\').map(ToString::to_string);
    let escaped = preceded(char('\\'), one_of("\"\\")).map(String::from);
    let digits = take_while1(|c: char| c.is_ascii_hexdigit());
    let code = delimited(tag("\\u{"), digits, char('}'));
    let code = map_opt(code, |digits: &str| {
        let code = u32::from_str_radix(digits, 16).ok()?;
        char::from_u32(code).map(String::from)
    });
    let text = many0(alt((plain, code, escaped))).map(|parts| parts.concat());
    terminated(delimited(char('"'), text, char('"')), space).parse(input)
}
