//! JSON for programs, as all commands print it: nothing in it that a terminal would obey, and no number that a reader with the 53 bits of
//! a double would change.

use std::fmt::Display;

use holdfast_base::show::is_unseen;
use serde::Serialize;
use serde_json::{Map, Value};

/// The largest whole number up to which a double has each.
const EXACT_MAX: u64 = (1 << 53) - 1;

/// A value on one line. A whole number beyond 2^53 is a string of its digits: a time in nanoseconds, the size of a huge sparse file.
pub fn text(value: &impl Serialize) -> String {
    let json = serde_json::to_string(value).expect("plain numbers, strings and names of fields");
    let mut out = String::with_capacity(json.len());
    let mut rest = json.as_str();
    while let Some(first) = rest.as_bytes().first() {
        let length = match first {
            b'"' => string(rest),
            b'-' | b'0'..=b'9' => number(rest),
            _ => 1,
        };
        let (token, behind) = rest.split_at(length);
        match first {
            b'"' => put_seen(token, &mut out),
            b'-' | b'0'..=b'9' if is_wide(token) => out.extend(["\"", token, "\""]),
            _ => out.push_str(token),
        }
        rest = behind;
    }
    out
}

/// An answer on one line: its sentence for people, or for programs all that it has.
pub fn answer(answer: &(impl Display + Serialize), for_programs: bool) -> String {
    if for_programs { text(answer) } else { answer.to_string() }
}

/// A name or path in an object; what is not UTF-8 has its odd bytes replaced, and all of them as `FIELD_hex`.
pub fn put(object: &mut Map<String, Value>, field: &str, bytes: &[u8]) {
    object.insert(field.into(), String::from_utf8_lossy(bytes).into());
    if let Some(hex) = hex_unless_text(bytes) {
        object.insert(format!("{field}_hex"), hex.into());
    }
}

/// The same, or null.
pub fn put_if(object: &mut Map<String, Value>, field: &str, bytes: Option<&[u8]>) {
    object.insert(field.into(), Value::Null);
    bytes.into_iter().for_each(|bytes| put(object, field, bytes));
}

/// The bytes in hexadecimal if they are not UTF-8.
pub fn hex_unless_text(bytes: &[u8]) -> Option<String> {
    let hex = || bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    std::str::from_utf8(bytes).is_err().then(hex)
}

/// Bytes of the string that `json` begins with.
fn string(json: &str) -> usize {
    let mut is_escaped = false;
    let end = json.bytes().skip(1).position(|byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    });
    end.map_or(json.len(), |end| end + 2)
}

fn number(json: &str) -> usize {
    let is_part = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
    json.bytes().position(|byte| !is_part(byte)).unwrap_or(json.len())
}

/// Whether it is a whole number that a double does not have.
fn is_wide(number: &str) -> bool {
    let digits = number.strip_prefix('-').unwrap_or(number);
    let is_whole = digits.bytes().all(|byte| byte.is_ascii_digit());
    is_whole && digits.parse().map_or(true, |number: u64| number > EXACT_MAX)
}

/// serde_json escapes what ASCII has of what a terminal would obey.
fn put_seen(string: &str, out: &mut String) {
    for c in string.chars() {
        match is_unseen(c) {
            true => {
                out.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")))
            }
            false => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn it_says_the_same_without_what_a_terminal_would_obey() {
        let value = json!({ "a": "\x1b[2J\u{9b}31m\u{202e}\n é 日本 \u{e0001}" });
        let text = text(&value);
        assert!(!text.contains(is_unseen) && text.contains("é 日本"), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }

    #[test]
    fn what_is_no_text_has_its_bytes_as_well() {
        let mut object = Map::new();
        put(&mut object, "name", b"caf\xe9");
        put_if(&mut object, "branch", Some(b"main"));
        put_if(&mut object, "snapshot", None);
        let wanted = json!({
            "name": "caf\u{fffd}", "name_hex": "636166e9", "branch": "main", "snapshot": null,
        });
        assert_eq!(Value::from(object), wanted);
    }

    #[test]
    fn a_number_that_a_double_does_not_have_is_a_string() {
        let exact = json!([
            0, -1, 9_007_199_254_740_991_u64, -9_007_199_254_740_991_i64, 1.5e300, 0.1, null, true,
            "9007199254740993", "a\\\"9007199254740993", { "9007199254740993": [] },
        ]);
        assert_eq!(text(&exact), exact.to_string());
        let wide = json!({ "a": [9_007_199_254_740_992_u64, u64::MAX], "b": i64::MIN });
        let strings = json!({
            "a": ["9007199254740992", "18446744073709551615"], "b": "-9223372036854775808",
        });
        assert_eq!(text(&wide), strings.to_string());
    }
}
