//! What came out, as a table: a row for each store, columns for each number of clients.

use holdfast_bench::result::{Cell, Row as TableRow, Section, Table, Unit};
use holdfast_bench::systems::Bed;

use crate::run::Run;
use crate::{Args, Row};

/// Of the medians; rates have their spread.
type Figure = (&'static str, &'static str, Unit, fn(&Run) -> f64);

const FIGURES: [Figure; 4] = [
    ("rate", "commits", Unit::PerSecond, |run| run.rate),
    ("flushes", "flushes each", Unit::Ratio, |run| run.flushes),
    ("bytes", "written each", Unit::Bytes, |run| run.bytes),
    ("closed", "until closed", Unit::Bytes, |run| run.bytes_until_closed),
];

/// The table of commits of `size` bytes.
pub(crate) fn section(args: &Args, bed: &Bed, size: usize, rows: &[Row]) -> Section {
    let mut table = Table::new("store");
    for clients in &args.clients {
        let noun = if *clients == 1 { "client" } else { "clients" };
        for (key, title, unit, _) in FIGURES {
            table = table.column(
                format!("{key}-{clients}"),
                format!("{clients} {noun}: {title}"),
                unit,
            );
        }
    }
    for Row { kind, runs } in rows {
        let mut row = TableRow::new(kind.title());
        for runs in runs {
            for (_, _, unit, figure) in FIGURES {
                let cell = Cell::of(&runs.iter().map(figure).collect::<Vec<_>>());
                row = row.cell(if unit == Unit::PerSecond {
                    cell
                } else {
                    Cell::maybe(cell.median())
                });
            }
        }
        table.push(row);
    }
    let keys = args
        .keys
        .map_or("a new key each".into(), |keys| format!("{keys} keys of each client in turn"));
    let about = format!(
        "Puts of {size} bytes, {keys}, in a directory of ext4 on {}; {} interleaved rounds of {} s. \
         All end in fdatasync, fjall in fsync; LMDB writes its meta page with O_DSYNC behind it. SQLite has a WAL and synchronous=FULL, and its clients queue outside of it. \
         Flushes and bytes are the loop device's; those until closed are over the whole life of the store, and its filesystem is synced then.",
        bed.about(),
        args.rounds,
        args.seconds
    );
    Section::new(
        format!("commits-{size}"),
        format!("Durable commits of {size} bytes"),
        about,
        table,
    )
}
