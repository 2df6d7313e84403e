//! Order files: what each linker reads.
//!
//! lld and BOLT take symbols. gold and GNU ld take input sections, which have the names of
//! functions with `-ffunction-sections`, behind a prefix: GCC puts `main` and static
//! constructors into `.text.startup.`, hot functions into `.text.hot.`, and split-off cold parts
//! (`f.cold`) into `.text.unlikely.f`.

use super::document::Function;
use std::fmt::Write;

/// For which linker an order file is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Format {
    /// `ld.lld --symbol-ordering-file`
    Lld,
    /// `ld.gold --section-ordering-file`
    Gold,
    /// `ld.bfd --section-ordering-file`, since GNU ld 2.43: a part of a linker script.
    GnuLd,
    /// `llvm-bolt -reorder-functions=user -function-order`
    Bolt,
}

impl Format {
    /// The first line of a file, where the linker has comments.
    pub fn comment(self) -> Option<&'static str> {
        match self {
            Self::Lld => Some("# The order of first calls, by headstart elf order\n"),
            Self::GnuLd => Some("/* The order of first calls, by headstart elf order */\n"),
            Self::Gold | Self::Bolt => None,
        }
    }
}

/// The order file for functions in their order. Each name is there once, at its first place.
pub fn text(functions: &[&Function], format: Format) -> String {
    let mut written = std::collections::HashSet::new();
    let names = functions.iter().flat_map(|function| function.names());
    let mut names = names.filter(|name| written.insert(*name));
    let mut out = format.comment().unwrap_or_default().to_owned();
    // Writing to a text does not fail.
    let _ = match format {
        Format::Lld | Format::Bolt => names.try_for_each(|name| writeln!(out, "{name}")),
        Format::Gold => names.flat_map(sections).try_for_each(|section| writeln!(out, "{section}")),
        Format::GnuLd => gnu_ld(&mut out, names),
    };
    out
}

fn gnu_ld<'a>(out: &mut String, names: impl Iterator<Item = &'a str>) -> std::fmt::Result {
    out.push_str(".text :\n{\n");
    for name in names {
        writeln!(out, "  *({})", sections(name).join(" "))?;
    }
    out.push_str("}\n");
    Ok(())
}

/// The input sections in which a function may be.
fn sections(name: &str) -> Vec<String> {
    let cold = name.rfind(".cold").filter(|at| {
        // `f.cold`, and `f.cold.12` of older compilers.
        let rest = &name[at + ".cold".len()..];
        rest.is_empty() || (rest.len() > 1 && rest.starts_with('.') && is_number(&rest[1..]))
    });
    match cold {
        Some(at) => vec![format!(".text.unlikely.{}", &name[..at])],
        None => ["", "hot.", "startup."].map(|kind| format!(".text.{kind}{name}")).into(),
    }
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::super::document::{is_name, tests::file};
    use super::*;
    use proptest::prelude::*;

    fn of(names: &[&str], format: Format) -> String {
        let file = file(names, &[]);
        text(&file.functions.iter().collect::<Vec<_>>(), format)
    }

    /// What follows the comment.
    fn bare(names: &[&str], format: Format) -> String {
        of(names, format).strip_prefix(format.comment().unwrap_or_default()).unwrap().to_owned()
    }

    #[test]
    fn each_linker_gets_its_own_form() {
        let names = ["main", "b.cold", "c"];
        assert_eq!(bare(&names, Format::Lld), "main\nb.cold\nc\n");
        assert_eq!(of(&names, Format::Bolt), "main\nb.cold\nc\n");
        assert_eq!(
            of(&names, Format::Gold),
            ".text.main\n.text.hot.main\n.text.startup.main\n.text.unlikely.b\n\
             .text.c\n.text.hot.c\n.text.startup.c\n"
        );
        assert_eq!(
            bare(&names[1..], Format::GnuLd),
            ".text :\n{\n  *(.text.unlikely.b)\n  *(.text.c .text.hot.c .text.startup.c)\n}\n"
        );
    }

    #[test]
    fn only_the_cold_parts_of_compilers_are_in_the_unlikely_section() {
        for (name, first) in [
            ("f.cold", ".text.unlikely.f"),
            ("f.cold.12", ".text.unlikely.f"),
            ("f.part.0.cold", ".text.unlikely.f.part.0"),
            ("f.colder", ".text.f.colder"),
            ("f.cold.x", ".text.f.cold.x"),
            ("f.cold.", ".text.f.cold."),
            ("cold", ".text.cold"),
        ] {
            assert_eq!(sections(name)[0], first, "{name}");
        }
    }

    #[test]
    fn all_names_of_a_function_are_written_and_none_twice() {
        let mut file = file(&["a", "b"], &[]);
        file.functions[0].aliases = vec!["x".into(), "y".into()];
        file.functions[1].aliases = vec!["a".into()];
        let text = text(&file.functions.iter().collect::<Vec<_>>(), Format::Bolt);
        assert_eq!(text, "a\nx\ny\nb\n");
    }

    proptest! {
        #[test]
        fn no_name_breaks_a_file(names in prop::collection::vec("\\PC{1,12}", 0..8)) {
            let names: Vec<&str> = names.iter().map(String::as_str).filter(|n| is_name(n)).collect();
            for format in [Format::Lld, Format::Bolt, Format::Gold] {
                let text = bare(&names, format);
                prop_assert!(text.lines().all(is_name), "{text}");
            }
            let script = bare(&names, Format::GnuLd);
            let inner: Vec<&str> = script.lines().filter(|line| line.starts_with("  *(")).collect();
            prop_assert_eq!(inner.len() + 3, script.lines().count());
            let is_plain = |line: &&str| {
                let line = line.strip_prefix("  *(").and_then(|line| line.strip_suffix(')'));
                line.is_some_and(|line| line.split(' ').all(is_name))
            };
            prop_assert!(inner.iter().all(is_plain), "{script}");
        }
    }
}
