//! The options' part of `holdfast mount --help`, and so of its manual page.

use super::table::{GROUPS, IGNORED, REFUSED, Scope, Word};

/// Letters of a line, and where the column of texts begins.
const WIDTH: usize = 100;
const COLUMN: usize = 22;

/// Every option that is no switch to measure a mechanism, in lines of at most 100 letters.
pub fn help() -> String {
    let mut out = String::new();
    for group in GROUPS.iter().filter(|group| !group.title.is_empty()) {
        out += &format!("{}:\n", group.title);
        for row in group.rows {
            let words: Vec<String> = row.words.iter().map(|it| with_value(it, it.form)).collect();
            put(&format!("  {:<18}  ", words.join(", ")), row.help, &mut out);
        }
        out.push('\n');
    }
    let also = GROUPS.iter().flat_map(|group| group.rows).flat_map(|row| row.also);
    let also: Vec<String> = also.map(|word| with_value(word, "")).collect();
    let refused: Vec<&str> = REFUSED.iter().map(|(words, _)| *words).collect();
    let list = |words: &[&str]| words.join(" ").replace(' ', ", ");
    for note in [
        format!(
            "{} hold for the volume: what a later mount says of them must be the same. A remount can change {}; nothing else can change.",
            names(Scope::Volume).join(", "),
            names(Scope::Remount).join(", ")
        ),
        format!("For the opposite or the same: {}.", also.join(", ")),
        format!("Accepted, and without a meaning here: {}, x-* and X-*.", list(IGNORED)),
        format!("Refused, and the error says what to do instead: {}.", list(&refused)),
    ] {
        put("", &note, &mut out);
    }
    out
}

/// The words that hold so far, `=` behind those with a value.
pub(super) fn names(scope: Scope) -> Vec<String> {
    let rows = GROUPS.iter().filter(|group| !group.title.is_empty()).flat_map(|group| group.rows);
    let rows = rows.filter(|row| row.scope == scope);
    let words = rows.flat_map(|row| row.words.iter().chain(row.also));
    words.map(|word| with_value(word, "")).collect()
}

fn with_value(word: &Word, value: &str) -> String {
    format!("{}{}{value}", word.name, if word.form.is_empty() { "" } else { "=" })
}

/// Adds `first` and the words of `text` behind it, in lines. If there is a `first`, the others begin at the column of texts.
fn put(first: &str, text: &str, out: &mut String) {
    let indent = if first.is_empty() { 0 } else { COLUMN };
    out.push_str(first);
    let (mut width, mut gap) = (first.len(), "");
    for word in text.split_whitespace() {
        if width + gap.len() + word.len() > WIDTH {
            *out += &format!("\n{:indent$}", "");
            (width, gap) = (indent, "");
        }
        *out += gap;
        *out += word;
        width += gap.len() + word.len();
        gap = " ";
    }
    out.push('\n');
}
