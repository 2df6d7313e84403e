//! What a source file imports: paths in `use` declarations and in code. Reads tokens and no
//! more; macros that build paths are not seen.

/// A path in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Import {
    /// The line, from 1.
    pub line: usize,
    /// Its segments.
    pub path: Vec<String>,
    /// Modules within the file that it stands in.
    pub inside: usize,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Token {
    Word(String),
    /// `::`
    Sep,
    Other(char),
}

/// The paths of a file, in its order.
pub fn imports(text: &str) -> Vec<Import> {
    let tokens = tokens(text);
    let mut out = Vec::new();
    let (mut depth, mut modules) = (0usize, Vec::new());
    let mut at = 0;
    while let Some((line, token)) = tokens.get(at) {
        let inside = modules.len();
        at += 1;
        match token {
            Token::Other('{') => depth += 1,
            Token::Other('}') => {
                depth = depth.saturating_sub(1);
                modules.retain(|opened| *opened <= depth);
            }
            // A module within the file, not one in another.
            Token::Word(word)
                if word == "mod" && word_at(&tokens, at).is_some() && is(&tokens, at + 1, '{') =>
            {
                modules.push(depth + 1);
            }
            Token::Word(word) if word == "use" => {
                let add = |line, path| out.push(Import { line, path, inside });
                at = tree(&tokens, at, &[], add);
            }
            Token::Word(word) if tokens.get(at).is_some_and(|(_, next)| *next == Token::Sep) => {
                let mut path = vec![word.clone()];
                while tokens.get(at).is_some_and(|(_, next)| *next == Token::Sep) {
                    let Some(word) = word_at(&tokens, at + 1) else { break };
                    path.push(word.to_owned());
                    at += 2;
                }
                out.push(Import { line: *line, path, inside });
            }
            _ => {}
        }
    }
    out
}

fn word_at(tokens: &[(usize, Token)], at: usize) -> Option<&str> {
    match tokens.get(at) {
        Some((_, Token::Word(word))) => Some(word),
        _ => None,
    }
}

fn is(tokens: &[(usize, Token)], at: usize, mark: char) -> bool {
    tokens.get(at).is_some_and(|(_, token)| *token == Token::Other(mark))
}

/// The paths of a tree in a `use`, each behind `before`; returns where the tree ends.
fn tree(
    tokens: &[(usize, Token)],
    mut at: usize,
    before: &[String],
    mut add: impl FnMut(usize, Vec<String>),
) -> usize {
    let mut path = before.to_vec();
    let line = tokens.get(at).map_or(0, |(line, _)| *line);
    loop {
        match tokens.get(at) {
            Some((_, Token::Word(word))) if word == "as" => at += 2,
            Some((_, Token::Word(word))) => {
                path.push(word.clone());
                at += 1;
            }
            Some((_, Token::Sep | Token::Other('*'))) => at += 1,
            Some((_, Token::Other('{'))) => {
                at += 1;
                while at < tokens.len() && !is(tokens, at, '}') {
                    at = tree(tokens, at, &path, &mut add as &mut dyn FnMut(usize, Vec<String>));
                    at += usize::from(is(tokens, at, ','));
                }
                return at + 1;
            }
            _ => break,
        }
    }
    add(line, path);
    at
}

/// Words, `::` and other characters, without comments, strings and lifetimes.
fn tokens(text: &str) -> Vec<(usize, Token)> {
    let chars: Vec<char> = text.chars().collect();
    let is_word = |c: &char| c.is_alphanumeric() || *c == '_';
    let (mut at, mut line, mut out) = (0, 1, Vec::new());
    while at < chars.len() {
        let begin = at;
        let rest = &chars[at..];
        match rest {
            ['/', '/', ..] => at += rest.iter().take_while(|c| **c != '\n').count(),
            ['/', '*', ..] => at += comment(rest),
            ['"', ..] => at += 1 + string(&rest[1..]),
            ['r' | 'b' | 'c', ..] if raw(rest).is_some() => at += raw(rest).unwrap_or(1),
            // A character, or a lifetime, whose quote alone is passed over.
            ['\'', '\\', _, tail @ ..] => {
                at += 4 + tail.iter().take_while(|c| **c != '\'').count();
            }
            ['\'', _, '\'', ..] => at += 3,
            [':', ':', ..] => {
                out.push((line, Token::Sep));
                at += 2;
            }
            [c, ..] if is_word(c) => {
                at += rest.iter().take_while(|c| is_word(c)).count();
                out.push((line, Token::Word(chars[begin..at].iter().collect())));
            }
            [c, ..] => {
                if !c.is_whitespace() && *c != '\'' {
                    out.push((line, Token::Other(*c)));
                }
                at += 1;
            }
            [] => break,
        }
        at = at.min(chars.len());
        line += chars[begin..at].iter().filter(|c| **c == '\n').count();
    }
    out
}

/// How long a comment is, with those in it.
fn comment(text: &[char]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        match &text[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// How long a string is, from behind its first quote up to and with the last.
fn string(text: &[char]) -> usize {
    let mut at = 0;
    while at < text.len() && text[at] != '"' {
        at += if text[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

/// How long a raw string is, if this is one.
fn raw(text: &[char]) -> Option<usize> {
    let prefix = text.iter().take_while(|c| "brc".contains(**c)).count();
    if !text[..prefix].contains(&'r') {
        return None;
    }
    let marks = text[prefix..].iter().take_while(|c| **c == '#').count();
    let begin = prefix + marks + 1;
    (text.get(begin - 1) == Some(&'"')).then(|| {
        let is_end = |at: &usize| {
            text[*at] == '"'
                && text[at + 1..].iter().take(marks).filter(|c| **c == '#').count() == marks
        };
        (begin..text.len()).find(is_end).map_or(text.len(), |end| end + 1 + marks)
    })
}

#[test]
fn paths_are_found_in_uses_and_code_and_not_in_comments_or_strings() {
    let text = r####"
//! use crate::no;
use crate::a::{b, c::{self, D}, e::*};
pub(crate) use super::f as g;
fn x<'a>(y: &'a str) -> crate::h::I { /* crate::no /* */ */ 'c'; '\''; "\"crate::no"; r#"crate::"no"#; j::k() }
mod tests {
    use super::*;
    fn z() { if true {} crate::l::<M>() }
}
use self::n;
"####;
    let found: Vec<_> = imports(text)
        .into_iter()
        .map(|import| format!("{} {} {}", import.line, import.path.join("::"), import.inside))
        .collect();
    let expected = [
        "3 crate::a::b 0",
        "3 crate::a::c::self 0",
        "3 crate::a::c::D 0",
        "3 crate::a::e 0",
        "4 super::f 0",
        "5 crate::h::I 0",
        "5 j::k 0",
        "7 super 1",
        "8 crate::l 1",
        "10 self::n 0",
    ];
    assert_eq!(found, expected);
}
