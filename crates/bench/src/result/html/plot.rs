//! A plot as an SVG inside the page, with its legend below.

use maud::{Markup, html};

use super::ticks::Ticks;
use crate::result::{Axis, Plot, Series};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 380.0;
/// Values, or a place on the page.
type Point = (f64, f64);

/// Room for the ticks and labels.
const LEFT: f64 = 78.0;
const RIGHT: f64 = 28.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 54.0;
/// Colours and marks; more series begin anew.
const COLOURS: usize = 8;

/// The plot with title and legend. `names` are those of all curves of its section, in their order:
/// the same name has the same colour in each plot.
pub(super) fn figure(plot: &Plot, names: &[&str]) -> Markup {
    let colours = colours(&plot.series, names);
    html! {
        figure {
            figcaption { (plot.title) }
            (svg(plot, &colours))
            ul.legend {
                @for (series, colour) in plot.series.iter().zip(&colours) {
                    li {
                        svg class={ "s" (colour) } viewBox="0 0 34 14" width="34" height="14" aria-hidden="true" {
                            line.dashed[series.dashed] x1="1" y1="7" x2="33" y2="7" {}
                            (mark(*colour, 17.0, 7.0, html! {}))
                        }
                        " " (series.name)
                        @if let Some(exponent) = series.exponent {
                            " " span.spread { "~ x" sup { (format!("{exponent:.2}")) } }
                        }
                    }
                }
            }
        }
    }
}

/// A colour for each series. Those of others have the colours of ours, in the same order, so that
/// before stands beside before.
fn colours(series: &[Series], names: &[&str]) -> Vec<usize> {
    let mut others = 0;
    let colour = |series: &Series| {
        let own = names.iter().position(|name| *name == series.name);
        let number = own.filter(|_| !series.dashed).unwrap_or(others);
        others += usize::from(series.dashed);
        number % COLOURS
    };
    series.iter().map(colour).collect()
}

fn svg(plot: &Plot, colours: &[usize]) -> Markup {
    let points = || plot.series.iter().flat_map(|series| series.points.iter().copied());
    let across = Ticks::across(&plot.x, points().map(|point| point.0));
    let upwards = Ticks::new(&plot.y, points().map(|point| point.1));
    let x_at = |value: f64| Some(LEFT + across.place(value)? * (WIDTH - LEFT - RIGHT));
    let y_at = |value: f64| Some(HEIGHT - BOTTOM - upwards.place(value)? * (HEIGHT - TOP - BOTTOM));
    let place = |point: (f64, f64)| Some((x_at(point.0)?, y_at(point.1)?));
    html! {
        svg.plot viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label=(plot.title) {
            @for (value, x) in across.values.iter().filter_map(|value| Some((value, x_at(*value)?))) {
                line.grid x1=(at(x)) y1=(TOP) x2=(at(x)) y2=(HEIGHT - BOTTOM) {}
                text.tick x=(at(x)) y=(HEIGHT - BOTTOM + 18.0) text-anchor="middle" { (plot.x.unit.tick(*value)) }
            }
            @for (value, y) in upwards.values.iter().filter_map(|value| Some((value, y_at(*value)?))) {
                line.grid x1=(LEFT) y1=(at(y)) x2=(WIDTH - RIGHT) y2=(at(y)) {}
                text.tick x=(LEFT - 8.0) y=(at(y + 4.0)) text-anchor="end" { (plot.y.unit.tick(*value)) }
            }
            text.label x=(at((LEFT + WIDTH - RIGHT) / 2.0)) y=(HEIGHT - 12.0) text-anchor="middle" { (label(&plot.x)) }
            @let middle = (TOP + HEIGHT - BOTTOM) / 2.0;
            text.label x="16" y=(at(middle)) text-anchor="middle" transform=(format!("rotate(-90 16 {})", at(middle))) {
                (label(&plot.y))
            }
            @for (series, colour) in plot.series.iter().zip(colours) {
                g class={ "s" (colour) } {
                    @let places: Vec<_> = series.points.iter().filter_map(|point| Some((*point, place(*point)?))).collect();
                    polyline.dashed[series.dashed] points=(line(&places)) {}
                    @for ((x, y), (left, top)) in &places {
                        @let figures = format!("{}: {}, {}", series.name, plot.x.unit.show(*x), plot.y.unit.show(*y));
                        (mark(*colour, *left, *top, html! { title { (figures) } }))
                    }
                }
            }
        }
    }
}

fn line(places: &[(Point, Point)]) -> String {
    let points = places.iter().map(|(_, (x, y))| format!("{},{}", at(*x), at(*y)));
    points.collect::<Vec<_>>().join(" ")
}

/// A mark whose shape tells series apart where colours do not.
fn mark(colour: usize, x: f64, y: f64, inside: Markup) -> Markup {
    let polygon = |points: &[(f64, f64)]| {
        let points = points.iter().map(|(dx, dy)| format!("{},{}", at(x + dx), at(y + dy)));
        points.collect::<Vec<_>>().join(" ")
    };
    html! {
        @match colour % 4 {
            0 => circle cx=(at(x)) cy=(at(y)) r="3.5" { (inside) },
            1 => rect x=(at(x - 3.2)) y=(at(y - 3.2)) width="6.4" height="6.4" { (inside) },
            2 => polygon points=(polygon(&[(0.0, -4.4), (4.2, 3.2), (-4.2, 3.2)])) { (inside) },
            _ => polygon points=(polygon(&[(0.0, -4.6), (4.6, 0.0), (0.0, 4.6), (-4.6, 0.0)])) { (inside) },
        }
    }
}

fn label(axis: &Axis) -> String {
    match axis.unit.suffix() {
        "" => axis.label.clone(),
        suffix => format!("{}, {suffix}", axis.label),
    }
}

/// A coordinate: tenths are finer than what is seen.
fn at(coordinate: f64) -> String {
    format!("{coordinate:.1}")
}
