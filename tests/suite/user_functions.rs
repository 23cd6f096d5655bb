//! Which function of a program a name stands for, and where that has its arguments: arguments beyond the registers, overloads,
//! functions of one name in several units, what can't be fetched, functions that the loader chooses. Each says why it is
//! skipped where it can't be.

use std::path::Path;
use std::process::Command;

use super::user_host::{Folder, gcc, refused, run, skipped, tool, trace, unable};

/// Why a tool or an option of one can't be had here, if so.
fn without(program: &str, arguments: &[&str], source: &str) -> Option<String> {
    let folder = Folder::new("without");
    let from = folder.0.join(source);
    std::fs::write(&from, "int x;\n").expect("a source file");
    let out = Command::new(program)
        .args(arguments)
        .args(["-c", "-o", "/dev/null"])
        .arg(&from)
        .output();
    let works = out.is_ok_and(|out| out.status.success());
    (!works).then(|| format!("`{program} {}` does not work here", arguments.join(" ")))
}

/// Builds several sources to one program.
fn build(folder: &Folder, program: &str, sources: &[(&str, &str)], options: &[&str]) -> String {
    for (name, text) in sources {
        std::fs::write(folder.0.join(name), text).expect("a source file");
    }
    let out = folder.path("program");
    let done = Command::new(program)
        .current_dir(&folder.0)
        .args(options)
        .args(["-o", &out])
        .args(sources.iter().map(|(name, _)| name))
        .output()
        .expect("a compiler");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    out
}

/// The events of a query about a program, traced while it runs.
fn events(path: &str, query: &str) -> Vec<String> {
    let folder = Path::new(path).parent().expect("a folder");
    trace(folder, path, &[query]).events
}

/// Floating point numbers, numbers of 16 bytes and structs before what is shown, in numbers that fill the registers for them.
const MANY: &str = r#"
typedef struct { long a, b, c; } large;
typedef struct { int a, b; } small;
#define FUNCTION __attribute__((noinline, noclone))
#define KEEP __asm__ volatile("" ::: "memory")
FUNCTION int nine(double a, double b, double c, double d, double e, double f, double g, double h, double i,
                  int i0, int i1, int i2, int i3, int i4, int i5, int i6, int i7) { KEEP; return i6; }
FUNCTION int mixed(int a, float x, long b, double y, char c, unsigned char d, short e, float z, int f, int g, int h)
    { KEEP; return g; }
FUNCTION int wide(int a, __int128 b, int c, int d, int e, __int128 f, int g, int h, int i) { KEEP; return g; }
FUNCTION int by_value(int a, large b, int c, int d, int e, int f, int g) { KEEP; return g; }
FUNCTION int after(int a, small b, int c) { KEEP; return c; }
FUNCTION large returned(int a, int b) { large out = { a, b, 3 }; KEEP; return out; }
FUNCTION double number(double a, int b, float c, int d) { KEEP; return a + b + c + d; }
FUNCTION void nothing(int a) { KEEP; }
int main(void) {
    large l = { 1, 2, 3 };
    small s = { 1, 2 };
    nine(1, 2, 3, 4, 5, 6, 7, 8, 9.5, 10, 11, 12, 13, 14, 15, 16, 17);
    mixed(1, 0.5f, -2, 0.25, -3, 250, -4, 0.125f, 5, -6, 7);
    wide(1, 2, 3, 4, 5, 6, 7, 8, 9);
    by_value(1, l, 2, 3, 4, 5, 6);
    after(1, s, 2);
    returned(4, 5);
    number(1, 2, 3, 4);
    nothing(1);
    return 0;
}
"#;

#[test]
fn arguments_are_where_the_calling_convention_puts_them() {
    if skipped(unable()) || skipped(without("gcc", &["-gbtf"], "x.c")) {
        return;
    }
    let folder = Folder::new("convention");
    for level in ["-O0", "-O2"] {
        let path = gcc(&folder.0, MANY, "many", &["-gbtf", "-w", level])
            .display()
            .to_string();
        for (query, wanted) in [
            (
                "nine(i0, i1, i2, i3, i4, i5, i6, i7)",
                "nine(i0=10, i1=11, i2=12, i3=13, i4=14, i5=15, i6=16, i7=17)",
            ),
            (
                "mixed(a, b, c, d, e, f, g, h)",
                "mixed(a=1, b=-2, c=-3, d=250, e=-4, f=5, g=-6, h=7)",
            ),
            (
                "wide(a, c, d, e, g, h, i)",
                "wide(a=1, c=3, d=4, e=5, g=7, h=8, i=9)",
            ),
            (
                "by_value(a, c, d, e, f, g)",
                "by_value(a=1, c=2, d=3, e=4, f=5, g=6)",
            ),
            ("after(a)", "after(a=1)"),
            ("returned(a, b)", "returned(a=4, b=5)"),
            ("number(b, d)", "number(b=2, d=4)"),
        ] {
            let query = format!("uprobe:{path}:{query}");
            assert_eq!(events(&path, &query), [wanted], "{level}: {query}");
        }
    }
}

/// What can't be fetched is said, and is never shown as something else.
#[test]
fn what_cant_be_fetched_is_told() {
    if skipped(unable()) || skipped(without("gcc", &["-gbtf"], "x.c")) {
        return;
    }
    let folder = Folder::new("unfetched");
    let path = gcc(&folder.0, MANY, "many", &["-gbtf", "-w", "-O1"])
        .display()
        .to_string();
    let target = |rest: &str| format!("uprobe:{path}:{rest}");
    for (query, shown, told) in [
        (
            "number",
            ["number(b=2, d=4)", "number() = ?"].as_slice(),
            "`a`, `c`: floating point numbers",
        ),
        (
            "returned",
            &["returned(a=4, b=5)", "returned() = ?"],
            "what it returns:",
        ),
        (
            "after",
            &["after(a=1)", "after() = 2"],
            "`c`: it comes after a struct",
        ),
        ("nothing", &["nothing(a=1)", "nothing() = void"], ""),
    ] {
        let traced = trace(&folder.0, &path, &[&target(query)]);
        assert_eq!(traced.events, shown, "{query}");
        assert!(traced.stderr.contains(told), "{query}: {}", traced.stderr);
        assert_eq!(
            traced.stderr.contains("not all of"),
            !told.is_empty(),
            "{query}: {}",
            traced.stderr
        );
    }
    for (query, why) in [
        (
            "number(return)",
            "a return value of type `double` can't be fetched",
        ),
        (
            "returned(return.a)",
            "a return value of type `large` can't be fetched",
        ),
        ("number(a)", "floating point numbers are not fetched"),
        ("after(c)", "it comes after a struct"),
        ("nothing(return)", "`nothing` returns nothing"),
    ] {
        let said = refused(&[&target(query)]);
        assert!(said.contains(why), "{query}: {said}");
    }
    let info = |rest: &str| String::from_utf8_lossy(&tool(&["info", &target(rest)]).stdout).into_owned();
    assert!(info("returned").starts_with("large returned(int a, int b);"));
    assert!(info("number").starts_with("double number(double a,"));
    // Without a prototype nobody knows how many there are.
    let plain = gcc(&folder.0, MANY, "plain", &["-w", "-O1"])
        .display()
        .to_string();
    let said = refused(&[&format!("uprobe:{plain}:number(argc)")]);
    assert!(said.contains("how many arguments"), "{said}");
    assert_eq!(events(&path, &target("number(argc)")), ["number(argc=4)"]);
}

/// Of a pattern those are traced that the query fits.
#[test]
fn a_pattern_takes_the_functions_that_the_query_fits() {
    if skipped(unable()) || skipped(without("gcc", &["-gbtf"], "x.c")) {
        return;
    }
    let folder = Folder::new("fits");
    let path = gcc(&folder.0, MANY, "many", &["-gbtf", "-w", "-O1"])
        .display()
        .to_string();
    let traced = trace(&folder.0, &path, &[&format!("uprobe:{path}:*(b, d)")]);
    assert_eq!(traced.events, ["mixed(b=-2, d=250)", "number(b=2, d=4)"]);
    assert!(
        traced.stderr.contains("*: 2 functions; left out: "),
        "{}",
        traced.stderr
    );
    let said = refused(&[&format!("uprobe:{path}:*(nowhere)")]);
    assert!(said.contains("`nowhere` is not known here"), "{said}");
}

/// Functions of one prototype share their programs, and each event says which of them it is.
#[test]
fn functions_that_share_programs_are_told_apart() {
    if skipped(unable()) || skipped(without("gcc", &["-gbtf"], "x.c")) {
        return;
    }
    const ALIKE: &str = r#"
#define FUNCTION __attribute__((noinline, noclone)) int
FUNCTION fn_one(int a) { __asm__ volatile(""); return a + 1; }
FUNCTION fn_two(int a) { __asm__ volatile(""); return a + 2; }
FUNCTION fn_six(int a) { __asm__ volatile(""); return a + 6; }
int main(void) { return fn_one(10) + fn_two(20) + fn_one(30) + fn_six(40) < 0; }
"#;
    let folder = Folder::new("alike");
    let path = gcc(&folder.0, ALIKE, "alike", &["-gbtf", "-O1"])
        .display()
        .to_string();
    let target = format!("uprobe:{path}:fn_*");
    let traced = trace(&folder.0, &path, &[&format!("{target}(func, a, return > 0)")]);
    assert_eq!(
        traced.events,
        [
            "fn_one(func=\"fn_one\", a=10) = 11",
            "fn_two(func=\"fn_two\", a=20) = 22",
            "fn_one(func=\"fn_one\", a=30) = 31",
            "fn_six(func=\"fn_six\", a=40) = 46"
        ]
    );
    let out = tool(&[
        "-c",
        &path,
        "--format",
        "json",
        &format!("{target}(count(), sum(a), by(func))"),
    ]);
    let rows: Vec<String> = String::from_utf8_lossy(&out.stdout)
        .lines()
        .filter_map(|line| Some(line.split_once("\"keys\":")?.1.to_string()))
        .collect();
    assert_eq!(
        rows,
        [
            r#"{"func":"fn_one"},"values":{"count()":2,"sum(a)":40}}"#,
            r#"{"func":"fn_six"},"values":{"count()":1,"sum(a)":40}}"#,
            r#"{"func":"fn_two"},"values":{"count()":1,"sum(a)":20}}"#,
        ],
        "{out:?}"
    );
}

/// Two units with a function of one name and their own types of it.
const TWINS: [(&str, &str); 2] = [
    (
        "one.c",
        r#"
struct one { int a; char *s; };
static int __attribute__((noinline)) twin(struct one *p) { __asm__ volatile("" :: "r"(p) : "memory"); return p->a; }
static int __attribute__((noinline)) alike(int n) { __asm__ volatile("" :: "r"(n) : "memory"); return n; }
enum only_here { HERE = 77 };
int first(void) { struct one o = { HERE, "one" }; volatile enum only_here e = HERE; return twin(&o) + alike(1) + e; }
"#,
    ),
    (
        "two.c",
        r#"
struct two { long pad; short b; };
enum second { THERE = 88 };
static long __attribute__((noinline)) twin(int x, struct two *p) { __asm__ volatile("" :: "r"(p), "r"(x) : "memory"); return p->b; }
static int __attribute__((noinline)) alike(int n) { __asm__ volatile("" :: "r"(n) : "memory"); return n; }
long __attribute__((noinline)) lone(struct two *p) { __asm__ volatile("" :: "r"(p) : "memory"); return p->b; }
int first(void);
int main(void) { struct two t = { 1, 22 }; volatile enum second e = THERE; first(); twin(5, &t); alike(2); lone(&t); return 0 * e; }
"#,
    ),
];

/// Every unit of a program has types of its own; of functions of one name nothing says which prototype is whose.
#[test]
fn functions_of_one_name_are_never_read_by_anothers_prototype() {
    if skipped(unable()) || skipped(without("gcc", &["-gbtf"], "x.c")) {
        return;
    }
    let folder = Folder::new("twins");
    let path = build(&folder, "gcc", &TWINS, &["-O1", "-gbtf"]);
    let target = |rest: &str| format!("uprobe:{path}:{rest}");
    // Types of all units.
    assert_eq!(
        events(&path, &target("lone(p->b, x=p->b + THERE + HERE)")),
        ["lone(p->b=22, x=187)"]
    );
    let traced = trace(&folder.0, &path, &[&target("twin(return)")]);
    assert_eq!(traced.events, ["twin() = 77", "twin() = 22"]);
    assert!(
        traced.stderr.contains("2 prototypes of `twin`")
            && traced.stderr.contains("an address chooses one: `0x"),
        "{}",
        traced.stderr
    );
    let said = refused(&[&target("twin(p->a)")]);
    assert!(
        said.contains("`p` is not known here")
            && said.contains("int twin(struct one *p)")
            && said.contains("long int twin(int x, struct two *p)"),
        "{said}"
    );
    // Who reads nothing of the calls need not know.
    let traced = trace(&folder.0, &path, &[&target("twin()")]);
    assert_eq!(traced.events, ["twin()"; 2]);
    assert!(!traced.stderr.contains("prototype"), "{}", traced.stderr);
    // One place alone, by what its unit calls it.
    let symbols = super::user_host::list(&target("twin"));
    let places: Vec<&str> = symbols
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1))
        .collect();
    assert_eq!(places.len(), 2, "{symbols}");
    let shown: Vec<Vec<String>> = places
        .iter()
        .map(|place| {
            events(
                &path,
                &target(&format!("{place}(((struct two *)arg1)->b, (int)arg0)")),
            )
        })
        .collect();
    assert!(
        shown.contains(&vec!["twin(((struct two *)arg1)->b=22, (int)arg0=5)".to_string()]),
        "{shown:?}"
    );
    assert!(shown.iter().all(|events| events.len() == 1), "{shown:?}");
    // Where all have one prototype, that is taken, and said to be.
    let traced = trace(&folder.0, &path, &[&target("alike(n)")]);
    assert_eq!(traced.events, ["alike(n=1)", "alike(n=2)"]);
    assert!(
        traced.stderr.contains("`alike` is the name of 2 functions"),
        "{}",
        traced.stderr
    );
}

const OVERLOADS: &str = r#"
#define KEEP __asm__ volatile("" ::: "memory")
namespace demo {
struct Widget {
    int v;
    __attribute__((noinline)) int put(int a) { KEEP; return a; }
    __attribute__((noinline)) int put(const char *a) { KEEP; return a[0]; }
    __attribute__((noinline)) int operator+(int a) { KEEP; return a + v; }
    __attribute__((noinline)) bool operator<(int a) { KEEP; return v < a; }
};
template <class T> __attribute__((noinline)) T add(T a, T b) { KEEP; return a + b; }
template <class T> struct Box { T v; __attribute__((noinline)) int get(int n) { KEEP; return n + (int)v; } };
}
static char text[] = "....";
int main() {
    // What was never touched is not in memory yet.
    __builtin_memcpy(text, "text", 4);
    demo::Widget w; w.v = 5;
    demo::Box<int> b; b.v = 1;
    demo::Box<long> c; c.v = 2;
    w.put(7); w.put(text); w + 3; w < 9;
    demo::add<int>(1, 2); demo::add<long>(3, 4);
    b.get(10); c.get(20);
}
"#;

/// Events name the function that was called, and a demangled name may have as much of itself as one likes.
#[test]
fn overloads_and_templates_have_their_own_names() {
    if skipped(unable()) || skipped(without("g++", &[], "x.cc")) {
        return;
    }
    let folder = Folder::new("overloads");
    let path = build(&folder, "g++", &[("o.cc", OVERLOADS)], &["-O1"]);
    let shown = |rest: &str| events(&path, &format!("uprobe:{path}:{rest}"));
    assert_eq!(
        shown("demo::Widget::put((int)return)"),
        [
            "demo::Widget::put(int)((int)return=7)",
            "demo::Widget::put(char const*)((int)return=116)"
        ]
    );
    assert_eq!(
        shown("demo::Widget::put(str(arg1)) if arg1 > 1000"),
        ["demo::Widget::put(char const*)(str(arg1)=\"text\")"]
    );
    // What they return stands before that.
    let both = [
        "demo::add<int>(int, int)((int)return=3)",
        "demo::add<long>(long, long)((int)return=7)",
    ];
    assert_eq!(shown("demo::add((int)return)"), both);
    assert_eq!(shown("demo::add*((int)return)"), both);
    assert_eq!(shown("demo::add<int>((int)return)"), both[..1]);
    assert_eq!(
        shown("demo::Box::get((int)return)"),
        [
            "demo::Box<int>::get(int)((int)return=11)",
            "demo::Box<long>::get(int)((int)return=22)"
        ]
    );
    assert_eq!(
        shown("demo::Box<long>::get((int)return)"),
        ["demo::Box<long>::get(int)((int)return=22)"]
    );
    // In quotes a name may be what events and lists call it.
    assert_eq!(
        shown("\"demo::Widget::put(int)\"((int)return)"),
        ["demo::Widget::put(int)((int)return=7)"]
    );
    assert_eq!(shown("\"int demo::add<int>(int, int)\"((int)return)"), both[..1]);
    assert_eq!(
        shown("demo::Widget::operator+((int)return)"),
        ["demo::Widget::operator+(int)((int)return=8)"]
    );
    assert_eq!(
        shown("demo::Widget::operator<((int)arg1)"),
        ["demo::Widget::operator<(int)((int)arg1=9)"]
    );
}

/// A function that is only there as a copy is found, and one that the loader chooses is not left out in silence.
#[test]
fn copies_and_functions_that_the_loader_chooses_are_told() {
    if skipped(unable()) {
        return;
    }
    let folder = Folder::new("copies");
    let source = r#"
static int plain(int n) { __asm__ volatile("" ::: "memory"); return n + 1; }
static int chosen(int n) { return n + 2; }
static int (*which(void))(int) { return chosen; }
int late(int n) __attribute__((ifunc("which")));
__asm__(".type many.constprop.0, @function\nmany.constprop.0: jmp alone\n.size many.constprop.0, 2\n"
        ".type many.constprop.1, @function\nmany.constprop.1: jmp alone\n.size many.constprop.1, 2\n");
int alone(int n) __asm__("alone.constprop.0");
__asm__(".set alone, alone.constprop.0");
int __attribute__((noinline)) alone(int n) { return plain(n); }
int late_too(int n) { return n; }
int main(void) { return alone(3) - 4 + late(0) - 2 + late_too(0); }
"#;
    let path = build(&folder, "gcc", &[("c.c", source)], &["-O0", "-no-pie"]);
    let done = Command::new("objcopy")
        .args(["--strip-symbol=alone", &path])
        .status();
    if !done.is_ok_and(|status| status.success()) {
        eprintln!("SKIP: no objcopy here");
        return;
    }
    let target = |rest: &str| format!("uprobe:{path}:{rest}");
    for name in ["alone", "alone.constprop.0"] {
        let traced = trace(&folder.0, &path, &[&target(&format!("{name}((int)arg0)"))]);
        assert_eq!(traced.events, ["alone.constprop.0((int)arg0=3)"], "{name}");
        assert!(
            traced.stderr.contains("is a copy that the compiler made"),
            "{}",
            traced.stderr
        );
    }
    let said = refused(&[&target("many(arg0)")]);
    assert!(said.contains("`many.constprop.0`, `many.constprop.1`"), "{said}");
    let said = refused(&[&target("late(arg0)")]);
    assert!(said.contains("(ifunc)"), "{said}");
    let traced = trace(&folder.0, &path, &[&target("late*((int)arg0)")]);
    assert_eq!(traced.events, ["late_too((int)arg0=0)"]);
    assert!(
        traced.stderr.contains("`late` is left out") && traced.stderr.contains("(ifunc)"),
        "{}",
        traced.stderr
    );
}

/// A file may have any name.
#[test]
fn paths_with_blanks_and_colons_stand_in_quotes() {
    if skipped(unable()) {
        return;
    }
    let folder = Folder::new("quoted");
    let plain = gcc(&folder.0, super::user_host::CALLS, "calls", &["-O1"]);
    let odd = folder.0.join("a b:c(d)");
    std::fs::rename(plain, &odd).expect("another name");
    let odd = odd.display();
    // The command is found by another name of the file.
    let link = folder.path("link");
    std::os::unix::fs::symlink(odd.to_string(), &link).expect("a link");
    for query in [
        format!("uprobe:\"{odd}\":work((int)arg0)"),
        format!("usdt:\"{odd}\":calls:work(arg0)"),
    ] {
        assert!(!events(&link, &query).is_empty(), "{query}");
    }
    let said = refused(&[&format!("uprobe:\"{odd}:work()")]);
    assert!(said.contains("is not closed"), "{said}");
}

/// The number of arguments is shown, and what it decides is told.
#[test]
fn the_number_of_arguments_is_a_constant_that_is_shown() {
    if skipped(unable()) || skipped(without("gcc", &["-gbtf"], "x.c")) {
        return;
    }
    let folder = Folder::new("argc");
    let path = gcc(&folder.0, MANY, "many", &["-gbtf", "-w", "-O1"])
        .display()
        .to_string();
    let traced = trace(&folder.0, &path, &[&format!("uprobe:{path}:after(argc > 2)")]);
    assert_eq!(traced.events, ["after(argc=3)"]);
    assert!(
        traced.stderr.contains("always true") && traced.stderr.contains("`argc` is 3 for `after`"),
        "{}",
        traced.stderr
    );
}

/// Addresses in a program are named by its own functions, and where its symbols were stripped by those that are kept elsewhere.
#[test]
fn addresses_are_named_by_the_programs_symbols() {
    if skipped(unable()) {
        return;
    }
    let folder = Folder::new("named");
    let source = r#"
static int __attribute__((noinline)) inner(int (*f)(int)) { __asm__ volatile("" :: "r"(f) : "memory"); return f != 0; }
static int __attribute__((noinline)) target(int n) { __asm__ volatile("" ::: "memory"); return n; }
static int __attribute__((noinline)) middle(int n) { int r = inner(target); __asm__ volatile("" ::: "memory"); return r + n - n; }
static int __attribute__((noinline)) outer(int n) { int r = middle(n); __asm__ volatile("" ::: "memory"); return r + n; }
int main(void) { volatile int r = outer(1) + target(2); return r - 4; }
"#;
    let path = gcc(
        &folder.0,
        source,
        "named",
        &["-O1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls"],
    )
    .display()
    .to_string();
    // At its first instruction a function has no frame yet, so that its caller is not in the chain.
    let query = format!("uprobe:{path}:inner(arg0:sym, ustack(3))");
    let check = |what: &str| {
        let traced = trace(&folder.0, &path, &[&query]);
        assert!(
            traced.text.contains("target+0x0") || traced.text.contains("arg0=target"),
            "{what}: {}",
            traced.text
        );
        assert!(
            traced.text.contains("outer+0x") && traced.text.contains("main+0x"),
            "{what}: {}",
            traced.text
        );
    };
    check("with symbols");
    run(&folder, "objcopy", &["--only-keep-debug", "named", "named.debug"]);
    run(&folder, "strip", &["named"]);
    run(&folder, "objcopy", &["--add-gnu-debuglink=named.debug", "named"]);
    check("by the debug link");
}

/// A process that is not there, and one that has not mapped the file, are told as that.
#[test]
fn a_process_that_cant_show_anything_is_told() {
    if skipped(unable()) {
        return;
    }
    let folder = Folder::new("processes");
    let path = gcc(&folder.0, super::user_host::CALLS, "calls", &["-O1"])
        .display()
        .to_string();
    let query = format!("uprobe:{path}:work()");
    let said = refused(&["-p", "4194305", &query]);
    assert!(
        said.contains("-p 4194305: there is no process 4194305") && !said.contains("PATH"),
        "{said}"
    );
    let own = std::process::id().to_string();
    let out = tool(&["-p", &own, "--for", "1", &query]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(said.contains("has not mapped"), "{said}");
    let running = super::user_host::Running::start(Command::new(&path).args(["100000", "2"]));
    let pid = running.pid().to_string();
    // The way through the process's root means the same file, also from inside of the root that it is.
    for query in [query.clone(), format!("uprobe:/proc/{pid}/root{path}:work()")] {
        let traced = super::user_host::traced(&folder.0, &["-p", &pid, "-n", "2", &query]);
        assert_eq!(traced.events, ["work()"; 2]);
        assert!(!traced.stderr.contains("has not mapped"), "{}", traced.stderr);
    }
}
