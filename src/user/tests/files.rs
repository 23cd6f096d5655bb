//! Files: where call sites, semaphores and functions are; and files that lie.

use object::elf;

use crate::user::recipe::{Address, Operand, Problem};
use crate::user::testing::{BASE, DATA, DATA_OFFSET, Made, TEXT, TEXT_OFFSET, sample};
use crate::user::{Arch, ElfError, Image, read};

fn image(made: &Made) -> Image {
    read(made.bytes().as_slice()).expect("a file")
}

#[test]
fn call_sites_have_offsets_semaphores_and_recipes() {
    let image = read(sample().as_slice()).expect("a file");
    assert_eq!(image.troubles, Vec::<String>::new());
    assert_eq!(image.probes.len(), 2);
    let (other, work) = (&image.probes[0], &image.probes[1]);
    assert_eq!((other.name.as_str(), other.sites.len()), ("other", 1));
    assert_eq!((work.provider.as_str(), work.sites.len()), ("demo", 2));
    assert_eq!(work.sites[0].offset, TEXT_OFFSET + 0x20);
    assert_eq!(work.sites[0].semaphore, DATA_OFFSET);
    assert_eq!(work.sites[1].semaphore, 0);
    let relative = work.sites[1].recipes[2].clone().expect("a recipe");
    let address = Address {
        base: Some(Arch::X86_64.instruction_pointer()),
        offset: (DATA + 8) as i64 - (TEXT + 0x30) as i64,
        ..Address::default()
    };
    assert_eq!(relative.operand, Operand::Memory(address));
}

#[test]
fn a_moved_file_moves_call_sites_but_not_semaphores() {
    let moved = image(&Made::x86_64().site([0x1020, BASE - TEXT + 0x1000, DATA], "p", "n", ""));
    assert_eq!(moved.troubles, Vec::<String>::new());
    let site = &moved.probes[0].sites[0];
    assert_eq!(
        (site.address, site.offset, site.semaphore),
        (TEXT + 0x20, TEXT_OFFSET + 0x20, DATA_OFFSET)
    );
}

#[test]
fn what_is_outside_of_its_segment_is_told() {
    let strange = image(
        &Made::x86_64()
            .site([DATA, BASE, 0], "p", "in_data", "")
            .site([TEXT, BASE, TEXT + 8], "p", "semaphore_in_code", "")
            .site([u64::MAX, BASE, 0], "p", "nowhere", "")
            .site([TEXT + 1, BASE, u64::MAX], "p", "semaphore_nowhere", "")
            .site([TEXT + 2, BASE, 0], "p", "good", ""),
    );
    assert_eq!(strange.probes.len(), 1);
    assert_eq!(strange.probes[0].name, "good");
    assert_eq!(strange.troubles.len(), 4);
}

#[test]
fn symbols_of_recipes_must_be_there_and_be_one() {
    let made = Made::x86_64()
        .symbol("twice", DATA, elf::STT_OBJECT)
        .symbol("twice", DATA + 8, elf::STT_OBJECT)
        .site(
            [TEXT, BASE, 0],
            "p",
            "n",
            "4@missing(%rip) 4@twice(%rip) 8@$twice",
        );
    let image = image(&made);
    let problems: Vec<Problem> = image.probes[0].sites[0]
        .recipes
        .iter()
        .map(|recipe| recipe.clone().expect_err("no such recipe").problem)
        .collect();
    assert_eq!(
        problems,
        [
            Problem::UnknownSymbol("missing".to_string()),
            Problem::AmbiguousSymbol("twice".to_string()),
            Problem::AmbiguousSymbol("twice".to_string()),
        ]
    );
}

#[test]
fn other_files_are_refused_with_the_reason() {
    assert!(matches!(read(&b""[..]), Err(ElfError::NotElf(_))));
    assert!(matches!(read(&b"#!/bin/sh\n"[..]), Err(ElfError::NotElf(_))));
    let mut bytes = sample();
    bytes[4] = 1;
    assert!(matches!(read(bytes.as_slice()), Err(ElfError::Machine(_))));
    let mut bytes = sample();
    bytes[16] = 1;
    assert_eq!(read(bytes.as_slice()).err(), Some(ElfError::NotLinked));
    let mut bytes = sample();
    bytes[18] = 3;
    assert!(matches!(read(bytes.as_slice()), Err(ElfError::Machine(_))));
}

/// Every cut of a file, and every byte of its structures replaced, is read without a panic.
#[test]
fn damaged_files_are_read_or_refused() {
    let whole = sample();
    for length in 0..whole.len() {
        let _ = read(&whole[..length]);
    }
    let interesting = (0..0x200).chain(DATA_OFFSET as usize..whole.len());
    for at in interesting {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] = value;
            let _ = read(bytes.as_slice());
        }
    }
}

#[test]
fn compressed_symbols_of_garbage_are_refused() {
    for bytes in [&b""[..], b"\xfd7zXZ\0", &[0xff; 64]] {
        assert!(crate::user::decompress(bytes).is_err());
    }
}
