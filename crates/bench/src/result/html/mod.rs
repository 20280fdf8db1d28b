//! Reports as one HTML page that needs nothing else: no script, no font, no picture from anywhere.
//!
//! Colours are variables of the style sheet, so that tables and plots are
//! legible on light and on dark ground. Everything that came from a report is
//! escaped by the template. Nothing is left out of it: each cell and each
//! curve is on the page.

mod plot;
mod ticks;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{Cell, Column, Report, Section, Table, Unit};

const STYLE: &str = include_str!("style.css");

/// The page of `reports`, in their order.
pub fn page(reports: &[Report]) -> String {
    let numbered = || reports.iter().enumerate();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "Holdfast, measured" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { "Holdfast, measured" }
                    p { "Medians of rounds; ± is how far a round was from the median at most, without the outermost tenths of many rounds." }
                }
                nav {
                    @for (number, report) in numbered() {
                        ul {
                            @for section in &report.sections {
                                li { a href={ "#" (anchor(number, section)) } { (section.title) } }
                            }
                        }
                    }
                }
                main {
                    @for (number, report) in numbered() {
                        (head(report))
                        @for section in &report.sections { (whole(number, section)) }
                    }
                }
            }
        }
    };
    page.into_string()
}

fn anchor(number: usize, section: &Section) -> String {
    format!("r{number}-{}", section.name)
}

fn head(report: &Report) -> Markup {
    html! {
        dl.run {
            dt { "machine" } dd { (report.machine.line()) }
            dt { "load before" } dd { (Unit::Ratio.show(report.machine.load)) }
            dt { "began" } dd { (report.began) }
            dt { "commit" } dd { (report.commit) ", version " (report.version) }
            dt { "command" } dd { code { (report.command.join(" ")) } }
        }
    }
}

fn whole(number: usize, section: &Section) -> Markup {
    let mut names: Vec<&str> = Vec::new();
    for series in section.plots.iter().flat_map(|plot| &plot.series) {
        if !series.dashed && !names.contains(&series.name.as_str()) {
            names.push(&series.name);
        }
    }
    html! {
        section id=(anchor(number, section)) {
            h2 { (section.title) }
            p.about { (section.about) }
            (table(&section.table))
            @if !section.plots.is_empty() {
                div.plots {
                    @for plot in &section.plots { (plot::figure(plot, &names)) }
                }
            }
            @for note in &section.notes { p.note { (note) } }
        }
    }
}

fn table(table: &Table) -> Markup {
    html! {
        div.wide {
            table {
                thead {
                    tr {
                        th scope="col" { (table.label) }
                        @for column in &table.columns {
                            th.number[column.unit != Unit::None] scope="col" { (column.title) }
                        }
                    }
                }
                tbody {
                    @for row in &table.rows {
                        tr {
                            th scope="row" { (row.label) }
                            @for (column, value) in table.cells(row) { (cell(column, value)) }
                        }
                    }
                }
            }
        }
    }
}

fn cell(column: &Column, cell: &Cell) -> Markup {
    html! {
        @match cell {
            Cell::Number { median, low, high, runs } => {
                @let range = format!(
                    "{} to {}, {runs} rounds",
                    column.unit.show(*low),
                    column.unit.show(*high)
                );
                td.number title=[(*runs > 1).then_some(range)] {
                    (column.unit.show(*median))
                    @if let Some(spread) = cell.spread().filter(|spread| *spread >= 0.005) {
                        " " span.spread { "±" (format!("{:.0}", 100.0 * spread)) "%" }
                    }
                }
            }
            Cell::Text { text } if text == "reached" => td { span.good { (text) } },
            Cell::Text { text } if text == "MISSED" => td { span.bad { (text) } },
            // Three figures in a cell stay on one line.
            Cell::Text { text } => td.short[text.chars().count() < 24] { (text) },
            Cell::Missing { why } => td.missing.number[column.unit != Unit::None] {
                @if why.is_empty() { "–" } @else { "– " span.why { (why) } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::tests::example;
    use crate::result::{Axis, Plot, Series};

    #[test]
    fn every_cell_every_curve_and_every_note_is_on_the_page() {
        let mut report = Report::begin(["holdfast".into(), "a<b".into()]);
        report.sections.push(example());
        let page = page(&[report]);
        let all = [
            "work | load",
            "p50 &lt;time&gt;",
            "create &amp; fsync",
            "1,100/s",
            "±14%",
            "1.50 µs",
            "a*b|c",
            "&lt;none&gt;",
            "no root",
            "time over files",
            "ours &amp; theirs",
            "published",
            "It is 5 &lt; 6.",
            "holdfast a&lt;b",
            "id=\"r0-example\"",
        ];
        for text in all {
            assert!(page.contains(text), "{text:?} is missing");
        }
        assert_eq!(page.matches("<polyline").count(), 2);
        // One mark for each of two times three points, with its figures.
        assert_eq!(page.matches("<title>").count(), 1 + 6);
        assert!(page.contains("<title>ours &amp; theirs: 100, 1.00 µs</title>"));
    }

    #[test]
    fn a_curve_has_its_colour_in_every_plot() {
        let axis = || Axis::log("x", Unit::Count);
        let plot = |names: &[&str]| {
            let empty = Plot::new("plot", axis(), axis());
            names.iter().fold(empty, |plot, name| plot.series(Series::new(*name, vec![(1.0, 1.0)])))
        };
        let table = Table::new("work");
        let section = Section::new("key", "title", "about", table)
            .plot(plot(&["one", "two"]))
            .plot(plot(&["two"]));
        let text = whole(0, &section).into_string();
        assert_eq!(text.matches("<g class=\"s0\"").count(), 1);
        assert_eq!(text.matches("<g class=\"s1\"").count(), 2);
    }

    #[test]
    fn nothing_comes_from_elsewhere() {
        let mut report = Report::begin([]);
        report.sections.push(example());
        let page = page(&[report]);
        for word in ["http:", "https:", "<script", "<link", "@import", "url(", "<none>"] {
            assert!(!page.contains(word), "{word}");
        }
    }
}
