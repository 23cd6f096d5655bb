//! A program's own types in queries: from its `.BTF` or from `--types FILE`. Prototypes, casts, enum constants, typedefs,
//! layouts; and what is told without them. Each says why it is skipped where it can't be.

use std::process::Command;

use super::user_host::{CALLS, Folder, gcc, refused, run, skipped, tool, trace, unable};

/// Why types can't be had here, if so.
pub(super) fn no_types(folder: &Folder) -> Option<String> {
    let source = folder.0.join("empty.c");
    std::fs::write(&source, "int x;\n").expect("a source file");
    let out = Command::new("gcc")
        .args(["-gbtf", "-c", "-o", "/dev/null"])
        .arg(&source)
        .output()
        .expect("gcc runs");
    (!out.status.success()).then(|| "this gcc can't write BTF (-gbtf, gcc 12)".to_string())
}

/// What holds of the program's types, wherever they come from: queries on `work`, and what the second call shows.
const BY_TYPE: [(&str, &str); 14] = [
    ("n, p->x", "n=2, p->x=200"),
    (
        "p->in->a, p->in->b, p->in->c",
        "p->in->a=42, p->in->b=5, p->in->c=17",
    ),
    (
        "str(text), p->in->name",
        "str(text)=\"hello\", p->in->name=\"inner\"",
    ),
    ("p->colour", "p->colour=BLUE"),
    ("p->colour == BLUE", "p->colour=BLUE"),
    ("p->colour != RED && p->colour > GREEN", "p->colour=BLUE"),
    ("p->in->name == \"inner\", n == 2", "p->in->name=\"inner\", n=2"),
    ("((struct pair *)arg2)->x", "((struct pair *)arg2)->x=200"),
    ("((pair_t *)arg2)->in->a", "((pair_t *)arg2)->in->a=42"),
    ("(enum colour)1000", "(enum colour)1000=BLUE"),
    ("x=p->x + BLUE - GREEN", "x=1193"),
    (
        "sizeof(struct pair), sizeof(pair_t), sizeof(number_t), sizeof(p->in->name)",
        "sizeof(struct pair)=24, sizeof(pair_t)=24, sizeof(number_t)=4, sizeof(p->in->name)=8",
    ),
    (
        "offsetof(pair_t, colour), offsetof(struct inner, name)",
        "offsetof(pair_t, colour)=16, offsetof(struct inner, name)=5",
    ),
    (
        "a=container_of(&p->in, struct pair, in)->x, b=p[0].x, c=(*p).x",
        "a=200, b=200, c=200",
    ),
];

#[test]
fn types_of_a_program_are_known_to_its_queries() {
    if skipped(unable()) {
        return;
    }
    let folder = Folder::new("types");
    if skipped(no_types(&folder)) {
        return;
    }
    // With `.BTF` of its own, and two ways to give it to one that has none.
    gcc(&folder.0, CALLS, "typed", &["-O1", "-gbtf"]);
    gcc(&folder.0, CALLS, "plain", &["-O1"]);
    run(&folder, "objcopy", &["--dump-section", ".BTF=raw.btf", "typed"]);
    let (typed, raw) = (folder.path("typed"), folder.path("raw.btf"));
    for (program, types) in [("typed", None), ("plain", Some(&typed)), ("plain", Some(&raw))] {
        let path = folder.path(program);
        let options: Vec<&str> = types.map_or(vec![], |file| vec!["--types", file.as_str()]);
        // Once they are known it does not matter where from.
        let step = if types.is_some() { 4 } else { 1 };
        for (items, shown) in BY_TYPE.into_iter().step_by(step) {
            let query = format!("uprobe:{path}:work({items}) if n == 2");
            let traced = trace(&folder.0, &path, &[options.as_slice(), &[&query]].concat());
            assert_eq!(
                traced.events,
                [format!("work({shown})")],
                "{items}\n{}",
                traced.stderr
            );
        }
        // A USDT probe has no prototype, but its program has types.
        for (items, shown) in [
            (
                "((pair_t *)arg2)->colour == BLUE",
                "((pair_t *)arg2)->colour=BLUE",
            ),
            (
                "((struct pair *)arg2)->in->c, arg0 == 2",
                "((struct pair *)arg2)->in->c=17, arg0=2",
            ),
        ] {
            let query = format!("usdt:{path}:calls:work({items})");
            let traced = trace(&folder.0, &path, &[options.as_slice(), &[&query]].concat());
            assert!(
                traced.events.contains(&format!("calls:work({shown})")),
                "{:?}",
                traced.events
            );
        }
        let info = |what: &str| {
            let out = tool(&[&["info"], options.as_slice(), &[what]].concat());
            assert!(
                out.status.success(),
                "{what}: {}",
                String::from_utf8_lossy(&out.stderr)
            );
            String::from_utf8_lossy(&out.stdout).into_owned()
        };
        let prototype = info(&format!("uprobe:{path}:work"));
        let wanted = format!("long int work(number_t n, const char *text, pair_t *p); /* {path} at 0x");
        assert!(prototype.starts_with(&wanted), "{prototype}");
        let several = info(&format!("uprobe:{path}:o[nt]*e*"));
        assert!(
            several.contains("int one(int n); /*") && several.contains("int other(int n); /*"),
            "{several}"
        );
        let probe = info(&format!("usdt:{path}:calls:w*"));
        let wanted = "calls:work(int arg0, long unsigned int arg1, long unsigned int arg2); /* ";
        assert!(probe.starts_with(wanted), "{probe}");
    }
}

#[test]
fn types_that_are_not_there_are_told() {
    if skipped(unable()) {
        return;
    }
    let folder = Folder::new("untyped");
    if skipped(no_types(&folder)) {
        return;
    }
    gcc(&folder.0, CALLS, "typed", &["-O1", "-gbtf"]);
    let plain = gcc(&folder.0, CALLS, "plain", &["-O1"]).display().to_string();
    let typed = folder.path("typed");
    for (path, items, why) in [
        (&plain, "((struct pair *)arg2)->x", "`--types FILE` gives it some"),
        (&plain, "((pair_t *)arg2)->x", "`--types FILE` gives it some"),
        (&plain, "sizeof(pair_t)", "is not known here"),
        (&plain, "arg0 == BLUE", "`BLUE` is not known here"),
        (&typed, "((struct paire *)arg2)->x", "did you mean `struct pair`"),
        (&typed, "((pair_u *)arg2)->x", "did you mean `pair_t`"),
        (&typed, "n == BLUEE", "did you mean `BLUE`"),
        (&typed, "((pair *)arg2)->x", "did you mean `struct pair`"),
        (&typed, "p->y", "no member"),
        (&typed, "arg3", "there are 3 arguments"),
    ] {
        let said = refused(&[&format!("uprobe:{path}:work({items})")]);
        assert!(said.contains(why), "{items}: {said}");
    }
    let source = folder.path("plain.c");
    for (file, why) in [
        (source.as_str(), "isn't usable BTF"),
        ("/no/such/file", "--types /no/such/file"),
    ] {
        let out = tool(&["--types", file, &format!("uprobe:{plain}:work()")]);
        assert_eq!(out.status.code(), Some(1), "{file}");
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(said.contains(why), "{file}: {said}");
    }
    // Without a prototype there are the registers.
    let out = tool(&["info", &format!("uprobe:{plain}:work")]);
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(
        said.starts_with("long unsigned int work(long unsigned int arg0, long unsigned int arg1,"),
        "{said}"
    );
}
