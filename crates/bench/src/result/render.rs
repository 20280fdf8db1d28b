//! Tables in documents, written from kept reports and from nothing else.
//!
//! A document says where with two comments, between which everything is
//! replaced:
//!
//! ```text
//! <!-- bench mechanisms gains -->
//! <!-- end -->
//! ```
//!
//! The words are the name of the report and the key of the section. A document may show a part of a
//! table: behind a colon the keys of the columns, and behind each `|` the label of a row. The
//! notes of the section, which speak of all rows, are then left out.
//!
//! ```text
//! <!-- bench peers rates: holdfast, ext4 | append 4 KiB + fsync | create 4 KiB, 1 thread -->
//! <!-- end -->
//! ```

use std::fmt::Write;
use std::io;

use super::{Section, Stored, escaped};

const BEGIN: &str = "<!-- bench ";
const END: &str = "<!-- end -->";

/// `text` with its tables written anew from `stored`. An error of kind `InvalidData` if a place is not
/// closed, or names what was not kept.
pub fn render(text: &str, stored: &Stored) -> io::Result<String> {
    let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let mut out = String::new();
    let mut lines = text.split_inclusive('\n');
    while let Some(line) = lines.next() {
        out.push_str(line);
        let Some(words) = line.trim().strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix("-->"))
        else {
            continue;
        };
        let words = words.trim();
        let (name, part) =
            words.split_once(": ").map_or((words, None), |(name, part)| (name, Some(part)));
        let (report, section) = name.split_once(' ').unwrap_or((name, ""));
        let found = stored.section(report, section);
        let (report, section) =
            found.ok_or_else(|| wrong(format!("no kept report has the section {name:?}")))?;
        let text = match part {
            Some(part) => {
                part_of(section, part).map_err(|what| wrong(format!("{name:?} has {what}")))?
            }
            None => section.to_markdown(),
        };
        let day = report.began.split('T').next().unwrap_or_default();
        let _ = write!(
            out,
            "{}\n{}, commit {}, on {}: `{}`\n",
            text,
            day,
            report.commit,
            escaped(&report.machine.line()),
            report.command.join(" ").replace('`', "'")
        );
        let end = lines.find(|line| line.trim() == END);
        out.push_str(end.ok_or_else(|| wrong(format!("{words:?} has no {END}")))?);
    }
    Ok(out)
}

/// The section with the columns and rows that `part` names, as Markdown.
fn part_of(section: &Section, part: &str) -> Result<String, String> {
    let mut words = part.split('|').map(str::trim);
    let columns: Vec<_> = words.next().unwrap_or_default().split(',').map(str::trim).collect();
    let rows: Vec<_> = words.collect();
    let table = section.table.only(&columns, &rows)?;
    Ok(Section::new(&section.name, &section.title, &section.about, table).to_markdown())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Report;
    use crate::result::tests::example;

    fn stored() -> Stored {
        let mut report = Report::begin(["holdfast", "bench", "ops"].map(String::from));
        report.sections.push(example());
        let mut stored = Stored::default();
        stored.add(report);
        stored
    }

    #[test]
    fn what_stands_between_the_comments_is_replaced() {
        let text = "before\n<!-- bench ops example -->\nold | words\n<!-- end -->\nafter";
        let once = render(text, &stored()).unwrap();
        assert!(once.starts_with("before\n<!-- bench ops example -->\n**An example**"), "{once}");
        assert!(once.ends_with("`holdfast bench ops`\n<!-- end -->\nafter"), "{once}");
        assert!(!once.contains("old | words"), "{once}");
        assert_eq!(render(&once, &stored()).unwrap(), once, "again changes nothing");
    }

    #[test]
    fn a_part_has_the_columns_and_rows_that_are_named_and_no_notes() {
        let text = "<!-- bench ops example: note, rate | create & fsync -->\n<!-- end -->\n";
        let part = render(text, &stored()).unwrap();
        let table = "| work \\| load | note | rate |\n| --- | --- | ---: |\n| create &amp; fsync | a\\*b\\|c | 1,100/s ±14% |\n\n";
        assert!(part.contains(table), "{part}");
        assert!(!part.contains("It is 5"), "{part}");
        assert_eq!(render(&part, &stored()).unwrap(), part, "again changes nothing");
    }

    #[test]
    fn other_text_stays_and_wrong_places_are_errors() {
        for text in ["", "a\n\nb", "<!-- a comment -->\n"] {
            assert_eq!(render(text, &stored()).unwrap(), text);
        }
        for text in [
            "<!-- bench ops other -->\n<!-- end -->\n",
            "<!-- bench ops example -->\nno end\n",
            "<!-- bench ops example: other | create & fsync -->\n<!-- end -->\n",
            "<!-- bench ops example: rate | other -->\n<!-- end -->\n",
            "<!-- bench -->\n<!-- bench x -->",
        ] {
            assert!(render(text, &stored()).is_err(), "{text}");
        }
    }
}
