//! Manual pages: what the declaration of the arguments says, and behind it notes, exit status, examples and other pages.
//!
//! `pages` has what the declaration does not: a command without an entry there fails a test, and so does an example that the
//! program would refuse.

mod pages;

use std::io::{self, Write};

use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};

use self::pages::{Page, Status};

/// What stands at the head and foot of each page.
const SOURCE: &str = concat!("Holdfast ", env!("CARGO_PKG_VERSION"));
const MANUAL: &str = "Holdfast Manual";

/// Writes the page of a command, which has been built, and is called `name` in the table of pages: `snapshot create`.
pub(crate) fn render(
    command: &clap::Command,
    name: &str,
    section: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    let title = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let man = Man::new(command.clone()).title(title).section(section).source(SOURCE).manual(MANUAL);
    man.render_title(out)?;
    man.render_name_section(out)?;
    man.render_synopsis_section(out)?;
    man.render_description_section(out)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(out)?;
    }
    if command.get_subcommands().any(|below| !below.is_hide_set()) {
        man.render_subcommands_section(out)?;
    }
    if let Some(notes) = command.get_after_help() {
        section_of(out, "NOTES", |roff| verbatim(roff, &notes.to_string()))?;
    }
    let page = pages::of(name);
    section_of(out, "EXIT STATUS", |roff| status(roff, page.status))?;
    if !page.examples.is_empty() {
        section_of(out, "EXAMPLES", |roff| examples(roff, page))?;
    }
    section_of(out, "SEE ALSO", |roff| see_also(roff, page))
}

fn section_of(out: &mut dyn Write, name: &str, body: impl FnOnce(&mut Roff)) -> io::Result<()> {
    let mut roff = Roff::new();
    roff.control("SH", [name]);
    body(&mut roff);
    roff.to_writer(out)
}

/// Text whose lines and columns mean something.
fn verbatim(roff: &mut Roff, text: &str) {
    roff.control("nf", []);
    for line in text.lines() {
        roff.text([roman(line)]);
    }
    roff.control("fi", []);
}

fn status(roff: &mut Roff, status: Status) {
    for (code, meaning) in status.codes() {
        roff.control("TP", []);
        roff.text([bold(*code)]);
        roff.text([roman(*meaning)]);
    }
}

fn examples(roff: &mut Roff, page: &Page) {
    for (what, line) in page.examples {
        roff.control("PP", []);
        roff.text([roman(format!("{what}:"))]);
        roff.control("PP", []);
        roff.control("RS", ["4"]);
        verbatim(roff, line);
        roff.control("RE", []);
    }
}

fn see_also(roff: &mut Roff, page: &Page) {
    let mut words: Vec<Inline> = Vec::new();
    for (name, section) in page.see_also() {
        if !words.is_empty() {
            words.push(roman(", "));
        }
        words.extend([bold(name), roman(format!("({section})"))]);
    }
    roff.text(words);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::cmd::{Cli, LINKS, pages_of};

    #[test]
    fn every_command_has_a_page_with_examples_and_every_page_a_command() {
        let of_commands = pages_of(Cli::command()).into_iter().map(|(name, _)| name);
        let of_links = LINKS.iter().map(|link| link.name.to_owned());
        let wanted: BTreeSet<String> = of_commands.chain(of_links).collect();
        let there: BTreeSet<String> = pages::names().map(String::from).collect();
        assert_eq!(wanted, there);
        let groups = ["", "snapshot", "branch"];
        for name in wanted.iter().filter(|name| !groups.contains(&name.as_str())) {
            assert!(!pages::of(name).examples.is_empty(), "{name}");
        }
    }

    #[test]
    fn the_program_takes_every_example() {
        for name in pages::names() {
            let lines = pages::of(name).examples.iter().flat_map(|(_, text)| text.lines());
            for line in lines {
                for part in line.split(" | ").filter_map(|part| part.strip_prefix("holdfast ")) {
                    let part = part.split(" > ").next().unwrap_or(part);
                    let part = part.split(" < ").next().unwrap_or(part);
                    let words = std::iter::once("holdfast").chain(part.split_whitespace());
                    let read = Cli::try_parse_from(words);
                    assert!(
                        read.is_ok(),
                        "{line}: {}",
                        read.err().map_or_else(String::new, |it| it.to_string())
                    );
                }
            }
        }
    }

    #[test]
    fn pages_that_are_named_are_there() {
        let commands = pages_of(Cli::command());
        let ours: BTreeSet<String> = commands
            .iter()
            .map(|(_, command)| command.get_display_name().unwrap_or("holdfast").to_owned())
            .chain(LINKS.iter().map(|link| link.name.to_owned()))
            .collect();
        for name in pages::names() {
            for (page, _) in pages::of(name).see_also() {
                assert!(!page.starts_with("holdfast") || ours.contains(page), "{name}: {page}");
            }
        }
    }

    #[test]
    fn a_page_has_its_sections_in_the_usual_order() {
        let (name, command) =
            pages_of(Cli::command()).into_iter().find(|(it, _)| it == "txn").unwrap();
        let mut page = Vec::new();
        render(&command, &name, "1", &mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        let heads: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix(".SH ")).collect();
        let wanted = [
            "NAME",
            "SYNOPSIS",
            "DESCRIPTION",
            "OPTIONS",
            "NOTES",
            "EXIT STATUS",
            "EXAMPLES",
            "SEE ALSO",
        ];
        let heads: Vec<&str> = heads.iter().map(|head| head.trim_matches('"')).collect();
        assert_eq!(heads, wanted, "{page}");
    }
}
