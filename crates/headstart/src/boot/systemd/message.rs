//! The two messages of D-Bus that a question to systemd takes: the call that gets a
//! property, and its reply, as far as that is a number or a text.
//!
//! Pure: takes and returns bytes. Format: D-Bus Specification, "Message Protocol". Not a
//! library for D-Bus: it knows no other message, and of values only `t` and `s`.

/// Bytes that tell how long a message is.
pub const START: usize = 16;
/// No reply to our calls is longer: an error with its sentence is the longest.
const MOST: u32 = 1 << 16;

const CALL: u8 = 1;
const REPLY: u8 = 2;
const LITTLE: u8 = b'l';
const VERSION: u8 = 1;

/// Codes of header fields.
mod field {
    pub(super) const PATH: u8 = 1;
    pub(super) const INTERFACE: u8 = 2;
    pub(super) const MEMBER: u8 = 3;
    pub(super) const REPLY_SERIAL: u8 = 5;
    pub(super) const SIGNATURE: u8 = 8;
}

/// A property of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Property<'a> {
    /// The object's path.
    pub path: &'a str,
    /// The interface that has the property.
    pub interface: &'a str,
    /// Its name.
    pub name: &'a str,
}

/// The message number `serial` (not 0) that gets a property.
pub fn get(serial: u32, property: &Property<'_>) -> Vec<u8> {
    let mut body = Vec::new();
    put_string(&mut body, property.interface);
    put_string(&mut body, property.name);
    let mut fields = Vec::new();
    put_field(&mut fields, field::PATH, b'o', property.path);
    put_field(&mut fields, field::INTERFACE, b's', "org.freedesktop.DBus.Properties");
    put_field(&mut fields, field::MEMBER, b's', "Get");
    pad(&mut fields, 8);
    fields.extend([field::SIGNATURE, 1, b'g', 0, 2, b's', b's', 0]);
    let mut out = vec![LITTLE, CALL, 0, VERSION];
    put_number(&mut out, body.len());
    out.extend(serial.to_le_bytes());
    put_number(&mut out, fields.len());
    // The header's own 16 bytes end where 8 divides, so what is aligned in `fields` is here.
    out.extend(fields);
    pad(&mut out, 8);
    out.extend(body);
    out
}

/// How long the message is that starts with these bytes; `None` when it is none that can
/// be an answer to us.
pub fn length(start: [u8; START]) -> Option<usize> {
    if start[0] != LITTLE || start[3] != VERSION {
        return None;
    }
    let (body, fields) = (number(&start, 4)?, number(&start, 12)?);
    if body > MOST || fields > MOST {
        return None;
    }
    let fields = usize::try_from(fields).ok()?.next_multiple_of(8);
    Some(START + fields + usize::try_from(body).ok()?)
}

/// A value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// A `t`.
    Number(u64),
    /// An `s`.
    Text(String),
}

impl Value {
    /// The number that it is.
    pub fn number(&self) -> Option<u64> {
        if let Self::Number(number) = self { Some(*number) } else { None }
    }
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Number of the message that it answers.
    pub to: u32,
    /// The value that was requested; `None` for an error and what is neither number nor text.
    pub value: Option<Value>,
}

/// The answer that a whole message is; `None` when it is none.
pub fn answer(message: &[u8]) -> Option<Answer> {
    let start = message.first_chunk::<START>()?;
    if length(*start)? != message.len() {
        return None;
    }
    let fields_end = START + usize::try_from(number(start, 12)?).ok()?;
    let mut to = None;
    let mut at = START;
    while at < fields_end {
        let code = *message.get(at)?;
        // Each is a variant with a signature of one letter.
        let [1, kind, 0] = *message.get(at + 1..at + 4)? else { return None };
        at += 4;
        match kind {
            b'u' => {
                if code == field::REPLY_SERIAL {
                    to = number(message, at);
                }
                at += 4;
            }
            b's' | b'o' => at += 4 + usize::try_from(number(message, at)?).ok()? + 1,
            b'g' => at += 1 + usize::from(*message.get(at)?) + 1,
            _ => return None,
        }
        at = at.next_multiple_of(8);
    }
    let body = message.get(fields_end.next_multiple_of(8)..)?;
    let value = match body {
        // A variant: its signature, and the value where 8 divides.
        [1, b't', 0, _, _, _, _, _, value @ ..] if start[1] == REPLY => {
            value.first_chunk().map(|bytes| Value::Number(u64::from_le_bytes(*bytes)))
        }
        // The same where 4 divides, with its length in front.
        [1, b's', 0, _, text @ ..] if start[1] == REPLY => {
            let length = number(text, 0).and_then(|length| usize::try_from(length).ok());
            let text = length.and_then(|length| text.get(4..)?.get(..length));
            text.and_then(|text| Some(Value::Text(str::from_utf8(text).ok()?.into())))
        }
        _ => None,
    };
    Some(Answer { to: to?, value })
}

/// The path of a unit's object: all but letters and digits is escaped, and a digit in
/// front (sd_bus_path_encode(3)).
pub fn unit_path(unit: &str) -> String {
    let mut out = "/org/freedesktop/systemd1/unit/".to_owned();
    for (i, byte) in unit.bytes().enumerate() {
        if byte.is_ascii_alphabetic() || (i > 0 && byte.is_ascii_digit()) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("_{byte:02x}"));
        }
    }
    out
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

/// Lengths here are those of names, which are short.
fn put_number(out: &mut Vec<u8>, number: usize) {
    out.extend(u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    pad(out, 4);
    put_number(out, text.len());
    out.extend(text.bytes());
    out.push(0);
}

fn put_field(out: &mut Vec<u8>, code: u8, kind: u8, text: &str) {
    pad(out, 8);
    out.extend([code, 1, kind, 0]);
    put_string(out, text);
}

fn pad(out: &mut Vec<u8>, to: usize) {
    out.resize(out.len().next_multiple_of(to), 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A reply: to whom, from whom, and a variant.
    fn reply(kind: u8, to: u32, body: &[u8]) -> Vec<u8> {
        let mut fields = vec![field::REPLY_SERIAL, 1, b'u', 0];
        fields.extend(to.to_le_bytes());
        put_field(&mut fields, 7, b's', "org.freedesktop.systemd1");
        pad(&mut fields, 8);
        fields.extend([field::SIGNATURE, 1, b'g', 0, 1, b'v', 0]);
        let mut out = vec![LITTLE, kind, 1, VERSION];
        put_number(&mut out, body.len());
        out.extend(9_u32.to_le_bytes());
        put_number(&mut out, fields.len());
        out.extend(fields);
        pad(&mut out, 8);
        out.extend(body);
        out
    }

    fn number_body(value: u64) -> Vec<u8> {
        [&[1, b't', 0, 0, 0, 0, 0, 0], &value.to_le_bytes()[..]].concat()
    }

    #[test]
    fn a_call_has_the_form_of_the_specification() {
        let property = Property {
            path: "/org/freedesktop/systemd1",
            interface: "org.freedesktop.systemd1.Manager",
            name: "UserspaceTimestampMonotonic",
        };
        let message = get(2, &property);
        assert_eq!(length(*message.first_chunk().unwrap()), Some(message.len()));
        assert_eq!(&message[..12], b"l\x01\0\x01\x48\0\0\0\x02\0\0\0");
        let text: String = message[12..].iter().map(|byte| char::from(*byte)).collect();
        assert_eq!(
            text,
            "\x68\0\0\0\x01\x01o\0\x19\0\0\0/org/freedesktop/systemd1\0\0\0\0\0\0\0\
             \x02\x01s\0\x1f\0\0\0org.freedesktop.DBus.Properties\0\
             \x03\x01s\0\x03\0\0\0Get\0\0\0\0\0\x08\x01g\0\x02ss\0\
             \x20\0\0\0org.freedesktop.systemd1.Manager\0\0\0\0\
             \x1b\0\0\0UserspaceTimestampMonotonic\0"
        );
    }

    #[test]
    fn an_answer_is_a_number_or_a_text_or_nothing() {
        let number = |number| Some(Value::Number(number));
        let text = |text: &str| Some(Value::Text(text.into()));
        let cases = [
            (reply(REPLY, 3, &number_body(1234)), Some((3, number(1234)))),
            (reply(REPLY, 3, &number_body(0)), Some((3, number(0)))),
            (reply(REPLY, 3, b"\x01s\0\0\x07\0\0\0a.slice\0"), Some((3, text("a.slice")))),
            (reply(REPLY, 3, b"\x01s\0\0\0\0\0\0\0"), Some((3, text("")))),
            (reply(REPLY, 3, b"\x01s\0\0\x09\0\0\0a.slice\0"), Some((3, None))),
            (reply(REPLY, 3, b"\x01s\0\0\xff\xff\xff\xffa\0"), Some((3, None))),
            (reply(REPLY, 3, b"\x01s\0\0\x01\0\0\0\xff\0"), Some((3, None))),
            // An error: its sentence.
            (reply(3, 4, b"\x05\0\0\0wrong\0"), Some((4, None))),
            (reply(REPLY, 3, &[1, b'u', 0, 0, 7, 0, 0, 0]), Some((3, None))),
            (reply(REPLY, 3, &number_body(1)[..12]), Some((3, None))),
            (b"l\x02\x01\x01".to_vec(), None),
            (b"HTTP/1.1 400 Bad Request".to_vec(), None),
        ];
        for (message, expected) in cases {
            let expected = expected.map(|(to, value)| Answer { to, value });
            assert_eq!(answer(&message), expected, "{message:?}");
        }
    }

    #[test]
    fn a_path_has_letters_and_digits_only() {
        let cases = [
            ("default.target", "default_2etarget"),
            ("local-fs.target", "local_2dfs_2etarget"),
            ("9p.mount", "_39p_2emount"),
            ("a9@x\\x2d.service", "a9_40x_5cx2d_2eservice"),
        ];
        for (unit, path) in cases {
            assert_eq!(unit_path(unit), format!("/org/freedesktop/systemd1/unit/{path}"));
        }
    }

    proptest! {
        #[test]
        fn a_call_tells_its_length(path in "/[a-z]{0,90}", name in "[A-Za-z]{1,90}", serial: u32) {
            let message = get(serial, &Property { path: &path, interface: "a.b", name: &name });
            prop_assert_eq!(length(*message.first_chunk().unwrap()), Some(message.len()));
        }

        #[test]
        fn no_bytes_are_too_much(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = answer(&bytes);
        }

        #[test]
        fn a_reply_gives_its_number(to: u32, value: u64) {
            let found = answer(&reply(REPLY, to, &number_body(value)));
            prop_assert_eq!(found, Some(Answer { to, value: Some(Value::Number(value)) }));
        }
    }
}
